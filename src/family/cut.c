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
	unsigned ndim;     /* of the grid of the result */
	uint64_t new_rows; /* of the result */
	/* of each axis of the grid: that of the source, or one of: */
	int axis[OFS_MAX_DIMS];
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS]; /* what is cut out */
	unsigned row;      /* the axis of the source that has rows */
	uint64_t step;     /* 2: every other row, the first one being lo */
	uint64_t to, half; /* where they go, and into which half of the rows */
	uint32_t nshards;  /* that were added */
	struct optimfs_error *err;
};
#define AXIS_STACK (-1)
#define AXIS_HALF  (-2) /* behind the rows, if they alternate */

/* A box of the source, in its shape. */
struct stored {
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS];
	int64_t stride[OFS_MAX_DIMS];
	struct ofs_view view; /* without strides */
	struct ofs_extent at;
	uint32_t box, derived; /* of the shard, if it is computed */
};

/* The axis of the tensor that is axis k of n of the matrix. */
static unsigned axis_of(struct ofs_family_side side, unsigned k, unsigned n)
{
	bool all = side.layer == OFS_SIDE_ALL;

	if (all && k + 1 == n)
		return 0;
	if (side.transpose && n - all == 2)
		k = 1 - k;
	return k + (all || side.layer >= 0);
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

void ofs_side_place(struct ofs_family_side side, const uint64_t *shape,
    unsigned n, uint64_t *placed)
{
	for (unsigned k = 0; k < n; k++)
		placed[axis_of(side, k, n)] = shape[k];
}

/* Which rows of the source, and where they go. */
static void find_rows(struct cutting *c)
{
	const struct ofs_family_cut *cut = c->cut;
	uint64_t first = cut->row,
		 half = ofs_tensor_shape(c->cat, c->from)[c->row] / 2;

	c->step = cut->from.alternate ? 2 : 1;
	if (cut->from.alternate)
		first = 2 * (first % half) + first / half;
	c->lo[c->row] = first;
	c->hi[c->row] = first + c->step * (cut->n - 1) + 1;
	half = cut->into.alternate ? c->new_rows / 2 : c->new_rows;
	c->half = cut->to / half;
	c->to = cut->to % half;
}

static void begin_cut(struct cutting *c)
{
	const struct ofs_family_cut *cut = c->cut;
	const uint64_t *shape = ofs_tensor_shape(c->cat, c->from);
	unsigned n = c->from->ndim - (cut->from.layer >= 0),
		 behind = axis_of(cut->into, 0, n) + 1;

	memset(c->lo, 0, sizeof(c->lo));
	memcpy(c->hi, shape, c->from->ndim * sizeof(*shape));
	if (cut->from.layer >= 0) {
		c->lo[0] = (uint64_t)cut->from.layer;
		c->hi[0] = c->lo[0] + 1;
	}
	c->row = axis_of(cut->from, 0, n);
	find_rows(c);
	c->axis[0] = AXIS_STACK;
	for (unsigned k = 0; k < n; k++) {
		unsigned a = axis_of(cut->into, k, n);

		a += cut->into.alternate && a >= behind;
		c->axis[a] = (int)axis_of(cut->from, k, n);
	}
	if (cut->into.alternate)
		c->axis[behind] = AXIS_HALF;
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

/* What is left of a box: *lo[d] is the first index in the source, size how many.
 * false: nothing. */
static bool clip(const struct cutting *c, const struct stored *s, uint64_t *lo,
    uint64_t *size)
{
	for (unsigned d = 0; d < c->from->ndim; d++) {
		uint64_t hi = s->hi[d] < c->hi[d] ? s->hi[d] : c->hi[d];
		uint64_t step = d == c->row ? c->step : 1;

		lo[d] = s->lo[d] > c->lo[d] ? s->lo[d] : c->lo[d];
		lo[d] += (step - (lo[d] - c->lo[d]) % step) % step;
		if (lo[d] >= hi)
			return false;
		size[d] = (hi - lo[d] + step - 1) / step;
	}
	return true;
}

/* Axis d of the grid of the result, of that box. */
static void place(const struct cutting *c, const struct stored *s, unsigned d,
    uint64_t *lo, uint64_t *size, int64_t *stride)
{
	int k = c->axis[d];

	if (k < 0) {
		lo[d] = k == AXIS_HALF ? c->half : (uint64_t)c->cut->into.layer;
		size[d] = 1;
		stride[d] = 0;
		return;
	}
	lo[d] = s->lo[k];
	size[d] = s->hi[k];
	stride[d] = s->stride[k];
	if (k != (int)c->row)
		return;
	lo[d] = (lo[d] - c->lo[k]) / c->step + c->to;
	stride[d] *= (int64_t)c->step;
}

/* Adds what is left of a box as a shard of the result. */
static int cut_box(struct cutting *c, const struct stored *s)
{
	uint64_t box[2 * OFS_MAX_DIMS], *lo = box, *size = box + c->ndim;
	int64_t stride[OFS_MAX_DIMS];
	struct ofs_shard new = { .at = s->at };
	struct ofs_view v = s->view;
	struct stored left = *s; /* hi: how many */

	if (!clip(c, s, left.lo, left.hi))
		return 0;
	for (unsigned d = 0; d < c->from->ndim; d++)
		v.offset += (left.lo[d] - s->lo[d]) * (uint64_t)s->stride[d];
	for (unsigned d = 0; d < c->ndim; d++)
		place(c, &left, d, lo, size, stride);
	new.box = ofs_catalog_dims(c->cat, box, 2 * (size_t)c->ndim, c->err);
	v.stride =
	    ofs_catalog_dims(c->cat, (uint64_t *)stride, c->ndim, c->err);
	new.view = add_view(c, s, &v);
	if (new.view == OFS_NONE ||
	    ofs_catalog_shard(c->cat, &new, c->err) == OFS_NONE)
		return -1;
	c->nshards++;
	return 0;
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

/* The shape, and the grid in which boxes of the result are given. */
static int set_shape(struct cutting *c, struct ofs_tensor *t,
    const struct ofs_family_cut *cut, const uint64_t *shape, unsigned ndim)
{
	uint64_t grid[OFS_MAX_DIMS];
	unsigned row = axis_of(cut->into, 0, ndim - (cut->into.layer >= 0));

	c->ndim = ndim;
	c->new_rows = shape[row];
	t->shape = t->grid = ofs_catalog_dims(c->cat, shape, ndim, c->err);
	if (cut->into.alternate && ndim < OFS_MAX_DIMS) {
		memcpy(grid, shape, (row + 1ul) * sizeof(*grid));
		memcpy(grid + row + 2, shape + row + 1,
		    (ndim - row - 1ul) * sizeof(*grid));
		grid[row] = shape[row] / 2;
		grid[row + 1] = 2;
		t->grid = ofs_catalog_dims(c->cat, grid, ++c->ndim, c->err);
	}
	t->ndim = (uint8_t)ndim;
	t->grid_ndim = (uint8_t)c->ndim;
	if (cut->into.alternate && ndim == c->ndim)
		return optimfs_fail(c->err, EOPNOTSUPP,
		    "OFS895 it has too many dimensions");
	return t->shape == OFS_NONE || t->grid == OFS_NONE ? -1 : 0;
}

uint32_t ofs_cut_tensor(struct ofs_catalog *cat,
    const struct ofs_family_cut *cuts, size_t n, const uint64_t *shape,
    unsigned ndim, struct optimfs_error *err)
{
	const uint8_t kept =
	    OFS_TENSOR_COPIES | OFS_TENSOR_ZERO | OFS_TENSOR_DOUBT;
	struct cutting c = { .cat = cat, .err = err };
	struct ofs_tensor t = cat->tensors[cuts->tensor];

	if (set_shape(&c, &t, cuts, shape, ndim) == -1)
		return OFS_NONE;
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
