/* command_text.c - files of the tree on a terminal */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fs/walk.h"
#include "tools/command.h"

int ofs_sink_terminal(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
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

bool ofs_command_is_binary(struct ofs_command *c, uint64_t node)
{
	char *kind = ofs_attribute(c->fs, node, "kind", NULL);
	bool binary = kind != NULL &&
	    (strcmp(kind, "bytes") == 0 || ofs_has_xattr(c->fs, node, "shape"));

	free(kind);
	if (!binary)
		(void)ofs_command_read(c, node, has_zero, &binary, NULL);
	return binary;
}
