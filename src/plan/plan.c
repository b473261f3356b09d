/* plan.c - a range of elements cut along shards, and copied in long runs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "catalog/shards.h"

/* The range is cut into slabs (shards.h). The intersection of a slab and a
 * shard is a box of elements with strides in the shard's storage and in the
 * destination. Dimensions that are contiguous on both sides become one run,
 * runs with fixed pitches on both sides one segment. */

struct job {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	struct ofs_region region;
	uint64_t item, first, dst;
	uint64_t held; /* elements found so far */
	struct ofs_plan *plan;
	size_t start; /* number of segments before */
	struct optimfs_error *err;
};

struct box {
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS];
};

/* n steps, with the pitches in source and destination. */
struct loop {
	uint64_t n;
	int64_t src, dst;
};

void ofs_plan_fini(struct ofs_plan *plan)
{
	free(plan->seg);
	free(plan->zero);
	*plan = (struct ofs_plan){ 0 };
}

static int add_zeros(struct ofs_plan *plan, uint64_t dst, uint64_t len,
    struct optimfs_error *err)
{
	if (ofs_grow(plan->zero, plan->nzeros, plan->zero_cap, err) == -1)
		return -1;
	plan->zero[plan->nzeros++] = (struct ofs_plan_zeros){ dst, len };
	return 0;
}

int ofs_plan_add(struct ofs_plan *plan, const struct ofs_segment *seg,
    struct optimfs_error *err)
{
	if (plan->most > 0 && plan->n == plan->most)
		return optimfs_fail(err, E2BIG, "more than %zu segments",
		    plan->most);
	if (ofs_grow(plan->seg, plan->n, plan->cap, err) == -1)
		return -1;
	plan->seg[plan->n++] = *seg;
	return 0;
}

/* Does b continue the run of a, on both sides? */
static bool continues(const struct ofs_segment *a, const struct ofs_segment *b)
{
	return a->n == 1 && b->n == 1 && a->object == b->object &&
	    a->codec == b->codec && a->fix == b->fix &&
	    a->ext_off == b->ext_off && a->ext_len == b->ext_len &&
	    a->src + a->len == b->src && a->dst + a->len == b->dst;
}

static int add_segment(struct job *job, const struct ofs_segment *seg)
{
	struct ofs_plan *plan = job->plan;

	if (plan->n > job->start && continues(&plan->seg[plan->n - 1], seg)) {
		plan->seg[plan->n - 1].len += seg->len;
		return 0;
	}
	return ofs_plan_add(plan, seg, job->err);
}

/* Make the loops over box, innermost first. Loops that are contiguous on both
 * sides are merged. */
static unsigned int make_loops(const struct job *job, const struct box *box,
    const struct ofs_place *place, struct loop *loop)
{
	unsigned int n = 0;

	for (unsigned int k = job->region.ndim; k-- > 0;) {
		struct loop l = {
			box->hi[k] - box->lo[k],
			place->stride[k],
			(int64_t)(job->region.pitch[k] * job->item),
		};
		struct loop *in = n > 0 ? &loop[n - 1] : NULL;

		if (l.n == 1)
			continue;
		if (in != NULL && in->src * (int64_t)in->n == l.src &&
		    in->dst * (int64_t)in->n == l.dst)
			in->n *= l.n;
		else
			loop[n++] = l;
	}
	return n;
}

/* Move the longest of n loops to the front, so that there are few segments. */
static void longest_first(struct loop *loop, unsigned int n)
{
	unsigned int best = 0;
	struct loop l;

	for (unsigned int i = 1; i < n; i++)
		if (loop[i].n > loop[best].n)
			best = i;
	l = loop[0];
	loop[0] = loop[best];
	loop[best] = l;
}

/* Add one segment for each iteration of the n outer loops. */
static int add_turns(struct job *job, struct ofs_segment *seg,
    const struct loop *loop, unsigned int n)
{
	uint64_t turn[OFS_MAX_DIMS] = { 0 };
	unsigned int k;

	do {
		if (add_segment(job, seg) == -1)
			return -1;
		for (k = 0; k < n; k++) {
			seg->src += (uint64_t)loop[k].src;
			seg->dst += (uint64_t)loop[k].dst;
			if (++turn[k] < loop[k].n)
				break;
			seg->src -= (uint64_t)loop[k].src * loop[k].n;
			seg->dst -= (uint64_t)loop[k].dst * loop[k].n;
			turn[k] = 0;
		}
	} while (k < n);
	return 0;
}

/* Plan box, a part of a slab and of the shard whose first corner is corner. */
static int add_box(struct job *job, const struct box *box,
    const uint64_t *corner, const struct ofs_place *place)
{
	struct loop loops[OFS_MAX_DIMS], *loop = loops;
	unsigned int n = make_loops(job, box, place, loop);
	uint64_t element = 0;
	struct ofs_segment seg = {
		.object = place->object,
		.codec = place->codec,
		.fix = place->fix,
		.dtype = job->t->dtype,
		.ext_off = place->ext_off,
		.ext_len = place->ext_len,
		.src = place->base,
		.len = job->item,
		.n = 1,
	};

	for (unsigned int k = 0; k < job->region.ndim; k++) {
		seg.src +=
		    (box->lo[k] - corner[k]) * (uint64_t)place->stride[k];
		element +=
		    (box->lo[k] - job->region.lo[k]) * job->region.pitch[k];
	}
	seg.dst = job->dst + (element - job->first) * job->item;
	if (n > 0 && loop->src == (int64_t)job->item &&
	    loop->dst == (int64_t)job->item) {
		seg.len *= loop->n;
		loop++;
		n--;
	}
	if (n > 0) {
		longest_first(loop, n);
		seg.n = loop->n;
		seg.src_pitch = loop->src;
		seg.dst_pitch = loop->dst;
		loop++;
		n--;
	}
	return add_turns(job, &seg, loop, n);
}

