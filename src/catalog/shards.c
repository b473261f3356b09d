/* shards.c - bounding boxes over the sorted shards of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/shards.h"

#include "catalog/catalog_impl.h"

/* Shards are sorted by their first element, so neighbours in the array are
 * neighbours in the tensor. The index has a bounding box for each 16 of them,
 * one for each 16 of those, and so on: a few bytes a shard. A walk goes through
 * the array from left to right and skips every group whose bounds do not meet
 * the region. For chunks of dim 0, columns and grids the shards that meet a
 * range of elements are runs of the array, so that a walk costs O(log n) plus
 * its results; at worst, for layouts that no writer makes, it tests every
 * group. The only state is a position: no allocation, no recursion. */
#define FAN  16u
#define BITS 4u

/* The last dimension, at least m, in which c is not at the edge of the box. */
static unsigned int cut(const uint64_t *c, const uint64_t *size, bool high,
    unsigned int m, unsigned int ndim)
{
	unsigned int k = ndim - 1;

	while (k > m && c[k] == (high ? size[k] - 1 : 0))
		k--;
	return k;
}

static void add_slab(struct ofs_region *r, const uint64_t *prefix,
    unsigned int dim, uint64_t lo, uint64_t hi)
{
	if (lo < hi)
		r->slab[r->n++] = (struct ofs_slab){ prefix, dim, lo, hi };
}

/* Split the range into slabs, with coordinates relative to the corner of the
 * box: from first up to dimension m, the first one in which first and last
 * differ; across m; and down to last. */
static void decompose(struct ofs_region *r, const uint64_t *size)
{
	const uint64_t *a = r->first, *b = r->last;
	unsigned int m = 0, from, to;

	while (m < r->ndim - 1 && a[m] == b[m])
		m++;
	from = cut(a, size, false, m, r->ndim);
	to = cut(b, size, true, m, r->ndim);
	for (unsigned int k = from; k > m; k--)
		add_slab(r, a, k, a[k] + (k < from), size[k]);
	add_slab(r, a, m, a[m] + (from > m), b[m] + (to == m));
	for (unsigned int k = m + 1; k <= to; k++)
		add_slab(r, b, k, 0, b[k] + (k == to));
}

static void coordinates(const struct ofs_region *r, uint64_t element,
    uint64_t *c)
{
	for (unsigned int k = 0; k < r->ndim; k++) {
		c[k] = element / r->pitch[k];
		element %= r->pitch[k];
	}
}

void ofs_region_init(struct ofs_region *r, unsigned int ndim,
    const uint64_t *lo, const uint64_t *size, uint64_t first, uint64_t count)
{
	uint64_t pitch = 1;

	r->ndim = ndim;
	r->n = 0;
	if (ndim == 0) {
		r->slab[r->n++] = (struct ofs_slab){ NULL, 0, 0, 1 };
		return;
	}
	for (unsigned int k = ndim; k-- > 0;) {
		r->lo[k] = lo[k];
		r->hi[k] = lo[k] + size[k];
		r->pitch[k] = pitch;
		pitch *= size[k];
	}
	coordinates(r, first, r->first);
	coordinates(r, first + count - 1, r->last);
	decompose(r, size);
	for (unsigned int k = 0; k < ndim; k++) {
		r->first[k] += lo[k];
		r->last[k] += lo[k];
	}
	for (unsigned int i = 0; i < r->n; i++) {
		r->slab[i].lo += lo[r->slab[i].dim];
		r->slab[i].hi += lo[r->slab[i].dim];
	}
}

static bool slab_meets(const struct ofs_region *r, const struct ofs_slab *s,
    const uint64_t *lo, const uint64_t *hi)
{
	for (unsigned int k = 0; k < r->ndim; k++)
		if (lo[k] >= ofs_slab_hi(r, s, k) ||
		    hi[k] <= ofs_slab_lo(r, s, k))
			return false;
	return true;
}

static bool region_meets(const struct ofs_region *r, const uint64_t *lo,
    const uint64_t *hi)
{
	for (unsigned int i = 0; i < r->n; i++)
		if (slab_meets(r, &r->slab[i], lo, hi))
			return true;
	return false;
}

void ofs_shard_bounds(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint32_t s, uint64_t *lo, uint64_t *hi)
{
	ofs_shard_box(cat, t, &cat->shards[s], lo, hi);
	for (unsigned int k = 0; k < t->grid_ndim; k++)
		hi[k] += lo[k];
}

