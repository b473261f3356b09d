/* cmd_commit.h - what the verbs that end changes of a mount share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_COMMIT_H
#define OFS_TOOLS_CMD_COMMIT_H

#include <stdbool.h>

#include "cli/args.h"

/* The command line of commit, abort and umount: flags of these numbers, and
 * a mount point. */
enum {
	OFS_ORDER_JSON = 256,
	OFS_ORDER_FORCE,
	OFS_ORDER_KEEP,
};
struct ofs_commit_order {
	const char *point;
	bool json, progress, quiet, force, keep;
};

/* -1; otherwise the exit status. */
int ofs_commit_order_take(const struct ofs_verb *self, int argc, char **argv,
    const struct ofs_flag *flags, struct ofs_commit_order *o);
/* Prints the result of a commit (control.h) and returns the exit status. */
int ofs_commit_status(int ret, const struct optimfs_error *err);

#endif