/* *both = the intersection of slab and shard; returns its number of
 * elements. */
static uint64_t intersect(const struct ofs_region *r,
    const struct ofs_slab *slab, const struct box *shard, struct box *both)
{
	uint64_t volume = 1;

	for (unsigned int k = 0; k < r->ndim; k++) {
		uint64_t lo = ofs_slab_lo(r, slab, k);
		uint64_t hi = ofs_slab_hi(r, slab, k);

		both->lo[k] = lo > shard->lo[k] ? lo : shard->lo[k];
		both->hi[k] = hi < shard->hi[k] ? hi : shard->hi[k];
		if (both->lo[k] >= both->hi[k])
			return 0;
		volume *= both->hi[k] - both->lo[k];
	}
	return volume;
}

static int add_shard(struct job *job, uint32_t s, const struct ofs_place *place)
{
	struct box shard, both;
	uint64_t volume;

	ofs_shard_bounds(job->cat, job->t, s, shard.lo, shard.hi);
	for (unsigned int i = 0; i < job->region.n; i++) {
		volume = intersect(&job->region, &job->region.slab[i], &shard,
		    &both);
		if (volume == 0)
			continue;
		job->held += volume;
		if (add_box(job, &both, shard.lo, place) == -1)
			return -1;
	}
	return 0;
}

/* The number of elements in [first, first + count) that t's shards hold. */
static uint64_t count_held(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *lo, const uint64_t *size,
    uint64_t first, uint64_t count)
{
	struct box shard, both;
	struct ofs_region r;
	struct ofs_walk w;
	uint64_t held = 0;
	uint32_t s;

	ofs_region_init(&r, t->grid_ndim, lo, size, first, count);
	ofs_walk_init(&w, cat, t, &r);
	while ((s = ofs_walk_next(&w)) != OFS_NONE) {
		ofs_shard_bounds(cat, t, s, shard.lo, shard.hi);
		for (unsigned int i = 0; i < r.n; i++)
			held += intersect(&r, &r.slab[i], &shard, &both);
	}
	return held;
}

/* The first of count elements without a shard; there is one. */
static uint64_t first_missing(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *lo, const uint64_t *size,
    uint64_t first, uint64_t count)
{
	uint64_t good = 0, bad = count, half;

	while (bad - good > 1) {
		half = good + (bad - good) / 2;
		if (count_held(cat, t, lo, size, first, half) == half)
			good = half;
		else
			bad = half;
	}
	return first + good;
}

static int fail_missing(const struct job *job, const uint64_t *lo,
    const uint64_t *size, uint64_t count)
{
	optimfs_fail(job->err, EIO,
	    "OFS607 element %" PRIu64 " is in no shard: %" PRIu64 " of %" PRIu64
	    " asked for are missing",
	    first_missing(job->cat, job->t, lo, size, job->first, count),
	    count - job->held, count);
	return ofs_mark_lost(job->err, OPTIMFS_LOST_HOLES);
}

static int plan_region(struct job *job, ofs_place_fn *place, void *ctx)
{
	const struct ofs_place *at;
	struct ofs_walk w;
	uint32_t s;

	ofs_walk_init(&w, job->cat, job->t, &job->region);
	while ((s = ofs_walk_next(&w)) != OFS_NONE) {
		at = place(ctx, job->t, s, job->err);
		if (at == NULL || add_shard(job, s, at) == -1)
			return -1;
	}
	return 0;
}

int ofs_plan_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, uint64_t dst,
    ofs_place_fn *place, void *ctx, struct ofs_plan *plan,
    struct optimfs_error *err)
{
	static const uint64_t origin[OFS_MAX_DIMS];
	const uint64_t *lo = box == NULL ? origin : box;
	const uint64_t *size =
	    box == NULL ? cat->dims + t->grid : box + t->grid_ndim;
	struct job job = {
		.cat = cat,
		.t = t,
		.item = ofs_dtype_size(t->dtype),
		.first = first,
		.dst = dst,
		.plan = plan,
		.start = plan->n,
		.err = err,
	};
	int ret;

	if (t->error != OFS_NONE)
		return ofs_catalog_fail(cat, t->error, err);
	if (count == 0)
		return 0;
	ofs_region_init(&job.region, t->grid_ndim, lo, size, first, count);
	ret = plan_region(&job, place, ctx);
	if (ret == 0 && job.held != count)
		ret = (t->flags & OFS_TENSOR_ZERO) != 0
		    ? add_zeros(plan, dst, count * job.item, err)
		    : fail_missing(&job, lo, size, count);
	if (ret == -1)
		plan->n = job.start;
	return ret;
}

int ofs_plan_elements(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, ofs_place_fn *place, void *ctx,
    struct ofs_plan *plan, struct optimfs_error *err)
{
	return ofs_plan_box(cat, t, NULL, first, count, 0, place, ctx, plan,
	    err);
}

int ofs_plan_shards(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, int (*each)(void *ctx, uint32_t s),
    void *ctx)
{
	static const uint64_t origin[OFS_MAX_DIMS];
	struct ofs_region r;
	struct ofs_walk w;
	uint32_t s;
	int ret = 0;

	if (t->error != OFS_NONE || count == 0)
		return 0;
	ofs_region_init(&r, t->grid_ndim, origin, cat->dims + t->grid, first,
	    count);
	ofs_walk_init(&w, cat, t, &r);
	while (ret == 0 && (s = ofs_walk_next(&w)) != OFS_NONE)
		ret = each(ctx, s);
	return ret;
}
