/* sharded.c - ShardedTensors and DTensors, joined over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/sharded.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "format/ranks/copies.h"

/* The tensor that is being merged. Its error, if any, is reported by reads. */
struct join {
	struct ofs_ranks *set;
	struct ofs_ranks_copies copies;
	struct ofs_tensor t;
	uint64_t shape[OFS_MAX_DIMS];
	const struct ofs_ranks_leaf *first; /* that gave dtype and shape */
	struct optimfs_error why;           /* code 0: no fault */
};

/* Keep the first fault. */
#define WRONG(j, ...) \
 ((j)->why.code != 0 ? 0 : (optimfs_fail_as(&(j)->why, __VA_ARGS__), 0))

static int rank_of(const struct join *j, const struct ofs_ranks_leaf *leaf)
{
	return j->set->file[leaf->file].rank;
}

static const struct ofs_pickle *doc_of(const struct join *j,
    const struct ofs_ranks_leaf *leaf)
{
	return j->set->file[leaf->file].doc;
}

static bool known(const struct join *j)
{
	return j->first != NULL;
}

/* All ranks must agree on the whole tensor. */
static void agree(struct join *j, const struct ofs_ranks_leaf *leaf,
    uint8_t dtype, uint8_t ndim, const uint64_t *shape)
{
	if (!known(j)) {
		j->first = leaf;
		j->t.dtype = dtype;
		j->t.ndim = j->t.grid_ndim = ndim;
		memcpy(j->shape, shape, ndim * sizeof(*shape));
		return;
	}
	if (j->t.dtype != dtype)
		WRONG(j, EUCLEAN,
		    "OFS674 rank %d says dtype %s, rank %d says %s",
		    rank_of(j, j->first), ofs_dtype_name(j->t.dtype),
		    rank_of(j, leaf), ofs_dtype_name(dtype));
	if (j->t.ndim != ndim ||
	    memcmp(j->shape, shape, ndim * sizeof(*shape)) != 0)
		WRONG(j, EUCLEAN,
		    "OFS674 rank %d and rank %d say different shapes",
		    rank_of(j, j->first), rank_of(j, leaf));
}

/* Restrict a local tensor to a piece of it. */
static int cut(struct join *j, const struct ofs_torch_piece *p,
    struct ofs_torch_tensor *t)
{
	uint64_t step;

	if (t->ndim != j->t.ndim ||
	    memcmp(t->shape, p->local, t->ndim * sizeof(*t->shape)) != 0)
		return WRONG(j, EUCLEAN,
		    "OFS693 a local tensor has another shape than its shard");
	if (t->dtype != j->t.dtype)
		return WRONG(j, EUCLEAN,
		    "OFS693 a local tensor of dtype %s in a tensor of %s",
		    ofs_dtype_name(t->dtype), ofs_dtype_name(j->t.dtype));
	for (unsigned d = 0; d < t->ndim; d++) {
		if (!ofs_mul_u64(p->at[d], (uint64_t)t->stride[d], &step) ||
		    !ofs_add_u64(t->offset, step, &t->offset))
			return WRONG(j, EUCLEAN,
			    "OFS693 a local tensor's strides overflow");
		t->shape[d] = p->size[d];
	}
	return 0;
}

/* Pipeline stages that number their parameters separately have different
 * tensors under the same numbers, which are not replicas. */
static void compare_copies(struct join *j)
{
	int rank[2];

	switch (ofs_ranks_copies_end(&j->copies, rank)) {
	case OFS_RANKS_AGREE:
		break;
	case OFS_RANKS_DOUBT:
		j->t.flags |= OFS_TENSOR_DOUBT;
		break;
	case OFS_RANKS_DIFFER:
		WRONG(j, EPROTO,
		    "OFS674 rank %d and rank %d have different elements in "
		    "the same place: they are not replicas; stages of a "
		    "pipeline that each number their parameters from 0 look "
		    "like this; .optimfs/rank/ has each",
		    rank[0], rank[1]);
		break;
	}
}

