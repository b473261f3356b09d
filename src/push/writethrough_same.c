/* writethrough_same.c - names of a template that share their elements */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "catalog/shards.h"
#include "push/writethrough.h"

/* A tied parameter has several names in a layout that stores it once, and
 * weights trained in float32 belong to the optimizer too. The first name is
 * written in place; bytes written to the others are staged. */

static bool is_candidate(const struct ofs_snapshot *snap, uint32_t node)
{
	uint32_t entry = snap->tree.node[node].entry;
	const struct ofs_tensor *t;

	if (entry == OFS_NONE || ofs_entry_is_text(snap->cat, entry))
		return false;
	t = ofs_tree_tensor(&snap->tree, snap->cat, node);
	return t != NULL && t->nshards > 0;
}

/* The place of a shard; equal boxes and strides have one index. */
struct place {
	uint64_t off, view_offset;
	uint32_t object, box, stride, fix;
};

static struct place place_of(const struct ofs_catalog *cat,
    const struct ofs_shard *s)
{
	struct place p = { .off = s->at.off,
		.object = s->at.object,
		.box = s->box,
		.stride = OFS_NONE };
	const struct ofs_view *v = ofs_shard_view(cat, s);

	if (v != NULL) {
		p.view_offset = v->offset;
		p.stride = v->stride;
		p.fix = v->fix;
	}
	return p;
}

static bool same_place(const struct ofs_catalog *cat, const struct ofs_shard *a,
    const struct ofs_shard *b)
{
	struct place p = place_of(cat, a), q = place_of(cat, b);

	return memcmp(&p, &q, sizeof(p)) == 0;
}

struct seeking {
	const struct ofs_snapshot *snap;
	uint32_t *node; /* first node of each place */
};

static bool same(const void *ctx, uint32_t i, const void *key, size_t n)
{
	const struct seeking *s = ctx;
	const struct ofs_catalog *cat = s->snap->cat;
	const struct ofs_tensor *a = ofs_tree_tensor(&s->snap->tree,
				    s->snap->cat, s->node[i]),
				*b = key;

	(void)n;
	if (a == b)
		return true;
	if (a->dtype != b->dtype || a->nshards != b->nshards ||
	    ofs_tensor_numel(cat, a) != ofs_tensor_numel(cat, b))
		return false;
	for (uint32_t k = 0; k < a->nshards; k++)
		if (!same_place(cat, &cat->shards[a->shard + k],
			&cat->shards[b->shard + k]))
			return false;
	return true;
}

static int seek(struct seeking *s, struct ofs_map *map, uint32_t *next,
    struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->snap->cat;
	uint32_t found = 0;

	for (uint32_t i = 0; i < s->snap->tree.n; i++) {
		const struct ofs_tensor *t;
		struct place first;
		uint32_t hash, at;

		next[i] = i;
		if (!is_candidate(s->snap, i))
			continue;
		t = ofs_tree_tensor(&s->snap->tree, s->snap->cat, i);
		first = place_of(cat, &cat->shards[t->shard]);
		hash = ofs_map_hash(&first, sizeof(first));
		at = ofs_map_find(map, hash, same, s, t, sizeof(*t));
		if (at != UINT32_MAX) {
			next[i] = next[s->node[at]];
			next[s->node[at]] = i;
			continue;
		}
		s->node[found] = i;
		if (!ofs_map_add(map, hash, found++))
			return ofs_no_memory(err);
	}
	return 0;
}

int ofs_writethrough_aliases(const struct ofs_snapshot *snap, uint32_t **alias,
    struct optimfs_error *err)
{
	struct seeking s = { .snap = snap };
	struct ofs_map map = { 0 };
	uint32_t *next = calloc((size_t)snap->tree.n + 1, sizeof(*next));
	int ret = -1;

	s.node = calloc((size_t)snap->tree.n + 1, sizeof(*s.node));
	if (next == NULL || s.node == NULL)
		ofs_no_memory(err);
	else
		ret = seek(&s, &map, next, err);
	ofs_map_fini(&map);
	free(s.node);
	if (ret == -1) {
		free(next);
		return -1;
	}
	*alias = next;
	return 0;
}
