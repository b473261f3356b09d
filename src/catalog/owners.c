/* owners.c - the ranks that hold a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/owners.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"

/* Sort and remove duplicates; returns the new length. */
static size_t unique(int *v, size_t n)
{
	size_t m = 0;

	qsort(v, n, sizeof(*v), ofs_compare_int);
	for (size_t i = 0; i < n; i++)
		if (m == 0 || v[m - 1] != v[i])
			v[m++] = v[i];
	return m;
}

OFS_COMPARE_KEY(compare_replica, uint32_t, struct ofs_replica, shard)

const struct ofs_replica *ofs_replicas(const struct ofs_catalog *cat,
    uint32_t shard, uint32_t *n)
{
	const struct ofs_replica *v = ofs_search(&shard, cat->replicas,
	    cat->nreplicas, sizeof(*v), compare_replica);

	for (*n = 0; v != NULL && v + *n < cat->replicas + cat->nreplicas &&
	     v[*n].shard == shard;)
		++*n;
	return v;
}

uint64_t ofs_shard_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint32_t shard)
{
	uint64_t box[2 * OFS_MAX_DIMS], n;

	ofs_shard_box(cat, t, &cat->shards[shard], box, box + t->grid_ndim);
	if (!ofs_numel(box + t->grid_ndim, t->grid_ndim, &n) ||
	    !ofs_mul_u64(n, ofs_dtype_size(t->dtype), &n))
		return UINT64_MAX;
	return n;
}

OFS_COMPARE_KEY(compare_variant, uint32_t, struct ofs_variant, entry)

const struct ofs_variant *ofs_variant_of(const struct ofs_catalog *cat,
    uint32_t entry, int rank)
{
	size_t i = ofs_lower_bound(&entry, cat->variants, cat->nvariants,
	    sizeof(*cat->variants), compare_variant);

	for (; i < cat->nvariants && cat->variants[i].entry == entry; i++)
		if (cat->variants[i].rank == rank)
			return &cat->variants[i];
	return NULL;
}

static int rank_of(const struct ofs_catalog *cat, const struct ofs_extent *at)
{
	return cat->objects[at->object].rank;
}

const struct ofs_replica *ofs_replica_of(const struct ofs_catalog *cat,
    uint32_t shard, int rank)
{
	const struct ofs_replica *copy;
	uint32_t n;

	if (rank_of(cat, &cat->shards[shard].at) == rank)
		return NULL;
	copy = ofs_replicas(cat, shard, &n);
	for (uint32_t i = 0; i < n; i++)
		if (rank_of(cat, &copy[i].at) == rank)
			return &copy[i];
	return NULL;
}

bool ofs_rank_holds(const struct ofs_catalog *cat, uint32_t shard, int rank)
{
	return rank_of(cat, &cat->shards[shard].at) == rank ||
	    ofs_replica_of(cat, shard, rank) != NULL;
}

/* Append sorted ranks as "0-3,7". */
static void put_ranks(struct ofs_buf *out, const int *v, size_t n)
{
	size_t to;

	for (size_t i = 0; i < n; i = to) {
		to = i + 1;
		while (to < n && v[to] == v[to - 1] + 1)
			to++;
		ofs_buf_printf(out, "%s%d", i == 0 ? "" : ",", v[i]);
		if (to - i > 1)
			ofs_buf_printf(out, "-%d", v[to - 1]);
	}
}

void ofs_owners(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct ofs_buf *out)
{
	size_t n = 0, all = t->nshards;
	const struct ofs_replica *copy;
	uint32_t copies;
	int *v;

	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++) {
		ofs_replicas(cat, i, &copies);
		all += copies;
	}
	v = malloc((all + 1) * sizeof(*v));
	if (v == NULL) {
		out->bad = true;
		return;
	}
	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++) {
		v[n++] = rank_of(cat, &cat->shards[i].at);
		copy = ofs_replicas(cat, i, &copies);
		for (uint32_t k = 0; k < copies; k++)
			v[n++] = rank_of(cat, &copy[k].at);
	}
	n = unique(v, n);
	if (n > 0 && v[0] < 0) /* a file of unknown rank */
		put_ranks(out, v + 1, n - 1);
	else
		put_ranks(out, v, n);
	free(v);
}

int ofs_all_ranks(const struct ofs_catalog *cat, int **ranks, size_t *n,
    struct optimfs_error *err)
{
	bool *used = calloc((size_t)cat->nobjects + 1, sizeof(*used));
	int *v =
	    malloc(((size_t)cat->nobjects + cat->nvariants + 1) * sizeof(*v));
	size_t m = 0;

	if (used == NULL || v == NULL) {
		free(used);
		free(v);
		return ofs_no_memory(err);
	}
	for (uint32_t i = 0; i < cat->nshards; i++)
		used[cat->shards[i].at.object] = true;
	for (uint32_t i = 0; i < cat->nreplicas; i++)
		used[cat->replicas[i].at.object] = true;
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (used[i] && cat->objects[i].rank >= 0)
			v[m++] = cat->objects[i].rank;
	for (uint32_t i = 0; i < cat->nvariants; i++)
		if (cat->variants[i].rank >= 0)
			v[m++] = cat->variants[i].rank;
	free(used);
	*n = unique(v, m);
	*ranks = v;
	return 0;
}
