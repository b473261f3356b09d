/* pieces.c - a tensor joined from the slices that ranks hold */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/ranks/pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int ofs_pieces_begin(struct ofs_pieces *x, struct ofs_ranks *set,
    const uint64_t *shape, uint32_t ndim, uint64_t numel,
    struct optimfs_error *err)
{
	*x = (struct ofs_pieces){ .set = set,
		.shape = shape,
		.ndim = ndim,
		.numel = numel,
		.cut = true };
	x->t = (struct ofs_tensor){ .ndim = (uint8_t)ndim,
		/* copies in groups that each have the whole */
		.flags = OFS_TENSOR_COPIES,
		.error = OFS_NONE,
		.shard = set->cat->nshards };
	x->t.shape = ofs_catalog_dims(set->cat, shape, ndim, err);
	return x->t.shape == OFS_NONE ? -1 : 0;
}

int ofs_pieces_get(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at)
{
	struct ofs_ranks *set = x->set;
	int rank = set->file[leaf->file].rank;
	int is = ofs_ranks_tensor(set, leaf, node, t, at, &x->why);

	if (is == 0)
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS165 rank %d has no tensor here, others have", rank);
	if (is != 1)
		return -1;
	if (x->t.dtype == OFS_DTYPE_NONE)
		x->t.dtype = t->dtype;
	if (x->t.dtype == t->dtype)
		return 0;
	return optimfs_fail(&x->why, EUCLEAN,
	    "OFS165 rank %d says dtype %s, others say %s", rank,
	    ofs_dtype_name(t->dtype), ofs_dtype_name(x->t.dtype));
}

/* A failure is the end of the pieces: ofs_pieces_end is not called. */
static int fail(struct ofs_pieces *x)
{
	int rank[2];

	(void)ofs_ranks_copies_end(&x->copies, rank);
	return -1;
}

static int add_shard(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at, uint32_t box,
    struct optimfs_error *err)
{
	if (ofs_ranks_shard(x->set, leaf, t, at, box, err) == -1 ||
	    ofs_ranks_copies_add(&x->copies, x->set, leaf, t, 0, box, err) ==
		-1)
		return fail(x);
	x->t.nshards++;
	return 0;
}

static bool rounds(const struct ofs_pieces *x)
{
	return x->t.dtype == OFS_FLOAT32 &&
	    (x->round == OFS_FLOAT16 || x->round == OFS_BFLOAT16);
}

int ofs_pieces_slice(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at,
    const struct ofs_flat_slice *s, struct optimfs_error *err)
{
	uint64_t box[2] = { s->first, s->count };
	uint32_t dims;

	if (s->count == 0)
		return 0;
	if (rounds(x))
		t->fix |= OFS_FIX_ROUND;
	t->offset += s->at * (uint64_t)t->stride[0];
	t->shape[0] = s->count;
	dims = ofs_catalog_dims(x->set->cat, box, 2, err);
	return dims == OFS_NONE ? fail(x)
				: add_shard(x, leaf, t, at, dims, err);
}

int ofs_pieces_add(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, uint64_t have, const struct ofs_flat_slice *s,
    struct optimfs_error *err)
{
	struct ofs_torch_tensor t;
	struct ofs_extent at;

	if (x->why.code != 0 || ofs_pieces_get(x, leaf, node, &t, &at) == -1)
		return 0;
	if (t.ndim != 1 || t.shape[0] != have) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS160 rank %d has %" PRIu64 " elements in %u dimensions "
		    "here, its shard of the flat parameter should have %" PRIu64
		    " in one",
		    x->set->file[leaf->file].rank, t.ndim > 0 ? t.shape[0] : 1,
		    t.ndim, have);
		return 0;
	}
	return ofs_pieces_slice(x, leaf, &t, &at, s, err);
}

int ofs_pieces_whole(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err)
{
	struct ofs_torch_tensor t;
	struct ofs_extent at;

	x->cut = false;
	if (x->why.code != 0 ||
	    ofs_pieces_get(x, leaf, leaf->node, &t, &at) == -1)
		return 0;
	if (t.ndim != x->ndim ||
	    memcmp(t.shape, x->shape, t.ndim * sizeof(*t.shape)) != 0) {
		optimfs_fail(&x->why, EUCLEAN,
		    "OFS160 rank %d has another shape here than the "
		    "parameter has",
		    x->set->file[leaf->file].rank);
		return 0;
	}
	return x->numel == 0 ? 0 : add_shard(x, leaf, &t, &at, OFS_NONE, err);
}

int ofs_pieces_end(struct ofs_pieces *x, uint32_t path, uint32_t *ref,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = x->set->cat;
	int rank[2];

	if (ofs_ranks_copies_end(&x->copies, rank) == OFS_RANKS_DOUBT)
		x->t.flags |= OFS_TENSOR_DOUBT;
	if (rounds(x))
		x->t.dtype = x->round;
	x->t.grid = x->t.shape;
	x->t.grid_ndim = x->t.ndim;
	if (x->cut) {
		x->t.grid = ofs_catalog_dims(cat, &x->numel, 1, err);
		x->t.grid_ndim = 1;
	}
	if (x->why.code != 0)
		x->t.error = ofs_catalog_error(cat, &x->why, err);
	*ref = ofs_catalog_tensor(cat, &x->t, err);
	return ofs_catalog_add(cat, path, OFS_ENTRY_TENSOR, *ref, OFS_KEY_FIXED,
	    err);
}
