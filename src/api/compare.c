/* compare.c - check that all ranks show the same tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cluster/allgather.h"
#include "cluster/relay.h"
#include "cluster/wire.h"
#include "fs/enter.h"
#include "fs/fs.h"
#include "tree/digest.h"

/* Every rank builds its own tree from the common index and from its own options
 * and files (units=, ids=). The ranks exchange a digest of their trees. If two
 * differ, the lowest rank and the first one that differs from it send their
 * whole trees, so that every rank can name the path. */

struct comparison {
	struct optimfs_group *w;
	const struct ofs_tree *tree; /* NULL: this rank has none */
	uint64_t *hash;              /* hash of each node */
	int a, b;                    /* ranks that differ */
};

/* Does this rank show the common tree? A new checkpoint that is being filled is
 * shown by one rank only. */
static bool shows(const struct ofs_snapshot *snap)
{
	return snap != NULL &&
	    (snap->overlay == NULL || !ofs_overlay_hides(snap->overlay));
}

static void put_digest(const struct comparison *c, struct ofs_buf *b)
{
	ofs_wire_u8(b, c->tree != NULL);
	ofs_wire_u64(b,
	    c->tree == NULL ? 0
			    : XXH64(c->hash, c->tree->n * sizeof(*c->hash), 0));
}

/* 1: ranks a and b differ; 0: all are equal. */
static int find_ranks(struct comparison *c, struct ofs_allgather *all,
    struct optimfs_error *err)
{
	uint64_t first = 0;

	c->a = -1;
	for (int r = 0; r < c->w->size; r++) {
		struct ofs_cursor *cur = &all->of[r];
		bool absent = cur->p == NULL; /* it does not work */
		bool one = !absent && ofs_cursor_u8(cur) != 0;
		uint64_t digest = absent ? 0 : ofs_cursor_le64(cur);

		if (cur->bad)
			return ofs_wire_malformed(err);
		if (one && c->a == -1) {
			c->a = r;
			first = digest;
		} else if (one && digest != first) {
			c->b = r;
			return 1;
		}
	}
	return 0;
}

static void put_nodes(const struct comparison *c, struct ofs_buf *b)
{
	char path[4096];

	for (uint32_t i = 0; i < c->tree->n; i++) {
		ofs_tree_path(c->tree, i, path, sizeof(path));
		ofs_wire_u64(b, c->hash[i]);
		ofs_wire_str(b, path);
	}
}

/* The first path that differs; if one tree ends, the next path of the other. */
static const char *first_difference(struct ofs_cursor *a, struct ofs_cursor *b)
{
	const char *x = "", *y = "";
	uint64_t i, j;

	while (ofs_cursor_left(a) > 0 && ofs_cursor_left(b) > 0) {
		i = ofs_cursor_le64(a);
		x = ofs_wire_take_str(a);
		j = ofs_cursor_le64(b);
		y = ofs_wire_take_str(b);
		if (i != j)
			return strcmp(x, y) < 0 ? x : y;
	}
	if (ofs_cursor_left(b) > 0)
		a = b;
	(void)ofs_cursor_le64(a);
	return ofs_wire_take_str(a);
}

static int fail_by_name(struct comparison *c, struct optimfs_error *err)
{
	const struct optimfs_group *w = c->w;
	struct ofs_buf nodes = { 0 };
	struct ofs_allgather all = { .mine = &nodes };
	int ret;

	if (w->rank == c->a || w->rank == c->b)
		put_nodes(c, &nodes);
	ret = ofs_allgather(c->w, &all, err);
	if (ret == 0)
		optimfs_fail(err, EPROTO,
		    "OFS916 '%.200s' differs between ranks %d (%s) and %d "
		    "(%s): do they have the same options, and the same files "
		    "for units= and ids=?",
		    first_difference(&all.of[c->a], &all.of[c->b]), c->a,
		    w->ops->host(w->w, c->a), c->b, w->ops->host(w->w, c->b));
	ofs_allgather_fini(&all);
	ofs_buf_fini(&nodes);
	return -1;
}

static int compare(struct comparison *c, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	struct ofs_buf digest = { 0 };
	struct ofs_allgather all = { .own = own, .mine = &digest };
	int ret;

	put_digest(c, &digest);
	ret = ofs_allgather(c->w, &all, err);
	if (ret == 0)
		ret = ofs_allgather_verdict(c->w, &all, true, err);
	if (ret == 0)
		ret = find_ranks(c, &all, err);
	ofs_allgather_fini(&all);
	ofs_buf_fini(&digest);
	return ret == 1 ? fail_by_name(c, err) : ret;
}

int optimfs_group_compare(struct optimfs_group *w, struct optimfs *fs,
    struct optimfs_error *err)
{
	struct comparison c = { .w = w };
	struct ofs_snapshot *snap = fs == NULL ? NULL : ofs_enter(fs);
	struct optimfs_error own = { 0 };
	int ret;

	if (shows(snap)) {
		c.hash = ofs_tree_digests(&snap->tree, snap->cat, &own);
		c.tree = c.hash == NULL ? NULL : &snap->tree;
	}
	ret = compare(&c, c.hash == NULL ? &own : NULL, err);
	ofs_relay_end(w);
	free(c.hash);
	if (snap != NULL)
		ofs_leave(snap);
	return ret;
}
