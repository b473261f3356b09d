/* cmd_cp.c - optimfs cp: copy files of the tree out */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/command.h"

/* ctx: the status of the first file that could not be read. */
static void unread(void *ctx, const struct optimfs_error *err)
{
	int *status = ctx, this = ofs_tool_fail(err);

	if (*status == OFS_EXIT_OK)
		*status = this;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_copy how = { .unread = unread };
	struct optimfs_error err;
	struct ofs_command c;
	int status, failed = OFS_EXIT_OK;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RECURSIVE | OFS_VERBOSE | OFS_TOGETHER | OFS_PATHS |
		    OFS_DEST,
		2, 2, &status) == -1)
		return status;
	how.recursive = (c.flags & OFS_RECURSIVE) != 0;
	how.ctx = &failed;
	if (optimfs_copy(c.fs, c.operand[0], c.operand[1], &how, &err) == -1)
		failed = ofs_command_fail(&c, &err);
	else if (how.recursive)
		ofs_command_tell(&c);
	ofs_command_fini(&c);
	return failed;
}

const struct ofs_verb ofs_verb_cp = {
	.name = "cp",
	.synopsis = "[-r] [-v] [-o OPTION] CHECKPOINT PATH DESTINATION",
	.summary = "copy a file of the tree, or with -r a directory",
	.options = "  -r  copy directories\n"
		   "  -v  under mpirun: say what each rank did\n",
	.run = run,
};
