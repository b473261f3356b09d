/* cmd_ls.c - optimfs ls: list the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/buf.h"
#include "base/human.h"
#include "base/memory.h"
#include "cli/colour.h"
#include "fs/walk.h"
#include "tools/command.h"

#define VALUE_MAX 60 /* longest value shown, in bytes */

/* Prints without control bytes: names may contain anything. */
static void print_plain(const char *s, size_t n)
{
	struct ofs_buf b = { 0 };

	ofs_buf_plain(&b, s, n);
	printf("%.*s", (int)b.len, (const char *)b.data);
	ofs_buf_fini(&b);
}

static void print_path(const char *path, bool dir)
{
	if (dir)
		ofs_colour(OFS_BLUE);
	print_plain(path, strlen(path));
	if (dir)
		ofs_colour(OFS_PLAIN);
}

static void print_name(const char *path, bool dir)
{
	print_path(path, dir);
	puts(dir ? "/" : "");
}

struct value {
	char text[VALUE_MAX + 1];
	size_t len;
	bool more; /* further lines */
};

/* -1 with err unchanged: enough was read. */
static int take_value(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct value *v = ctx;
	size_t room = VALUE_MAX - v->len;

	(void)err;
	memcpy(v->text + v->len, p, n < room ? n : room);
	v->len += n < room ? n : room;
	return n < room ? 0 : -1;
}

/* The first line of a text file; false: none. Unreadable values are not shown;
 * reading the file reports why. */
static bool value_of(struct ofs_command *c, const struct optimfs_attr *attr,
    const char *kind, const char *shape, struct value *v)
{
	struct optimfs_error err = { 0 };
	size_t n;

	v->len = 0;
	if (kind == NULL || (c->flags & OFS_RECURSIVE) != 0 ||
	    (shape != NULL && *shape != '\0'))
		return false;
	if (ofs_command_read(c, attr->node, take_value, v, &err) == -1 &&
	    err.code != 0)
		return false;
	v->text[v->len] = '\0';
	n = strcspn(v->text, "\n");
	v->more = n + 1 < v->len;
	v->len = n;
	return v->len > 0;
}

static void print_json(struct ofs_command *c, const char *path,
    const struct optimfs_attr *attr)
{
	bool file = S_ISREG(attr->mode);
	char *dtype = ofs_attribute(c->fs, attr->node, "dtype", NULL);
	char *shape = ofs_attribute(c->fs, attr->node, "shape", NULL);
	char *kind = ofs_attribute(c->fs, attr->node, "kind", NULL);
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	struct value v;

	ofs_json_begin(&w, &b, "optimfs.ls");
	ofs_json_put_string(&w, "path", path);
	ofs_json_put_string(&w, "type",
	    S_ISDIR(attr->mode)       ? "directory"
		: S_ISLNK(attr->mode) ? "link"
				      : "file");
	if (file) {
		ofs_json_put_u64(&w, "size", attr->size);
		ofs_json_put_bool(&w, "size_exact", attr->exact);
		ofs_json_put_u64(&w, "stored", attr->stored);
	}
	if (file && dtype != NULL)
		ofs_json_put_string(&w, "dtype", dtype);
	if (file && shape != NULL) {
		ofs_json_open(&w, "shape", '[');
		ofs_buf_puts(&b, shape);
		ofs_json_close(&w, ']');
	}
	if (file && kind != NULL)
		ofs_json_put_string(&w, "kind", kind);
	if (c->flags & OFS_LONG && value_of(c, attr, kind, shape, &v))
		ofs_json_put_str(&w, "value",
		    (struct ofs_str){ v.text, (uint32_t)v.len });
	free(dtype);
	free(kind);
	free(shape);
	ofs_json_print(&w);
}

/* An inexact size is printed as an upper bound. */
static void print_size(struct ofs_command *c, const struct optimfs_attr *attr)
{
	char size[OFS_HUMAN_SIZE] = "-";
	bool exact = !S_ISREG(attr->mode) || attr->exact;

	if (S_ISREG(attr->mode) && (c->flags & OFS_HUMAN) != 0)
		ofs_human_bytes(attr->size, size);
	else if (S_ISREG(attr->mode))
		snprintf(size, sizeof(size), "%" PRIu64, attr->size);
	printf("%s%*s ", exact ? "" : "<=", exact ? 13 : 11, size);
}

