/* cut.c - tensors that are rows of others, as boxes of the catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "family/cut.h"

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "catalog/owners.h"
#include "catalog/shards.h"

/* A shard of the source is a box, and element (i0, i1, ...) of that box is at
 * offset + sum(i * stride) of its storage. What a cut takes of it is a smaller
 * box of the same storage: the offset grows, the strides stay, and axes change
 * places, come (of size one) or go (with their index in the offset). So nothing
 * is read, and one shard of the source becomes one of the result. The storage of
 * elements that are computed is what the derivation gives, in C order. */

struct cutting {
	struct ofs_catalog *cat;
	const struct ofs_family_cut *cut;
	const struct ofs_tensor *from;
	uint64_t shape[OFS_MAX_DIMS]; /* of the result */
	unsigned ndim;
	/* of each axis of the result: that of the source, or -1 */
	int axis[OFS_MAX_DIMS];
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS]; /* what is cut out */
	uint32_t nshards;                            /* that were added */
	struct optimfs_error *err;
};

/* A box of the source, in its shape. */
struct stored {
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS];
	int64_t stride[OFS_MAX_DIMS];
	struct ofs_view view; /* without strides */
	struct ofs_extent at;
	uint32_t box, derived; /* of the shard, if it is computed */
};

/* The axis of the tensor that is axis k of the matrix. */
static unsigned axis_of(struct ofs_family_side side, unsigned k, unsigned ndim)
{
	unsigned first = side.layer >= 0;

	return first + (side.transpose && ndim == 2 ? 1 - k : k);
}

unsigned ofs_side_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_family_side side,
    uint64_t shape[OFS_MAX_DIMS])
{
	const uint64_t *whole = ofs_tensor_shape(cat, t);
	unsigned n = t->ndim - (side.layer >= 0);

	for (unsigned k = 0; k < n; k++)
		shape[k] = whole[axis_of(side, k, n)];
	return n;
}

static void begin_cut(struct cutting *c)
{
	const struct ofs_family_cut *cut = c->cut;
	const uint64_t *shape = ofs_tensor_shape(c->cat, c->from);
	unsigned n = c->from->ndim - (cut->from.layer >= 0), row;

	memset(c->lo, 0, sizeof(c->lo));
	memcpy(c->hi, shape, c->from->ndim * sizeof(*shape));
	if (cut->from.layer >= 0) {
		c->lo[0] = (uint64_t)cut->from.layer;
		c->hi[0] = c->lo[0] + 1;
	}
	row = axis_of(cut->from, 0, n);
	c->lo[row] = cut->row;
	c->hi[row] = cut->row + cut->n;
	c->axis[0] = -1; /* of a stack */
	for (unsigned k = 0; k < n; k++)
		c->axis[axis_of(cut->into, k, n)] =
		    (int)axis_of(cut->from, k, n);
}

/* Where the elements are in the storage: a view, or of computed ones a part of
 * their derivation. The index for the shard, or OFS_NONE. */
static uint32_t add_view(struct cutting *c, const struct stored *s,
    const struct ofs_view *v)
{
	struct ofs_derived d;
	struct ofs_derived_part *part;

	if (s->at.encoding != OFS_DERIVED)
		return ofs_catalog_view(c->cat, v, c->err);
	part = ofs_arena_alloc(&c->cat->arena, sizeof(*part));
	if (part == NULL) {
		ofs_no_memory(c->err);
		return OFS_NONE;
	}
	d = c->cat->derived[s->derived];
	*part = d.part != NULL
	    ? *d.part
	    : (struct ofs_derived_part){ { s->at, s->box, s->derived },
		      c->cut->tensor, *v };
	part->view = *v;
	d.part = part;
	return ofs_catalog_derived(c->cat, &d, c->err);
}

/* Adds what is left of a box as a shard of the result. */
static int add_box(struct cutting *c, const struct stored *s)
{
	const struct ofs_family_cut *cut = c->cut;
	uint64_t box[2 * OFS_MAX_DIMS], *lo = box, *size = box + c->ndim;
	int64_t stride[OFS_MAX_DIMS];
	struct ofs_shard new = { .at = s->at };
	struct ofs_view v = s->view;
	unsigned row =
	    axis_of(cut->from, 0, c->from->ndim - (cut->from.layer >= 0));

	for (unsigned d = 0; d < c->from->ndim; d++)
		v.offset += (s->lo[d] < c->lo[d] ? c->lo[d] - s->lo[d] : 0) *
		    (uint64_t)s->stride[d];
	for (unsigned d = 0; d < c->ndim; d++) {
		int k = c->axis[d];

		lo[d] = k < 0 ? (uint64_t)cut->into.layer
			      : (s->lo[k] > c->lo[k] ? s->lo[k] : c->lo[k]);
		size[d] = k < 0
		    ? 1
		    : (s->hi[k] < c->hi[k] ? s->hi[k] : c->hi[k]) - lo[d];
		stride[d] = k < 0 ? 0 : s->stride[k];
		if (k == (int)row)
			lo[d] = lo[d] - cut->row + cut->to;
	}
	new.box = ofs_catalog_dims(c->cat, box, 2 * (size_t)c->ndim, c->err);
	v.stride =
	    ofs_catalog_dims(c->cat, (uint64_t *)stride, c->ndim, c->err);
	if (new.box == OFS_NONE || v.stride == OFS_NONE)
		return -1;
	new.view = add_view(c, s, &v);
	if (new.view == OFS_NONE ||
	    ofs_catalog_shard(c->cat, &new, c->err) == OFS_NONE)
		return -1;
	c->nshards++;
	return 0;
}

