/* cmd_info.c - optimfs info: what a checkpoint is, or a file of it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "tools/command.h"

/* Attributes shown, in this order; those of a number list are JSON arrays. */
static const struct {
	const char *name;
	bool list;
} shown[] = {
	{ "fqn", false },
	{ "raw_fqn", false },
	{ "kind", false },
	{ "dtype", false },
	{ "shape", true },
	{ "shards", false },
	{ "owners", false },
	{ "source", false },
};

static void text(struct ofs_command *c, const struct optimfs_attr *attr)
{
	printf("size: %s%" PRIu64 "\nstored: %" PRIu64 "\n",
	    attr->exact ? "" : "at most ", attr->size, attr->stored);
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		char *value = ofs_command_xattr(c, attr->node, shown[i].name);
		struct ofs_buf b = { 0 };

		if (value == NULL)
			continue;
		for (const char *p = value; *p != '\0'; p++)
			if (*p == '\n')
				ofs_buf_puts(&b, "\n    ");
			else
				ofs_buf_plain(&b, p, 1);
		printf("%s: %.*s\n", shown[i].name, (int)b.len,
		    b.data == NULL ? "" : (const char *)b.data);
		ofs_buf_fini(&b);
		free(value);
	}
}

static void json(struct ofs_command *c, const char *path,
    const struct optimfs_attr *attr)
{
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, "{\"v\":1,\"path\":\"");
	ofs_buf_json(&b, path, strlen(path));
	ofs_buf_printf(&b,
	    "\",\"size\":%" PRIu64 ",\"size_exact\":%s,\"stored\":%" PRIu64,
	    attr->size, attr->exact ? "true" : "false", attr->stored);
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
		char *value = ofs_command_xattr(c, attr->node, shown[i].name);

		if (value == NULL)
			continue;
		ofs_buf_printf(&b, ",\"%s\":%c", shown[i].name,
		    shown[i].list ? '[' : '"');
		ofs_buf_json(&b, value, strlen(value));
		ofs_buf_putc(&b, shown[i].list ? ']' : '"');
		free(value);
	}
	ofs_buf_puts(&b, "}\n");
	fwrite(b.data, 1, b.len, stdout);
	ofs_buf_fini(&b);
}

/* A whole checkpoint's answer is a file of its tree. */
static int whole(struct ofs_command *c, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	const char *path =
	    c->flags & OFS_JSON ? ".optimfs/info.json" : ".optimfs/README";

	if (ofs_command_resolve(c, path, &attr, err) == -1)
		return -1;
	return ofs_command_read(c, attr.node, ofs_sink_stdout, NULL, err);
}

static int one(struct ofs_command *c, const char *path,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (ofs_command_resolve(c, path, &attr, err) == -1)
		return -1;
	if (c->flags & OFS_JSON)
		json(c, path, &attr);
	else
		text(c, &attr);
	return 0;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err = { 0 };
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv, OFS_JSON, 0, 1, &status) ==
	    -1)
		return status;
	ret = c.noperands == 0 ? whole(&c, &err) : one(&c, c.operand[0], &err);
	status = ret == -1 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_info = {
	.name = "info",
	.synopsis = "[--json] [-o OPTION] CHECKPOINT [PATH]",
	.summary = "what a checkpoint is, or what is known of one file",
	.options = "  --json  as JSON\n",
	.run = run,
};
