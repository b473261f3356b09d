/* moves.c - which keys of a pickle's dicts change when entries get new names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch/moves.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/str.h"

/* "mv optim/state/A optim/state/B" moves each state of A. In the pickle it is
 * one key, of the dict that holds A: the dict of its states needs no change. So
 * for each container the moved and removed items are counted. */

#define NO_MOVE   0
#define MANY_WAYS UINT32_MAX

struct container {
	uint32_t count; /* of items that were moved or removed as a whole */
	uint32_t move;  /* 1 + that of an item; NO_MOVE; MANY_WAYS */
	bool dropped;
};

struct moves {
	struct ofs_routes *routes;
	struct ofs_torch_move *v;
	struct container *of; /* of each node */
};

static bool same_key(const struct ofs_key *a, const struct ofs_key *b)
{
	return a->index == b->index && ofs_str_equal(a->s, b->s);
}

/* Finds the only component that changes, which must be the key of a dict; the
 * last one if none does. */
static bool find_at(const struct ofs_torch_move *m, uint32_t *at)
{
	uint32_t n = 0;

	*at = m->n - 1;
	for (uint32_t i = 0; i < m->n; i++)
		if (!same_key(&m->from[i], &m->to[i])) {
			*at = i;
			n++;
		}
	return n <= 1 && !m->from[*at].index && !m->to[*at].index;
}

static bool same_way(const struct ofs_torch_move *a,
    const struct ofs_torch_move *b)
{
	return b->to != NULL && a->at == b->at &&
	    same_key(&a->to[a->at], &b->to[b->at]);
}

static bool is_whole(const struct moves *w, uint32_t node)
{
	return w->of[node].count > 0 &&
	    w->of[node].count == ofs_pk_len(w->routes->doc, node);
}

/* Counts move i in its container, and that in its own as soon as it is
 * complete. */
static void count(struct moves *w, uint32_t i)
{
	const struct ofs_torch_move *m = &w->v[i];

	for (uint32_t k = m->n; k > 0; k--) {
		uint32_t node = ofs_route(w->routes, m->from, k).node;
		struct container *c = &w->of[node];

		c->count++;
		if (!is_whole(w, node))
			return;
	}
}

/* Notes in the containers of move i below the renamed one how they move. */
static void note_way(struct moves *w, uint32_t i)
{
	const struct ofs_torch_move *m = &w->v[i];

	for (uint32_t k = m->n; k > m->at + 1; k--) {
		uint32_t node = ofs_route(w->routes, m->from, k).node;
		struct container *c = &w->of[node];

		if (c->move == NO_MOVE)
			c->move = i + 1;
		else if (c->move != MANY_WAYS &&
		    !same_way(m, &w->v[c->move - 1]))
			c->move = MANY_WAYS;
	}
}

/* Is the key of the pair at r to be changed as m says? */
static bool is_renamed(const struct moves *w, const struct ofs_torch_move *m,
    struct ofs_route r)
{
	const struct container *c = &w->of[r.value];

	if (m->at + 1 == m->n)
		return true;
	return is_whole(w, r.value) && c->move != NO_MOVE &&
	    c->move != MANY_WAYS && same_way(m, &w->v[c->move - 1]);
}

/* The pair that has the new name must be removed. What was below it has moved
 * or was removed, or else nothing could get its name. */
static void drop_old(struct moves *w, const struct ofs_torch_move *m)
{
	struct ofs_route r = ofs_route(w->routes, m->to, m->at + 1);
	struct container *c = &w->of[r.value];

	if (r.depth == m->at + 1 && m->at + 1 < m->n && is_whole(w, r.value) &&
	    (c->move == NO_MOVE || c->move == MANY_WAYS))
		c->dropped = true;
}

static void rename_one(struct moves *w, struct ofs_torch_move *m)
{
	struct ofs_route r = ofs_route(w->routes, m->from, m->at + 1);

	if (ofs_pk_kind(w->routes->doc, r.node) != OFS_PK_DICT ||
	    !is_renamed(w, m, r))
		return;
	m->renamed = true;
	m->node = r.node;
	m->item = r.item;
	drop_old(w, m);
}

static void cover(struct moves *w, struct ofs_torch_move *m)
{
	for (uint32_t k = 1; k < m->n && !m->covered; k++) {
		struct ofs_route r = ofs_route(w->routes, m->from, k);

		if (!w->of[r.value].dropped)
			continue;
		m->covered = true;
		m->node = r.node;
		m->item = r.item;
	}
}

int ofs_torch_moves(struct ofs_routes *routes, struct ofs_torch_move *v,
    size_t n, struct optimfs_error *err)
{
	struct moves w = { .routes = routes, .v = v };

	if (n == 0)
		return 0;
	w.of = calloc(ofs_pickle_nodes(routes->doc), sizeof(*w.of));
	if (w.of == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		if (v[i].to != NULL && !find_at(&v[i], &v[i].at))
			v[i].to = NULL;
		count(&w, i);
		if (v[i].to != NULL)
			note_way(&w, i);
	}
	for (size_t i = 0; i < n; i++)
		if (v[i].to != NULL)
			rename_one(&w, &v[i]);
	for (size_t i = 0; i < n; i++)
		if (!v[i].renamed)
			cover(&w, &v[i]);
	free(w.of);
	return 0;
}