static bool shard_meets(const struct ofs_walk *w, uint32_t s)
{
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS];

	ofs_shard_bounds(w->cat, w->t, s, lo, hi);
	return region_meets(w->region, lo, hi);
}

static bool group_meets(const struct ofs_walk *w)
{
	unsigned int d = w->t->grid_ndim;
	const uint64_t *b = w->cat->bounds + w->base[w->level] +
	    (uint64_t)(w->at >> (BITS * w->level)) * 2 * d;

	return region_meets(w->region, b, b + d);
}

/* The number of groups of a level over n shards. */
static uint32_t groups(uint32_t n, unsigned int level)
{
	uint64_t size = (uint64_t)1 << (BITS * level);

	return (uint32_t)((n + size - 1) / size);
}

void ofs_walk_init(struct ofs_walk *w, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_region *region)
{
	uint32_t base = t->index;

	*w = (struct ofs_walk){ .cat = cat, .t = t, .region = region };
	if (t->index == OFS_NONE)
		return;
	while (groups(t->nshards, w->top) > FAN) {
		w->top++;
		w->base[w->top] = base;
		base += groups(t->nshards, w->top) * 2 * t->grid_ndim;
	}
	w->level = w->top;
}

/* Skip one group of the current level, then rise to the largest group that
 * begins there. */
static void advance(struct ofs_walk *w)
{
	uint64_t at = w->at + ((uint64_t)1 << (BITS * w->level));

	w->at = at < w->t->nshards ? (uint32_t)at : w->t->nshards;
	while (w->level < w->top &&
	    w->at % ((uint64_t)1 << (BITS * (w->level + 1))) == 0)
		w->level++;
}

uint32_t ofs_walk_next(struct ofs_walk *w)
{
	while (w->at < w->t->nshards &&
	    (w->budget == 0 || w->steps < w->budget)) {
		w->steps++;
		if (w->level > 0 && group_meets(w)) {
			w->level--;
		} else if (w->level == 0 &&
		    shard_meets(w, w->t->shard + w->at)) {
			uint32_t found = w->t->shard + w->at;

			advance(w);
			return found;
		} else {
			advance(w);
		}
	}
	return OFS_NONE;
}

/* Extend bound, lo then hi, to include the box lo .. hi. */
static void stretch(uint64_t *bound, const uint64_t *lo, const uint64_t *hi,
    unsigned int d)
{
	for (unsigned int k = 0; k < d; k++) {
		if (lo[k] < bound[k])
			bound[k] = lo[k];
		if (hi[k] > bound[d + k])
			bound[d + k] = hi[k];
	}
}

static void nothing(uint64_t *bound, unsigned int d)
{
	for (unsigned int k = 0; k < d; k++) {
		bound[k] = UINT64_MAX;
		bound[d + k] = 0;
	}
}

/* Append the level above n boxes: groups whose bounds begin at below, or the
 * shards if that is OFS_NONE. */
static int add_level(struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint32_t below, uint32_t n, struct optimfs_error *err)
{
	uint64_t bound[2 * OFS_MAX_DIMS], box[2 * OFS_MAX_DIMS];
	unsigned int d = t->grid_ndim;

	nothing(bound, d);
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t *b = box;

		if (below == OFS_NONE)
			ofs_shard_bounds(cat, t, t->shard + i, box, box + d);
		else
			b = cat->bounds + below + (uint64_t)i * 2 * d;
		stretch(bound, b, b + d, d);
		if ((i + 1) % FAN != 0 && i + 1 < n)
			continue;
		if (ofs_catalog_append(cat, OFS_BOUNDS, bound, 2 * d, err) ==
		    OFS_NONE)
			return -1;
		nothing(bound, d);
	}
	return 0;
}

int ofs_shards_index(struct ofs_catalog *cat, struct ofs_tensor *t,
    struct optimfs_error *err)
{
	uint32_t index = cat->nbounds, below = OFS_NONE;

	t->index = OFS_NONE;
	if (t->grid_ndim == 0)
		return 0;
	for (uint32_t n = t->nshards; n > FAN; n = (n + FAN - 1) / FAN) {
		uint32_t level = cat->nbounds;

		if (add_level(cat, t, below, n, err) == -1)
			return -1;
		below = level;
	}
	if (below != OFS_NONE)
		t->index = index;
	return 0;
}
