/* cmd_commit.h - the result of a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_COMMIT_H
#define OFS_TOOLS_CMD_COMMIT_H

#include "optimfs/error.h"

/* Prints the result of a commit (control.h) and returns the exit status. */
int ofs_commit_status(int ret, const struct optimfs_error *err);

#endif
