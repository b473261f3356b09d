/* cmd_info.c - optimfs info: summarise a checkpoint, directory or file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/command.h"

#define LABEL 12 /* columns of "format      " */

static int inform(struct ofs_command *c, const char *path)
{
	bool json = (c->flags & OFS_JSON) != 0;
	struct optimfs_attr attr;
	struct optimfs_error err;
	char *text = NULL;

	/* where reading takes long, rendering views does, too */
	ofs_progress_step(&c->progress, 0, 0, "finding its layouts");
	if (ofs_command_resolve(c, path, &attr, &err) == 0)
		text = optimfs_summary(c->fs, path,
		    json ? OPTIMFS_SUMMARY_JSON : OPTIMFS_SUMMARY_TEXT, &err);
	ofs_progress_clear(&c->progress);
	if (text == NULL)
		return ofs_tool_fail(&err);
	if (json)
		fputs(text, stdout);
	else
		ofs_tool_print(text, LABEL);
	free(text);
	return OFS_EXIT_OK;
}

static int run_info(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_PATHS | OFS_RUNS, 0, INT_MAX - 1, &status) == -1)
		return status;
	if (c.noperands == 0)
		c.operand[c.noperands++] = (char *)"";
	for (int i = 0; i < c.noperands && status == OFS_EXIT_OK; i++) {
		if (i > 0 && (c.flags & OFS_JSON) == 0)
			putchar('\n');
		status = inform(&c, c.operand[i]);
	}
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_info = {
	.name = "info",
	.from = true,
	.synopsis = "[--json] [-o OPTION] CHECKPOINT [PATH...]",
	.summary = "describe a checkpoint, or files and directories in it",
	.options = "  --json  print it as JSON\n",
	.run = run_info,
};