static int add_shard(struct join *j, const struct ofs_ranks_leaf *leaf,
    const struct ofs_torch_piece *p, struct optimfs_error *err)
{
	uint64_t box[2 * OFS_MAX_DIMS], numel;
	struct ofs_torch_tensor t;
	struct optimfs_error why = { 0 };
	struct ofs_extent at;
	unsigned d = j->t.ndim;
	uint32_t whole, b;

	if (!ofs_numel(p->size, d, &numel) || numel == 0)
		return 0;
	switch (ofs_ranks_tensor(j->set, leaf, p->node, &t, &at, &why)) {
	case 0:
		return WRONG(j, EUCLEAN,
		    "OFS693 a shard without a local tensor");
	case -1:
		return WRONG(j, why.code, "%s", why.text);
	default:
		break;
	}
	whole = ofs_ranks_checksum(j->set, leaf, &t);
	cut(j, p, &t);
	if (j->why.code != 0)
		return 0;
	memcpy(box, p->offset, d * sizeof(*box));
	memcpy(box + d, p->size, d * sizeof(*box));
	b = ofs_catalog_dims(j->set->cat, box, 2 * (size_t)d, err);
	if (ofs_ranks_shard(j->set, leaf, &t, &at, b, err) == -1 ||
	    ofs_ranks_copies_add(&j->copies, j->set, leaf, &t, whole, b, err) ==
		-1)
		return -1;
	j->t.nshards++;
	return 0;
}

/* Add a rank that has the whole tensor as a plain one. */
static int add_whole(struct join *j, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err)
{
	struct ofs_torch_piece p = { .node = leaf->node };
	struct optimfs_error why = { 0 };
	struct ofs_torch_tensor t;
	int is = ofs_torch_tensor(doc_of(j, leaf), leaf->node, &t, &why);

	if (is == 0)
		return WRONG(j, EUCLEAN,
		    "OFS674 rank %d has no tensor here, others have",
		    rank_of(j, leaf));
	if (is == -1)
		return WRONG(j, why.code, "%s", why.text);
	agree(j, leaf, t.dtype, t.ndim, t.shape);
	if (j->why.code != 0)
		return 0;
	memcpy(p.size, t.shape, sizeof(p.size));
	memcpy(p.local, t.shape, sizeof(p.local));
	return add_shard(j, leaf, &p, err);
}

static int add_leaf(struct join *j, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = doc_of(j, leaf);
	struct optimfs_error why = { 0 };
	struct ofs_torch_sharded s;
	int ret = 0;

	if (!ofs_torch_is_sharded(doc, leaf->node))
		return add_whole(j, leaf, err);
	if (ofs_torch_sharded(doc, leaf->node, &s, &why) == -1) {
		if (s.dtype != OFS_DTYPE_NONE)
			agree(j, leaf, s.dtype, s.ndim, s.shape);
		return why.code == ENOMEM ? optimfs_fail_with(err, &why)
					  : WRONG(j, why.code, "%s (rank %d)",
						why.text, rank_of(j, leaf));
	}
	agree(j, leaf, s.dtype, s.ndim, s.shape);
	for (uint32_t i = 0; i < s.npieces && ret == 0 && j->why.code == 0; i++)
		ret = add_shard(j, leaf, &s.piece[i], err);
	ofs_torch_sharded_fini(&s);
	return ret;
}

static int add_entry(struct join *j, uint32_t path, struct optimfs_error *err)
{
	struct ofs_catalog *cat = j->set->cat;

	j->t.shape = j->t.grid =
	    ofs_catalog_dims(cat, j->shape, j->t.ndim, err);
	if (j->why.code != 0) {
		j->t.nshards = 0;
		j->t.error = ofs_catalog_error(cat, &j->why, err);
	}
	return ofs_catalog_add(cat, path, OFS_ENTRY_TENSOR,
	    ofs_catalog_tensor(cat, &j->t, err), OFS_KEY_STAYS, err);
}

/* Add an entry when no rank gives dtype and shape. */
static int add_damaged(struct join *j, const struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	uint32_t file = j->set->leaf[g->first].file, ref;

	if (ofs_torch_damaged(&j->set->file[file].leaves, &j->why, &ref, err) ==
	    -1)
		return -1;
	return ofs_catalog_add(j->set->cat, g->path, OFS_ENTRY_ITEM, ref,
	    OFS_KEY_FREE, err);
}

int ofs_ranks_join(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	struct join j = { .set = set,
		.t = { .error = OFS_NONE,
		    .shard = set->cat->nshards,
		    .flags = OFS_TENSOR_COPIES } };

	int ret = 0;

	for (uint32_t i = g->first;
	     i < g->first + g->n && j.why.code == 0 && ret == 0; i++)
		ret = add_leaf(&j, &set->leaf[i], err);
	compare_copies(&j);
	if (ret == -1)
		return -1;
	return known(&j) ? add_entry(&j, g->path, err)
			 : add_damaged(&j, g, err);
}
