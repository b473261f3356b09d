/* holdings.c - the parts of a tensor that each rank holds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "optimfs/analyze.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/owners.h"
#include "fs/fs.h"

/* The copy of a shard on a rank. */
struct copy {
	int rank;
	uint32_t shard;
	const struct ofs_extent *at;
	uint64_t bytes;
};

struct copies {
	const struct ofs_catalog *cat;
	struct copy *v;
	size_t n, cap;
	bool unsorted;
	struct optimfs_error *err;
};

OFS_COMPARE_BY2(by_rank, struct copy, rank, shard)

static int add_copy(struct copies *l, uint32_t shard,
    const struct ofs_extent *at, uint64_t bytes)
{
	int rank = l->cat->objects[at->object].rank;

	if (rank < 0)
		return 0;
	if (ofs_grow(l->v, l->n, l->cap, l->err) == -1)
		return -1;
	l->v[l->n] = (struct copy){ rank, shard, at, bytes };
	l->unsorted |= l->n > 0 && by_rank(&l->v[l->n - 1], &l->v[l->n]) > 0;
	l->n++;
	return 0;
}

static int add_tensor(struct copies *l, const struct ofs_tensor *t)
{
	const struct ofs_catalog *cat = l->cat;

	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++) {
		uint64_t bytes = ofs_shard_bytes(cat, t, i);
		const struct ofs_replica *copy;
		uint32_t n;

		if (add_copy(l, i, &cat->shards[i].at, bytes) == -1)
			return -1;
		copy = ofs_replicas(cat, i, &n);
		for (uint32_t k = 0; k < n; k++)
			if (add_copy(l, i, &copy[k].at, bytes) == -1)
				return -1;
	}
	return 0;
}

/* Adds the variants that ranks have instead of e's tensor. */
static int add_variants(struct copies *l, const struct ofs_entry *e)
{
	const struct ofs_catalog *cat = l->cat;
	uint32_t entry = (uint32_t)(e - cat->entries);

	for (uint32_t i = 0; i < cat->nvariants; i++) {
		const struct ofs_variant *v = &cat->variants[i];
		size_t first = l->n, kept = first;

		if (v->entry != entry || v->kind != OFS_ENTRY_TENSOR)
			continue;
		if (add_tensor(l, &cat->tensors[v->ref]) == -1)
			return -1;
		for (size_t k = first; k < l->n; k++)
			if (l->v[k].rank == v->rank)
				l->v[kept++] = l->v[k];
		l->n = kept;
	}
	return 0;
}

static int tell(const struct copies *l, optimfs_holding_fn *each, void *ctx)
{
	int ret = 0;

	for (size_t i = 0, k; i < l->n && ret == 0; i = k) {
		const struct ofs_extent *at = l->v[i].at;
		const struct ofs_object *o = &l->cat->objects[at->object];
		struct optimfs_holding h = { .rank = l->v[i].rank,
			.file = o->path };

		for (k = i; k < l->n && l->v[k].rank == h.rank; k++) {
			if (k > i && l->v[k].shard == l->v[k - 1].shard)
				continue;
			ofs_sum_u64(&h.bytes, l->v[k].bytes);
			at = l->v[k].at;
			o = &l->cat->objects[at->object];
			h.missing |= o->missing || o->refused;
			h.damaged |= h.missing || at->off > o->size ||
			    at->len > o->size - at->off;
		}
		ret = each(ctx, &h);
	}
	return ret;
}

int optimfs_holdings(struct optimfs *fs, const char *path,
    optimfs_holding_fn *each, void *ctx, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	struct copies l = { .cat = snap->cat, .err = err };
	const struct ofs_entry *e;
	const struct ofs_tensor *t;
	struct ofs_at at;
	int ret = -1;

	if (ofs_resolve(snap, path, &at, err) == -1)
		goto out;
	e = ofs_at_entry(snap, at);
	t = ofs_entry_tensor(snap->cat, e);
	if (t == NULL) {
		optimfs_fail(err, EINVAL, "%s: is not a stored tensor", path);
		goto out;
	}
	if (add_tensor(&l, t) == -1 || add_variants(&l, e) == -1)
		goto out;
	if (l.unsorted)
		qsort(l.v, l.n, sizeof(*l.v), by_rank);
	ret = tell(&l, each, ctx);
out:
	ofs_leave(snap);
	free(l.v);
	return ret;
}
