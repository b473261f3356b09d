/* delta.h - reshard --to delta,base=CHECKPOINT */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_DELTA_H
#define TOOLS_DELTA_H

#include "tools/command.h"

/* Is this layout the changes from another checkpoint, and not a view? to may be
 * NULL. */
bool ofs_to_is_delta(const char *to);
/* The base that it names, malloc'ed; NULL: none. */
char *ofs_to_base(const char *to);
/* Writes them; returns the exit status. */
int ofs_reshard_delta(struct ofs_command *c, const struct ofs_verb *verb);

#endif
