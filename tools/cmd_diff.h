/* cmd_diff.h - the differences of two checkpoints, for another verb */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_DIFF_H
#define OFS_TOOLS_CMD_DIFF_H

#include "base/buf.h"
#include "tools/command.h"

/* Appends the output of optimfs diff --json for c's checkpoint and another,
 * with commas between the objects. */
int ofs_diff_put(struct ofs_command *c, const char *other, struct ofs_buf *b,
    struct optimfs_error *err);

/* Compares two checkpoints, which are opened without options, and prints the
 * first difference: 1; 0: there is none; -1. c's own stays open. */
int ofs_diff_first(struct ofs_command *c, const char *a, const char *b,
    struct optimfs_error *err);

#endif
