/* cmd_ls.c - optimfs ls: list the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "tools/command.h"
#include "api/walk.h"

struct listing {
	struct ofs_command *c;
	const char *base; /* path given, which stands before what is listed */
};

static void print_json(struct ofs_command *c, const char *path,
    const struct optimfs_attr *attr)
{
	static const char *const names[] = { "dtype", "shape", "kind" };
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, "{\"v\":1,\"path\":\"");
	ofs_buf_json(&b, path, strlen(path));
	ofs_buf_printf(&b, "\",\"type\":\"%s\"",
	    S_ISDIR(attr->mode) ? "directory" : "file");
	if (S_ISREG(attr->mode))
		ofs_buf_printf(&b,
		    ",\"size\":%" PRIu64
		    ",\"size_exact\":%s,\"stored\":%" PRIu64,
		    attr->size, attr->exact ? "true" : "false", attr->stored);
	for (size_t i = 0; S_ISREG(attr->mode) && i < 3; i++) {
		char *value = ofs_command_xattr(c, attr->node, names[i]);

		if (value == NULL)
			continue;
		if (strcmp(names[i], "shape") == 0) {
			ofs_buf_printf(&b, ",\"shape\":[%s]", value);
		} else {
			ofs_buf_printf(&b, ",\"%s\":\"", names[i]);
			ofs_buf_json(&b, value, strlen(value));
			ofs_buf_putc(&b, '"');
		}
		free(value);
	}
	ofs_buf_puts(&b, "}\n");
	fwrite(b.data, 1, b.len, stdout);
	ofs_buf_fini(&b);
}

/* Names may hold anything: no control byte reaches a terminal. */
static void print_name(const char *path, bool dir)
{
	struct ofs_buf b = { 0 };

	ofs_buf_plain(&b, path, strlen(path));
	printf("%.*s%s\n", (int)b.len, (const char *)b.data, dir ? "/" : "");
	ofs_buf_fini(&b);
}

/* An inexact size is an upper bound: shown as such. */
static void print_long(struct ofs_command *c, const char *path,
    const struct optimfs_attr *attr)
{
	time_t when = (time_t)(attr->mtime_ns / 1000000000);
	char *dtype = NULL, *shape = NULL, *kind = NULL, date[32];
	struct tm tm;

	if (S_ISREG(attr->mode)) {
		dtype = ofs_command_xattr(c, attr->node, "dtype");
		shape = ofs_command_xattr(c, attr->node, "shape");
		kind = ofs_command_xattr(c, attr->node, "kind");
	}
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M", localtime_r(&when, &tm));
	printf("%-10s %-16s ",
	    S_ISDIR(attr->mode) ? "directory"
		: dtype != NULL ? dtype
		: kind != NULL  ? kind
				: "file",
	    shape != NULL && *shape != '\0' ? shape : "-");
	if (S_ISDIR(attr->mode))
		printf("%13s ", "-");
	else
		printf("%s%*" PRIu64 " ",
		    attr->exact ? "" : "<=", attr->exact ? 13 : 11, attr->size);
	printf("%s ", date);
	print_name(path, S_ISDIR(attr->mode));
	free(dtype);
	free(shape);
	free(kind);
}

static int list(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct listing *l = ctx;

	(void)err;
	if (l->c->flags & OFS_JSON)
		print_json(l->c, e->path, &e->attr);
	else if (l->c->flags & OFS_LONG)
		print_long(l->c, e->path, &e->attr);
	else
		print_name(e->path, S_ISDIR(e->attr.mode));
	return ferror(stdout) ? -1 : 0;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err = { 0 };
	struct ofs_walk_entry self = { 0 };
	struct listing l = { .c = &c };
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_LONG | OFS_RECURSIVE | OFS_JSON | OFS_PATHS, 0, 1,
		&status) == -1)
		return status;
	l.base = c.noperands > 0 ? c.operand[0] : "";
	ret = ofs_command_resolve(&c, l.base, &self.attr, &err);
	if (ret == 0 && S_ISREG(self.attr.mode)) {
		self.path = self.name = l.base;
		ret = list(&l, &self, &err);
	} else if (ret == 0) {
		ret = ofs_walk(c.fs, self.attr.node,
		    c.flags & OFS_RECURSIVE ? 0 : 1, list, &l, &err);
	}
	status = ret == -1 && err.code != 0 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_ls = {
	.name = "ls",
	.synopsis = "[-lR] [--json] [-o OPTION] CHECKPOINT [PATH]",
	.summary = "list the tree",
	.options = "  -l      type, shape, size and time too\n"
		   "  -R      descend into directories\n"
		   "  --json  one JSON object a line\n",
	.run = run,
};
