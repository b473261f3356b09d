/* cmd_commit.h - how a commit ended */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_COMMIT_H
#define OFS_TOOLS_CMD_COMMIT_H

#include "optimfs/error.h"

/* The exit status of a commit that ended so (control.h), its words printed. */
int ofs_commit_status(int ret, const struct optimfs_error *err);

#endif
