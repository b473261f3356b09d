/* window.c - the elements of a shard that are stored in a window */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/window.h"

/* The place of an element is a sum with one term for each dimension. While the
 * ranges of the other indexes are known, the window limits each index from both
 * sides. Of the dimensions, the one with the largest stride is limited first:
 * once that leaves one index, the next dimension is limited as tightly. */

/* The indexes of a dimension that are left, relative to the shard. */
struct range {
	uint64_t first, last;
};

/* Where elements begin, without the term of dimension skip. No overflow: the
 * elements are inside the object. */
static void reach(const struct ofs_stored_box *s, const struct range *r,
    unsigned skip, int64_t *lo, int64_t *hi)
{
	*lo = *hi = (int64_t)s->place->base;
	for (unsigned d = 0; d < s->ndim; d++) {
		int64_t stride = s->place->stride[d];
		int64_t a = (int64_t)r[d].first * stride;
		int64_t b = (int64_t)r[d].last * stride;

		if (d == skip)
			continue;
		*lo += a < b ? a : b;
		*hi += a < b ? b : a;
	}
}

static void all_of(const struct ofs_stored_box *s, struct range *r)
{
	for (unsigned d = 0; d < s->ndim; d++)
		r[d] = (struct range){ 0, s->box[s->ndim + d] - 1 };
}

void ofs_stored_hull(const struct ofs_stored_box *s, uint64_t *off,
    uint64_t *end)
{
	struct range r[OFS_MAX_DIMS];
	int64_t lo, hi;

	all_of(s, r);
	reach(s, r, s->ndim, &lo, &hi);
	*off = (uint64_t)lo;
	*end = (uint64_t)hi + s->item;
}

bool ofs_stored_dense(const struct ofs_stored_box *s)
{
	uint64_t pitch = s->item;

	for (unsigned d = s->ndim; d-- > 0;) {
		uint64_t n = s->box[s->ndim + d];

		if (n > 1 && s->place->stride[d] != (int64_t)pitch)
			return false;
		pitch *= n;
	}
	return true;
}

/* Limits the indexes of one dimension; false: none is left. */
static bool limit(const struct ofs_stored_box *s, struct range *r, unsigned d,
    int64_t off, int64_t end)
{
	int64_t stride = s->place->stride[d], lo, hi, last;

	reach(s, r, d, &lo, &hi);
	hi += (int64_t)s->item;
	if (stride <= 0)
		return true;
	if (end <= lo)
		return false;
	if (off >= hi && (uint64_t)((off - hi) / stride + 1) > r[d].first)
		r[d].first = (uint64_t)((off - hi) / stride + 1);
	last = (end - lo - 1) / stride;
	if ((uint64_t)last < r[d].last)
		r[d].last = (uint64_t)last;
	return r[d].first <= r[d].last;
}

/* The dimension with the largest stride of those not in done. */
static unsigned widest(const struct ofs_stored_box *s, uint64_t done)
{
	unsigned best = s->ndim;

	for (unsigned d = 0; d < s->ndim; d++)
		if ((done >> d & 1) == 0 &&
		    (best == s->ndim ||
			s->place->stride[d] > s->place->stride[best]))
			best = d;
	return best;
}

bool ofs_plan_window(const struct ofs_stored_box *s, uint64_t off, uint64_t len,
    uint64_t *part)
{
	struct range r[OFS_MAX_DIMS];
	uint64_t done = 0;
	int64_t lo, hi;

	all_of(s, r);
	for (unsigned i = 0; i < s->ndim; i++) {
		unsigned d = widest(s, done);

		done |= (uint64_t)1 << d;
		if (!limit(s, r, d, (int64_t)off, (int64_t)(off + len)))
			return false;
	}
	reach(s, r, s->ndim, &lo, &hi);
	if (hi + (int64_t)s->item <= (int64_t)off || lo >= (int64_t)(off + len))
		return false;
	for (unsigned d = 0; d < s->ndim; d++) {
		part[d] = s->box[d] + r[d].first;
		part[s->ndim + d] = r[d].last - r[d].first + 1;
	}
	return true;
}
