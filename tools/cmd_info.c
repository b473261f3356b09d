/* cmd_info.c - optimfs info: summarise a checkpoint, directory or file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/command.h"

#define LABEL 12 /* columns of "format      " */

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_attr attr;
	struct optimfs_error err;
	const char *path;
	char *text = NULL;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_PATHS | OFS_RUNS, 0, 1, &status) == -1)
		return status;
	path = c.noperands == 0 ? "" : c.operand[0];
	/* where reading takes long, rendering views does, too */
	ofs_progress_step(&c.progress, 0, 0, "finding its layouts");
	if (ofs_command_resolve(&c, path, &attr, &err) == 0)
		text = optimfs_summary(c.fs, path,
		    c.flags & OFS_JSON ? OPTIMFS_SUMMARY_JSON
				       : OPTIMFS_SUMMARY_TEXT,
		    &err);
	ofs_progress_clear(&c.progress);
	if (text != NULL && c.flags & OFS_JSON)
		fputs(text, stdout);
	else if (text != NULL)
		ofs_tool_print(text, LABEL);
	else
		status = ofs_tool_fail(&err);
	free(text);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_info = {
	.name = "info",
	.synopsis = "[--json] [-o OPTION] CHECKPOINT [PATH]",
	.summary = "describe a checkpoint, or a file or directory in it",
	.options = "  --json  print it as JSON\n",
	.run = run,
};
