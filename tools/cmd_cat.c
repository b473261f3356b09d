/* cmd_cat.c - optimfs cat: files of the tree on standard output */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "tools/operand.h"

static int refuse(const struct ofs_verb *verb, const char *path)
{
	return ofs_tool_usage(verb,
	    "%s: refusing to write bytes to a terminal: redirect them to a file "
	    "or a pipe; optimfs show prints the numbers of a tensor, stat "
	    "describes them, and numpy.load reads .optimfs/npy/PATH.npy",
	    path);
}

static int cat(struct ofs_command *c, const struct ofs_verb *verb,
    const char *operand)
{
	bool terminal = ofs_is_terminal(STDOUT_FILENO);
	struct optimfs_error err;
	struct ofs_operand p;

	int ret = ofs_operand_find(&p, c, operand, &err);

	if (ret == 0 && S_ISDIR(p.attr.mode))
		ret = optimfs_fail(&err, EISDIR,
		    "%s: is a directory: optimfs ls lists it, optimfs cp -r copies it",
		    operand);
	if (ret == 0 && terminal &&
	    (p.slice != NULL || ofs_command_is_binary(c, p.attr.node))) {
		ofs_operand_fini(&p);
		return refuse(verb, operand);
	}
	if (ret == 0)
		ret = p.slice != NULL
		    ? ofs_operand_npy(&p, operand, ofs_sink_stdout, NULL, &err)
		    : ofs_command_read(c, p.attr.node,
			  terminal ? ofs_sink_terminal : ofs_sink_stdout, NULL,
			  &err);
	ofs_operand_fini(&p);
	return ret == 0
	    ? OFS_EXIT_OK
	    : ofs_command_stopped(c, &err, "the output is incomplete");
}

static int run_cat(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	int status, worst = OFS_EXIT_OK;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_PATHS | OFS_SLICES | OFS_RUNS, 1, INT_MAX - 1,
		&status) == -1)
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
	.from = true,
	.synopsis = "[-o OPTION] CHECKPOINT PATH[SLICE]...",
	.summary = "write files to standard output",
	.options =
	    "A slice, as of show, is written as a .npy file: PATH[0:4, ::2].\n",
	.run = run_cat,
};