static void print_long(struct ofs_command *c, const char *path,
    const struct optimfs_attr *attr)
{
	time_t when = (time_t)(attr->mtime_ns / 1000000000);
	char *dtype = NULL, *shape = NULL, *kind = NULL, *target = NULL;
	char date[32];
	struct value v;
	struct tm tm;

	if (S_ISREG(attr->mode)) {
		dtype = ofs_attribute(c->fs, attr->node, "dtype", NULL);
		shape = ofs_attribute(c->fs, attr->node, "shape", NULL);
		kind = ofs_attribute(c->fs, attr->node, "kind", NULL);
	}
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M", localtime_r(&when, &tm));
	printf("%-15s %-16s ",
	    S_ISDIR(attr->mode)       ? "directory"
		: S_ISLNK(attr->mode) ? "link"
		: dtype != NULL       ? dtype
		: kind != NULL        ? kind
				      : "file",
	    shape != NULL && *shape != '\0' ? shape : "-");
	print_size(c, attr);
	printf("%s ", date);
	print_path(path, S_ISDIR(attr->mode));
	if (value_of(c, attr, kind, shape, &v)) {
		fputs(" = ", stdout);
		print_plain(v.text, v.len);
		if (v.more)
			fputs(" ...", stdout);
	}
	if (S_ISLNK(attr->mode) &&
	    optimfs_readlink(c->fs, attr->node, &target, NULL) == 0)
		printf(" -> %s", target);
	puts(S_ISDIR(attr->mode) ? "/" : "");
	free(target);
	free(dtype);
	free(shape);
	free(kind);
}

struct listing {
	struct ofs_command *c;
	const char *below; /* put before paths; "" */
	uint64_t entries;  /* printed */
	bool more;         /* something was printed before */
};

static int list(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct listing *l = ctx;
	struct ofs_command *c = l->c;
	char *path;

	if (asprintf(&path, "%s%s%s", l->below, *l->below == '\0' ? "" : "/",
		e->path) == -1)
		return ofs_no_memory(err);
	if (c->flags & OFS_JSON)
		print_json(c, path, &e->attr);
	else if (c->flags & OFS_LONG)
		print_long(c, path, &e->attr);
	else
		print_name(path, S_ISDIR(e->attr.mode));
	free(path);
	l->entries++;
	return ferror(stdout) ? -1 : 0;
}

/* -a: what the root does not list. */
static int list_hidden(struct listing *l, const char *path,
    struct optimfs_error *err)
{
	struct ofs_walk_entry e = { .path = ".optimfs", .name = ".optimfs" };

	if ((l->c->flags & OFS_ALL) == 0 || path[strspn(path, "/")] != '\0')
		return 0;
	return ofs_command_resolve(l->c, e.path, &e.attr, err) == -1
	    ? -1
	    : list(l, &e, err);
}

/* Of several paths, each directory has a heading, and in JSON all paths begin at
 * the root. */
static int list_dir(struct listing *l, const char *path, uint64_t node,
    struct optimfs_error *err)
{
	struct ofs_command *c = l->c;
	bool json = (c->flags & OFS_JSON) != 0;
	unsigned depth = c->flags & OFS_RECURSIVE ? 0 : 1;

	if (c->noperands > 1 && json)
		l->below = path;
	else if (c->noperands > 1) {
		fputs(l->more ? "\n" : "", stdout);
		print_plain(path, strlen(path));
		puts(":");
	}
	if (list_hidden(l, path, err) == -1)
		return -1;
	return json ? ofs_walk(c->fs, node, depth, list, l, err)
		    : ofs_walk_sorted(c->fs, node, depth, list, l, err);
}

/* Lists the paths that are directories, or those that are not. */
static int list_paths(struct listing *l, bool dirs, struct optimfs_error *err)
{
	struct ofs_command *c = l->c;
	int ret = 0;

	for (int i = 0; i < c->noperands && ret == 0; i++) {
		struct ofs_walk_entry e = { .path = c->operand[i],
			.name = c->operand[i] };

		l->below = "";
		ret = ofs_command_resolve(c, e.path, &e.attr, err);
		if (ret == -1 || S_ISDIR(e.attr.mode) != dirs)
			continue;
		ret = dirs ? list_dir(l, e.path, e.attr.node, err)
			   : list(l, &e, err);
		l->more = true;
	}
	return ret;
}

static void summarize(const struct listing *l)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.ls.summary");
	ofs_json_put_u64(&w, "entries", l->entries);
	ofs_json_print(&w);
}

static int run_ls(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct listing l = { .c = &c, .below = "" };
	struct optimfs_error err = { 0 };
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_LONG | OFS_RECURSIVE | OFS_HUMAN | OFS_ALL | OFS_ONE |
		    OFS_JSON | OFS_PATHS | OFS_RUNS,
		0, INT_MAX - 1, &status) == -1)
		return status;
	if (c.noperands == 0)
		c.operand[c.noperands++] = (char *)"";
	/* files first, as ls(1) does */
	ret = list_paths(&l, false, &err);
	if (ret == 0)
		ret = list_paths(&l, true, &err);
	if (ret == 0 && (c.flags & OFS_JSON) != 0)
		summarize(&l);
	status = ret == -1 && err.code != 0 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_ls = {
	.name = "ls",
	.from = true,
	.synopsis = "[-lhRa1] [--json] [-o OPTION] CHECKPOINT [PATH...]",
	.summary = "list files and directories",
	.options =
	    "  -l      also print type, shape, size, time and (without -R) the\n"
	    "          values of scalars\n"
	    "  -h      with -l: sizes as 9.2 kB\n"
	    "  -R      list subdirectories, too\n"
	    "  -a      list .optimfs, too\n"
	    "  -1      one name per line, which is always so\n"
	    "  --json  one JSON object per line\n",
	.run = run_ls,
};
