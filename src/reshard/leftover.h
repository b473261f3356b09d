/* leftover.h - what a reshard that was killed at its very end has left */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RESHARD_LEFTOVER_H
#define OFS_RESHARD_LEFTOVER_H

#include <stdbool.h>

/* The first record of a reshard's journal. */
#define OFS_RESHARD_HEAD 'H'

/* Is what lies in the stage beside a directory the journal of a reshard whose
 * files have got their name? */
bool ofs_reshard_rest(int beside);
/* If it is, and nobody has it: remove it. */
void ofs_reshard_tidy(const char *dir);

#endif
