/* cmd_map.c - optimfs map: show which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/walk.h"
#include "base/buf.h"
#include "base/memory.h"
#include "tools/command.h"
#include "tools/holders.h"

struct map {
	struct ofs_command *c;
	struct ofs_holders ranks;
	size_t
	    columns; /* cells in a line; a cell stands for one or more ranks */
	uint64_t *cell;
};

/* Prints cells in eighths of a block, relative to the largest. */
static void print_cells(const struct map *m, uint64_t most)
{
	static const char *const block[] = { "\u00b7", "\u2581", "\u2582",
		"\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588" };

	for (size_t i = 0; i < m->columns; i++) {
		unsigned n = most == 0
		    ? 0
		    : (unsigned)((double)m->cell[i] * 8 / (double)most);

		if (m->cell[i] > 0 && n == 0)
			n = 1;
		fputs(block[n], stdout);
	}
}

static bool is_tensor(struct map *m, const struct ofs_walk_entry *e)
{
	char *shape = ofs_command_xattr(m->c, e->attr.node, "shape");
	bool yes = shape != NULL && *shape != '\0';

	free(shape);
	return yes;
}

static int add(void *ctx, size_t i, const struct optimfs_holding *h)
{
	struct map *m = ctx;

	m->cell[i * m->columns / m->ranks.n] += h->bytes;
	return 0;
}

static bool is_missing(void *ctx, const struct optimfs_holding *h)
{
	(void)ctx;
	return h->missing;
}

static void print_json(const struct map *m, const struct ofs_walk_entry *e)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.map");
	ofs_json_put_string(&w, "path", e->path);
	ofs_json_put_u64(&w, "bytes", e->attr.size);
	ofs_json_open(&w, "ranks", '[');
	for (size_t i = 0; i < m->ranks.n; i++)
		ofs_json_put_i64(&w, NULL, m->ranks.rank[i]);
	ofs_json_close(&w, ']');
	ofs_holders_put(&m->ranks, m->c, e->path, is_missing, NULL, &w);
	ofs_json_print(&w);
}

static int visit(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct map *m = ctx;
	struct ofs_buf shown = { 0 };
	uint64_t most = 0;

	(void)err;
	if (S_ISDIR(e->attr.mode) || !is_tensor(m, e))
		return 0;
	if ((m->c->flags & OFS_JSON) != 0) {
		print_json(m, e);
		return 0;
	}
	memset(m->cell, 0, m->columns * sizeof(*m->cell));
	ofs_holders_each(&m->ranks, m->c, e->path, add, m);
	for (size_t i = 0; i < m->columns; i++)
		if (m->cell[i] > most)
			most = m->cell[i];
	print_cells(m, most);
	ofs_buf_plain(&shown, e->path, strlen(e->path));
	printf(" %12" PRIu64 " %.*s\n", e->attr.size, (int)shown.len,
	    (char *)shown.data);
	ofs_buf_fini(&shown);
	return 0;
}

/* The width of the terminal; 80 without one. */
static size_t width(void)
{
	struct winsize w;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0
	    ? w.ws_col
	    : 80;
}

static void heading(const struct map *m)
{
	size_t n = m->ranks.n;

	if (n == 1)
		printf("rank %d", m->ranks.rank[0]);
	else
		printf("ranks %d to %d", m->ranks.rank[0],
		    m->ranks.rank[n - 1]);
	if (m->columns == n)
		printf(", one column per rank");
	else
		printf(", %zu in %zu columns", n, m->columns);
	puts("; each line is scaled to its largest part");
}

static int map(struct map *m, struct optimfs_error *err)
{
	size_t room = width() / 2;

	if (ofs_holders_find(&m->ranks, m->c, err) == -1)
		return -1;
	if (m->ranks.n == 0)
		return optimfs_fail(err, ENODATA,
		    "%s: nothing says which rank wrote which file, so there "
		    "is no map",
		    m->c->checkpoint);
	m->columns = m->ranks.n < room ? m->ranks.n : room;
	m->cell = calloc(m->columns, sizeof(*m->cell));
	if (m->cell == NULL)
		return ofs_no_memory(err);
	if ((m->c->flags & OFS_JSON) == 0)
		heading(m);
	return ofs_walk(m->c->fs, OPTIMFS_ROOT, 0, visit, m, err);
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_error err;
	struct ofs_command c;
	struct map m = { .c = &c };
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_JSON, 0, 0, &status) ==
	    -1)
		return status;
	status = map(&m, &err) == -1 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_holders_fini(&m.ranks);
	free(m.cell);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_map = {
	.name = "map",
	.synopsis = "[--json] [-o OPTION] CHECKPOINT",
	.summary = "draw how much of each tensor each rank holds",
	.options = "  --json     one JSON object per tensor\n",
	.run = run,
};
