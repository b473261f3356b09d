/* cmd_cat.c - optimfs cat: files of the tree on standard output */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "fs/walk.h"
#include "tools/command.h"

/* Of lines of text, what must not be shown is escaped. */
static int show(void *ctx, const void *p, size_t n, struct optimfs_error *err)
{
	const char *at = p, *end = at + n;
	struct ofs_buf b = { 0 };
	int ret;

	for (const char *from = at; at < end; from = at) {
		while (at < end && *at != '\n' && *at != '\t')
			at++;
		ofs_buf_shown(&b, from, (size_t)(at - from));
		if (at < end)
			ofs_buf_putc(&b, *at++);
	}
	ret = b.bad ? ofs_no_memory(err)
		    : ofs_sink_stdout(ctx, b.data, b.len, err);
	ofs_buf_fini(&b);
	return ret;
}

/* enough was read */
static int has_zero(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	bool *zero = ctx;

	(void)err;
	*zero = memchr(p, '\0', n) != NULL;
	return -1;
}

/* Is it a file of bytes: a tensor with dimensions, a value of bytes, or what is
 * in a view? */
static bool is_binary(struct ofs_command *c, uint64_t node)
{
	char *kind = ofs_attribute(c->fs, node, "kind", NULL);
	bool binary = kind != NULL &&
	    (strcmp(kind, "bytes") == 0 || ofs_has_xattr(c->fs, node, "shape"));

	free(kind);
	if (!binary)
		(void)ofs_command_read(c, node, has_zero, &binary, NULL);
	return binary;
}

static int refuse(const struct ofs_verb *verb, const char *path)
{
	return ofs_tool_usage(verb,
	    "%s: refusing to write bytes to a terminal: redirect them to a file "
	    "or a pipe; optimfs stat describes the numbers of a tensor, and "
	    "numpy.load reads .optimfs/npy/PATH.npy",
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
	if (terminal && is_binary(c, attr.node))
		return refuse(verb, path);
	if (ofs_command_read(c, attr.node, terminal ? show : ofs_sink_stdout,
		NULL, &err) == -1)
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
