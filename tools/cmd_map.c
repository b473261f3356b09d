/* cmd_map.c - optimfs map: show which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/human.h"
#include "base/memory.h"
#include "cli/bars.h"
#include "cli/wrap.h"
#include "fs/walk.h"
#include "tools/command.h"
#include "tools/holders.h"

struct map {
	struct ofs_command *c;
	uint64_t tensors; /* printed */
	struct ofs_holders ranks;
	size_t columns; /* cells in a line */
	size_t group;   /* ranks in a cell; the last one may have fewer */
	struct cell {
		uint64_t bytes; /* of the ranks in it together */
		bool missing;
	} * cell;
	bool utf8;
	const char *base; /* what is mapped: all paths begin with it */
	size_t nbase;
};

/* What a rank of the cell holds on average, so that a cell with more ranks is not
 * higher. */
static double mean(const struct map *m, size_t cell)
{
	size_t left = m->ranks.n - cell * m->group;

	return (double)m->cell[cell].bytes /
	    (double)(left < m->group ? left : m->group);
}

/* Prints cells relative to the largest. */
static void print_cells(const struct map *m, double most)
{
	for (size_t i = 0; i < m->columns; i++) {
		const struct cell *c = &m->cell[i];
		unsigned n =
		    most > 0 ? (unsigned)(mean(m, i) * OFS_BAR_MAX / most) : 0;

		if (c->bytes > 0 && n == 0)
			n = 1;
		fputs(c->missing ? "x" : ofs_bar(m->utf8, n), stdout);
	}
}

static int add_holding(void *ctx, size_t i, const struct optimfs_holding *h)
{
	struct map *m = ctx;
	struct cell *c = &m->cell[i / m->group];

	c->bytes += h->bytes;
	c->missing |= h->missing && h->bytes > 0;
	return 0;
}

static void print_json(const struct map *m, const char *path, uint64_t bytes)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.map");
	ofs_json_put_string(&w, "path", path);
	ofs_json_put_u64(&w, "bytes", bytes);
	ofs_json_open(&w, "ranks", '[');
	for (size_t i = 0; i < m->ranks.n; i++)
		ofs_json_put_i64(&w, NULL, m->ranks.rank[i]);
	ofs_json_close(&w, ']');
	ofs_holders_put(&m->ranks, m->c, path, false, &w);
	ofs_json_print(&w);
}

static void print_line(struct map *m, const char *path, uint64_t bytes)
{
	char size[OFS_HUMAN_SIZE];
	double most = 0;

	memset(m->cell, 0, m->columns * sizeof(*m->cell));
	ofs_holders_each(&m->ranks, m->c, path, add_holding, m);
	for (size_t i = 0; i < m->columns; i++)
		if (mean(m, i) > most)
			most = mean(m, i);
	print_cells(m, most);
	ofs_tool_print_path(path,
	    m->columns + (size_t)printf(" %8s", ofs_human_bytes(bytes, size)));
}

static int visit(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct map *m = ctx;
	char *path;

	if (S_ISDIR(e->attr.mode) ||
	    !ofs_has_xattr(m->c->fs, e->attr.node, "shape"))
		return 0;
	if (asprintf(&path, "%.*s%s%s", (int)m->nbase, m->base,
		m->nbase > 0 && *e->path != '\0' ? "/" : "", e->path) == -1)
		return ofs_no_memory(err);
	m->tensors++;
	if ((m->c->flags & OFS_JSON) != 0)
		print_json(m, path, e->attr.size);
	else
		print_line(m, path, e->attr.size);
	free(path);
	return 0;
}

static void heading(const struct map *m)
{
	size_t n = m->ranks.n;
	struct ofs_buf b = { 0 };

	if (n == 1)
		ofs_buf_printf(&b, "rank %d", m->ranks.rank[0]);
	else
		ofs_buf_printf(&b, "ranks %d to %d", m->ranks.rank[0],
		    m->ranks.rank[n - 1]);
	if (m->group == 1)
		ofs_buf_puts(&b, ", one column per rank");
	else
		ofs_buf_printf(&b, ", each column the mean of %zu", m->group);
	ofs_buf_printf(&b,
	    "; each line is scaled to its largest part%s; x is missing\n",
	    m->utf8 ? "" : ", 8");
	ofs_tool_print_buf(&b, 4);
}

/* Looks up the directory or tensor to map. */
static int find_mapped(struct map *m, const char *given,
    struct ofs_walk_entry *e, struct optimfs_error *err)
{
	if (ofs_command_resolve(m->c, given, &e->attr, err) == -1)
		return -1;
	if (!S_ISDIR(e->attr.mode) &&
	    !ofs_has_xattr(m->c->fs, e->attr.node, "shape"))
		return optimfs_fail(err, EINVAL,
		    "%s: is not a tensor, so it has no parts", given);
	m->base = given + strspn(given, "/");
	m->nbase = strlen(m->base);
	while (m->nbase > 0 && m->base[m->nbase - 1] == '/')
		m->nbase--;
	return 0;
}

static void summarize(const struct map *m)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.map.summary");
	ofs_json_put_u64(&w, "tensors", m->tensors);
	ofs_json_print(&w);
}

static int map_path(struct map *m, const char *given, struct optimfs_error *err)
{
	struct ofs_walk_entry e = { .path = "" };

	if (find_mapped(m, given, &e, err) == -1)
		return -1;
	if (!S_ISDIR(e.attr.mode))
		return visit(m, &e, err);
	return (m->c->flags & OFS_JSON) != 0
	    ? ofs_walk(m->c->fs, e.attr.node, 0, visit, m, err)
	    : ofs_walk_sorted(m->c->fs, e.attr.node, 0, visit, m, err);
}

static int map(struct map *m, struct optimfs_error *err)
{
	struct ofs_command *c = m->c;
	size_t width = ofs_terminal_width(STDOUT_FILENO);
	size_t room = width > 1 ? width / 2 : 40;

	if (c->noperands == 0)
		c->operand[c->noperands++] = (char *)"";
	for (int i = 0; i < c->noperands; i++)
		if (find_mapped(m, c->operand[i], &(struct ofs_walk_entry){ 0 },
			err) == -1)
			return -1;
	if (ofs_holders_find(&m->ranks, c, err) == -1)
		return -1;
	if (m->ranks.n == 0)
		return optimfs_fail(err, ENODATA,
		    "%s: nothing says which rank wrote which file, so there "
		    "is no map",
		    m->c->checkpoint);
	m->group = (m->ranks.n + room - 1) / room;
	m->columns = (m->ranks.n + m->group - 1) / m->group;
	m->cell = calloc(m->columns, sizeof(*m->cell));
	if (m->cell == NULL)
		return ofs_no_memory(err);
	if ((c->flags & OFS_JSON) == 0)
		heading(m);
	for (int i = 0; i < c->noperands; i++)
		if (map_path(m, c->operand[i], err) == -1)
			return -1;
	if ((c->flags & OFS_JSON) != 0)
		summarize(m);
	return 0;
}

static int run_map(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_error err;
	struct ofs_command c;
	struct map m = { .c = &c, .utf8 = ofs_locale_is_utf8() };
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_JSON | OFS_PATHS, 0,
		INT_MAX - 1, &status) == -1)
		return status;
	status = map(&m, &err) == -1 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_holders_fini(&m.ranks);
	free(m.cell);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_map = {
	.name = "map",
	.from = true,
	.synopsis = "[--json] [-o OPTION] CHECKPOINT [PATH...]",
	.summary = "draw how much of each tensor each rank holds",
	.options = "  --json  one JSON object per tensor\n",
	.run = run_map,
};
