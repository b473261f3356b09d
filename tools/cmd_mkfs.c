/* cmd_mkfs.c - optimfs mkfs: make an empty checkpoint in a layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "tools/command.h"

static const char *last_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

static int make(struct ofs_command *c)
{
	struct optimfs_watch watch = ofs_command_watch(c);
	struct optimfs_error err;
	int ret;

	if (ofs_job_is_first(&c->job))
		optimfs_watch(c->fs, &watch);
	ret = optimfs_mkfs(c->fs, c->layout, c->operand[0], &err);
	ofs_progress_end(&c->progress, ret == 0);
	if (ret == -1 && err.code == ECANCELED)
		optimfs_fail(&err, ECANCELED,
		    "interrupted: nothing was made in %s", c->operand[0]);
	if (ret == -1)
		return ofs_command_fail_layout(c, &err);
	if (!ofs_job_is_first(&c->job))
		return OFS_EXIT_OK;
	if ((c->flags & OFS_JSON) != 0)
		ofs_print_made(c->operand[0], c->layout, true);
	else
		ofs_tool_done("%s is an empty template, %s: mount it with "
			      "'optimfs mount -o rw %s MOUNTPOINT', copy files "
			      "in, unmount it; until then keep its source, and "
			      ".%s.optimfs beside it",
		    c->operand[0], c->layout, c->operand[0],
		    last_of(c->operand[0]));
	return OFS_EXIT_OK;
}

static int run_mkfs(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_LIKE | OFS_LAYOUT | OFS_TOGETHER | OFS_JSON, 1, 1,
		&status) == -1)
		return status;
	if (c.layout == NULL)
		status = ofs_command_which_layout(verb, "--layout");
	else
		status = make(&c);
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_mkfs = {
	.name = "mkfs",
	.synopsis = "--like CHECKPOINT --layout FORMAT[@LAYOUT] [--json]\n"
		    "           [-o OPTION] DIRECTORY",
	.summary = "make an empty checkpoint, to be mounted and filled in",
	.options =
	    "  --like CHECKPOINT         take names, shapes and types from this checkpoint\n"
	    "  --layout FORMAT[@LAYOUT]  dcp@16, dcp@2x8, fsdp@4, torch; all: optimfs(5)\n"
	    "  --json                    print the result as JSON\n",
	.more = ofs_command_print_layouts,
	.run = run_mkfs,
};
