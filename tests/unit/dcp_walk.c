/* dcp_walk.c - the items that each rank of a DCP checkpoint stores */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "format/dcp/render.h"
#include "tap/tap.h"

#define LEAVES 700u

static uint64_t seed = 1;

static uint32_t below(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* A tensor that is cut goes, chunk by chunk, to the ranks of one replica (leaf
 * modulo replicas). Values and whole tensors go to one rank (leaf modulo
 * ranks). */
static bool stores(const struct ofs_dcp_files *f, uint32_t rank, uint32_t leaf,
    uint32_t *chunk)
{
	const struct ofs_dcp_leaf *l = &f->leaf[leaf];

	*chunk = l->rows == 0 ? 0 : rank % f->to.shards;
	if (l->rows == 0)
		return leaf % f->nranks == rank;
	return rank / f->to.shards == leaf % f->to.replicas &&
	    *chunk < l->nchunks;
}

/* The walk goes on with this leaf, whose item is where the one before ends. */
static bool goes_on(struct ofs_dcp_walk *w, uint32_t leaf, uint32_t chunk,
    uint64_t *end)
{
	bool good = ofs_dcp_walk_next(w) && w->leaf == leaf &&
	    w->of_leaf == chunk && w->off == *end;

	*end += ofs_dcp_item_size(&w->f->leaf[leaf], chunk);
	return good && w->end == *end;
}

/* From a leaf of this kind on, the walk visits exactly the leaves that the rank
 * stores, values before tensors, each in order, and then ends. */
static bool agrees(const struct ofs_dcp_files *f, uint32_t rank, uint32_t leaf,
    enum ofs_dcp_kind kind)
{
	uint64_t end = below(1000);
	struct ofs_dcp_walk w;
	uint32_t chunk;

	ofs_dcp_walk_begin(&w, f, rank, kind, leaf, end);
	for (; kind <= OFS_DCP_TENSORS; leaf = 0, kind++)
		for (uint32_t i = leaf; i < f->nleaves; i++)
			if (kind ==
				(f->leaf[i].nchunks == 0 ? OFS_DCP_VALUES
							 : OFS_DCP_TENSORS) &&
			    stores(f, rank, i, &chunk) &&
			    !goes_on(&w, i, chunk, &end))
				return false;
	return !ofs_dcp_walk_next(&w) && !ofs_dcp_walk_next(&w);
}

/* A random mix of values, whole tensors, and tensors that are cut into few or
 * many chunks. */
static void lay(struct ofs_dcp_files *f, struct ofs_dcp_leaf *leaf)
{
	uint32_t values = below(5), whole = below(5);
	uint32_t most = 1 + below(f->to.shards);

	f->leaf = leaf;
	f->nleaves = below(LEAVES);
	f->nranks = f->to.shards * f->to.replicas;
	for (uint32_t i = 0; i < f->nleaves; i++) {
		leaf[i] = (struct ofs_dcp_leaf){ .entry = i,
			.full = below(100),
			.last = below(100) };
		if (below(5) < values)
			continue;
		leaf[i].nchunks = 1;
		if (f->to.shards == 1 || below(5) < whole)
			continue;
		leaf[i].rows = 1 + below(4);
		leaf[i].nchunks =
		    1 + below(below(9) == 0 ? f->to.shards : most);
	}
}

static void check(uint32_t shards, uint32_t replicas)
{
	struct ofs_dcp_leaf leaf[LEAVES];
	struct ofs_dcp_files f = { .to = { .shards = shards,
				       .replicas = replicas } };
	struct optimfs_error err;
	bool good = true;

	for (int k = 0; k < 4 && good; k++) {
		lay(&f, leaf);
		if (ofs_dcp_walk_init(&f, &err) == -1)
			bail_out("%s", err.text);
		for (uint32_t r = 0; r < f.nranks && good; r++) {
			uint32_t from = below(f.nleaves + 1);

			good = agrees(&f, r, 0, OFS_DCP_VALUES) &&
			    agrees(&f, r, 0, OFS_DCP_TENSORS) &&
			    agrees(&f, r, from, OFS_DCP_VALUES) &&
			    agrees(&f, r, from, OFS_DCP_TENSORS);
			if (!good)
				diag("rank %u of %u", r, f.nranks);
		}
		free(f.most);
	}
	ok(good, "walks agree with the placement rule: %u shards, %u replicas",
	    shards, replicas);
}

/* A rank beyond all chunks is skipped without a look at the leaves. */
static void test_far(void)
{
	struct ofs_dcp_leaf leaf[LEAVES];
	struct ofs_dcp_files f = { .to = { .shards = 1u << 16, .replicas = 1 },
		.leaf = leaf,
		.nleaves = LEAVES,
		.nranks = 1u << 16 };
	struct ofs_dcp_walk w;
	struct optimfs_error err;

	for (uint32_t i = 0; i < LEAVES; i++)
		leaf[i] = (struct ofs_dcp_leaf){ .nchunks = 16, .rows = 1 };
	if (ofs_dcp_walk_init(&f, &err) == -1)
		bail_out("%s", err.text);
	f.leaf = NULL; /* looking at a leaf would crash */
	ofs_dcp_walk_begin(&w, &f, 60000, OFS_DCP_VALUES, 0, 0);
	ok(!ofs_dcp_walk_next(&w),
	    "the walk of a rank without chunks ends at once");
	free(f.most);
}

int main(void)
{
	static const uint32_t layouts[][2] = { { 1, 1 }, { 2, 1 }, { 1, 3 },
		{ 7, 1 }, { 64, 1 }, { 500, 1 }, { 4, 5 }, { 2, 100 },
		{ 40, 3 }, { 1, 900 } };

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		check(layouts[i][0], layouts[i][1]);
	test_far();
	return done_testing();
}
