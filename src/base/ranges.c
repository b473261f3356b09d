/* ranges.c - a set of byte offsets, as disjoint ranges */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"

void ofs_ranges_fini(struct ofs_ranges *r)
{
	free(r->v);
	*r = (struct ofs_ranges){ 0 };
}

/* Replace v[lo .. hi) by the n ranges of with; there is room. */
static void replace(struct ofs_ranges *r, size_t lo, size_t hi,
    const struct ofs_range *with, size_t n)
{
	memmove(r->v + lo + n, r->v + hi, (r->n - hi) * sizeof(*r->v));
	if (n > 0)
		memcpy(r->v + lo, with, n * sizeof(*with));
	r->n = r->n - (hi - lo) + n;
}

static int compare_end(const void *key, const void *item)
{
	const struct ofs_range *r = item;

	return r->end <= *(const uint64_t *)key ? 1 : -1;
}

size_t ofs_ranges_find(const struct ofs_ranges *r, uint64_t off)
{
	/* most writes append */
	if (r->n > 0 && r->v[r->n - 1].off <= off)
		return r->v[r->n - 1].end > off ? r->n - 1 : r->n;
	return ofs_lower_bound(&off, r->v, r->n, sizeof(*r->v), compare_end);
}

int ofs_ranges_add(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err)
{
	struct ofs_range all = { off, end };
	size_t lo, hi;

	if (off >= end)
		return 0;
	if (ofs_grow(r->v, r->n, r->cap, err) == -1)
		return -1;
	/* join adjacent ranges, too */
	lo = ofs_ranges_find(r, off == 0 ? 0 : off - 1);
	for (hi = lo; hi < r->n && r->v[hi].off <= end; hi++) {
		if (r->v[hi].off < all.off)
			all.off = r->v[hi].off;
		if (r->v[hi].end > all.end)
			all.end = r->v[hi].end;
	}
	replace(r, lo, hi, &all, 1);
	return 0;
}

int ofs_ranges_remove(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err)
{
	struct ofs_range left[2];
	size_t lo, hi, n = 0;

	if (off >= end)
		return 0;
	if (ofs_grow(r->v, r->n, r->cap, err) == -1)
		return -1;
	lo = ofs_ranges_find(r, off);
	for (hi = lo; hi < r->n && r->v[hi].off < end; hi++) {
		if (r->v[hi].off < off)
			left[n++] = (struct ofs_range){ r->v[hi].off, off };
		if (r->v[hi].end > end)
			left[n++] = (struct ofs_range){ end, r->v[hi].end };
	}
	replace(r, lo, hi, left, n);
	return 0;
}

void ofs_ranges_cut(struct ofs_ranges *r, uint64_t off)
{
	size_t i = ofs_ranges_find(r, off);

	if (i < r->n && r->v[i].off < off) {
		r->v[i].end = off;
		i++;
	}
	r->n = i;
}

int ofs_ranges_copy(struct ofs_ranges *to, const struct ofs_ranges *from,
    struct optimfs_error *err)
{
	struct ofs_ranges copy = { .n = from->n, .cap = from->n };

	if (from->n > 0) {
		copy.v = calloc(from->n, sizeof(*copy.v));
		if (copy.v == NULL)
			return ofs_no_memory(err);
		memcpy(copy.v, from->v, from->n * sizeof(*copy.v));
	}
	ofs_ranges_fini(to);
	*to = copy;
	return 0;
}

bool ofs_ranges_cover(const struct ofs_ranges *r, uint64_t off, uint64_t end)
{
	size_t i;

	if (off >= end)
		return true;
	i = ofs_ranges_find(r, off);
	return i < r->n && r->v[i].off <= off && r->v[i].end >= end;
}

bool ofs_ranges_meet(const struct ofs_ranges *r, uint64_t off, uint64_t end)
{
	size_t i;

	if (off >= end)
		return false;
	i = ofs_ranges_find(r, off);
	return i < r->n && r->v[i].off < end;
}

uint64_t ofs_ranges_total(const struct ofs_ranges *r)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->n; i++)
		sum += r->v[i].end - r->v[i].off;
	return sum;
}
