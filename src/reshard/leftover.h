/* leftover.h - remains of a reshard that was killed at its very end */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RESHARD_LEFTOVER_H
#define OFS_RESHARD_LEFTOVER_H

#include <stdbool.h>

/* The first record of a reshard's journal. */
#define OFS_RESHARD_HEAD 'H'

/* Does the stage beside a directory contain only the journal of a finished
 * reshard? */
bool ofs_reshard_rest(int beside);
/* Removes it in that case, or if nothing is staged there, unless it is
 * locked. */
void ofs_reshard_tidy(const char *dir);

#endif
