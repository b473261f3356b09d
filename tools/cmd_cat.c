/* cmd_cat.c - optimfs cat: files of the tree on standard output */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "tools/command.h"

static int refuse(const struct ofs_verb *verb, const char *path)
{
	return ofs_tool_usage(verb,
	    "%s: refusing to write bytes to a terminal: redirect them to a file "
	    "or a pipe; optimfs show prints the numbers of a tensor, stat "
	    "describes them, and numpy.load reads .optimfs/npy/PATH.npy",
	    path);
}

static int cat(struct ofs_command *c, const struct ofs_verb *verb,
    const char *path)
{
	bool terminal = isatty(STDOUT_FILENO) == 1;
	struct optimfs_attr attr;
	struct optimfs_error err;

	if (ofs_command_resolve(c, path, &attr, &err) == -1)
		return ofs_tool_fail(&err);
	if (S_ISDIR(attr.mode)) {
		optimfs_fail(&err, EISDIR,
		    "%s: is a directory: optimfs ls lists it, optimfs cp -r copies it",
		    path);
		return ofs_tool_fail(&err);
	}
	if (terminal && ofs_command_is_binary(c, attr.node))
		return refuse(verb, path);
	if (ofs_command_read(c, attr.node,
		terminal ? ofs_sink_terminal : ofs_sink_stdout, NULL,
		&err) == -1)
		return ofs_command_stopped(c, &err, "the output is incomplete");
	return OFS_EXIT_OK;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status, worst = OFS_EXIT_OK;

	if (ofs_command_init(&c, verb, argc, argv, OFS_PATHS | OFS_RUNS, 1,
		INT_MAX - 1, &status) == -1)
		return status;
	ofs_interrupt_catch();
	for (int i = 0; i < c.noperands && worst != OFS_EXIT_INTERRUPTED; i++) {
		status = cat(&c, verb, c.operand[i]);
		if (status > worst)
			worst = status;
	}
	ofs_command_fini(&c);
	return ofs_tool_finish(worst);
}

const struct ofs_verb ofs_verb_cat = {
	.name = "cat",
	.synopsis = "[-o OPTION] CHECKPOINT PATH...",
	.summary = "write files to standard output",
	.run = run,
};