static int cut_box(struct cutting *c, const struct stored *s)
{
	for (unsigned d = 0; d < c->from->ndim; d++)
		if (s->hi[d] <= c->lo[d] || s->lo[d] >= c->hi[d])
			return 0;
	return add_box(c, s);
}

/* The box and the place of the elements of a shard in the grid. */
static void describe(const struct cutting *c, const struct ofs_shard *s,
    struct stored *out)
{
	const struct ofs_view *v = ofs_shard_view(c->cat, s);
	uint64_t size[OFS_MAX_DIMS], pitch = 1;
	unsigned n = c->from->grid_ndim;

	ofs_shard_box(c->cat, c->from, s, out->lo, size);
	out->at = s->at;
	out->box = s->box;
	out->derived = s->view;
	for (unsigned d = n; d-- > 0;) {
		out->hi[d] = out->lo[d] + size[d];
		out->stride[d] = (int64_t)pitch;
		pitch *= size[d]; /* no overflow: a part of what fits */
	}
	out->view = (struct ofs_view){ .numel = pitch };
	if (v == NULL)
		return;
	out->view = *v;
	memcpy(out->stride, c->cat->dims + v->stride, n * sizeof(*out->stride));
}

/* A run of the elements of a tensor in C order is some boxes of its shape. */
static int cut_run(struct cutting *c, const struct stored *run)
{
	const uint64_t zero[OFS_MAX_DIMS] = { 0 };
	uint64_t first = run->lo[0], count = run->hi[0] - first;
	struct ofs_region r;

	if (count == 0)
		return 0;
	ofs_region_init(&r, c->from->ndim, zero,
	    ofs_tensor_shape(c->cat, c->from), first, count);
	for (unsigned i = 0; i < r.n; i++) {
		struct stored s = { .view = run->view,
			.at = run->at,
			.box = run->box,
			.derived = run->derived };
		uint64_t at = 0;

		for (unsigned d = 0; d < c->from->ndim; d++) {
			s.lo[d] = ofs_slab_lo(&r, &r.slab[i], d);
			s.hi[d] = ofs_slab_hi(&r, &r.slab[i], d);
			s.stride[d] = (int64_t)r.pitch[d] * run->stride[0];
			at += s.lo[d] * r.pitch[d];
		}
		s.view.offset += (at - first) * (uint64_t)run->stride[0];
		if (cut_box(c, &s) == -1)
			return -1;
	}
	return 0;
}

static int cut_shard(struct cutting *c, const struct ofs_shard *shard)
{
	struct stored s;

	describe(c, shard, &s);
	if (c->from->grid == c->from->shape)
		return cut_box(c, &s);
	if (c->from->grid_ndim == 1)
		return cut_run(c, &s);
	return optimfs_fail(c->err, EOPNOTSUPP,
	    "OFS895 it is stored in blocks of another shape, and cannot be "
	    "cut");
}

/* Copies become copies: ofs_catalog_check_added sets equal boxes apart. */
static int cut_copies(struct cutting *c, uint32_t shard)
{
	struct ofs_shard s = c->cat->shards[shard];
	uint32_t n;

	if (cut_shard(c, &s) == -1)
		return -1;
	(void)ofs_replicas(c->cat, shard, &n);
	for (uint32_t i = 0; i < n; i++) {
		const struct ofs_replica *r =
		    ofs_replicas(c->cat, shard, &n) + i;

		s.at = r->at;
		s.view = r->view;
		if (cut_shard(c, &s) == -1)
			return -1;
	}
	return 0;
}

static int cut_out(struct cutting *c)
{
	for (uint32_t i = 0; i < c->from->nshards; i++)
		if (cut_copies(c, c->from->shard + i) == -1)
			return -1;
	return 0;
}

uint32_t ofs_cut_tensor(struct ofs_catalog *cat,
    const struct ofs_family_cut *cuts, size_t n, const uint64_t *shape,
    unsigned ndim, struct optimfs_error *err)
{
	const uint8_t kept =
	    OFS_TENSOR_COPIES | OFS_TENSOR_ZERO | OFS_TENSOR_DOUBT;
	struct cutting c = { .cat = cat, .ndim = ndim, .err = err };
	struct ofs_tensor t = cat->tensors[cuts->tensor];

	t.shape = t.grid = ofs_catalog_dims(cat, shape, ndim, err);
	if (t.shape == OFS_NONE)
		return OFS_NONE;
	t.ndim = t.grid_ndim = (uint8_t)ndim;
	t.shard = cat->nshards;
	t.index = OFS_NONE;
	t.flags &= kept;
	for (size_t i = 0; i < n; i++) {
		struct ofs_tensor from = cat->tensors[cuts[i].tensor];

		c.cut = &cuts[i];
		c.from = &from;
		t.flags |= from.flags & (OFS_TENSOR_DOUBT | OFS_TENSOR_COPIES);
		if (t.error == OFS_NONE)
			t.error = from.error;
		if (ofs_dtype_is_quantized(from.dtype)) {
			optimfs_fail(err, EOPNOTSUPP,
			    "OFS895 quantized tensors are not cut");
			return OFS_NONE;
		}
		if (cuts[i].n == 0 || from.error != OFS_NONE)
			continue;
		begin_cut(&c);
		if (cut_out(&c) == -1)
			return OFS_NONE;
	}
	t.nshards = c.nshards;
	return ofs_catalog_tensor(cat, &t, err);
}
