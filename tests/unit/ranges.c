/* ranges.c - sets of byte ranges, compared with a bit map */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/ranges.h"

#include <string.h>

#include "random.h"
#include "tap.h"

#define SPACE 300

static uint64_t state = 88172645463325252u;

static unsigned rnd(unsigned n)
{
	return (unsigned)tap_below(&state, n);
}

/* The ranges are sorted, not empty, and have gaps between them. */
static bool is_sound(const struct ofs_ranges *r)
{
	for (size_t i = 0; i < r->n; i++)
		if (r->v[i].off >= r->v[i].end ||
		    (i > 0 && r->v[i - 1].end >= r->v[i].off))
			return false;
	return true;
}

static bool same(const struct ofs_ranges *r, const bool *bit)
{
	uint64_t total = 0;
	size_t i = 0;

	for (unsigned b = 0; b < SPACE; b++) {
		while (i < r->n && r->v[i].end <= b)
			i++;
		if (bit[b] != (i < r->n && r->v[i].off <= b))
			return false;
		if (ofs_ranges_find(r, b) != i)
			return false;
		total += bit[b];
	}
	return ofs_ranges_total(r) == total;
}

static bool queries_agree(const struct ofs_ranges *r, const bool *bit,
    unsigned lo, unsigned hi)
{
	bool all = true, any = false;

	for (unsigned b = lo; b < hi; b++) {
		all &= bit[b];
		any |= bit[b];
	}
	return ofs_ranges_cover(r, lo, hi) == all &&
	    ofs_ranges_meet(r, lo, hi) == any;
}

static bool step(struct ofs_ranges *r, bool *bit)
{
	unsigned lo = rnd(SPACE + 1), hi = lo + rnd(SPACE + 1 - lo);

	if (rnd(4) > 0 && hi > lo + 20)
		hi = lo + rnd(20);
	switch (rnd(8)) {
	case 0:
		if (rnd(10) == 0) {
			ofs_ranges_cut(r, lo);
			memset(bit + lo, 0, SPACE - lo);
		}
		break;
	case 1:
	case 2:
	case 3:
		if (ofs_ranges_remove(r, lo, hi, NULL) == -1)
			return false;
		memset(bit + lo, 0, hi - lo);
		break;
	default:
		if (ofs_ranges_add(r, lo, hi, NULL) == -1)
			return false;
		memset(bit + lo, 1, hi - lo);
	}
	return is_sound(r) && same(r, bit) &&
	    queries_agree(r, bit, rnd(SPACE / 2), SPACE / 2 + rnd(SPACE / 2)) &&
	    queries_agree(r, bit, lo, hi);
}

static void like_bits(void)
{
	int good = 0;

	for (int run = 0; run < 50; run++) {
		struct ofs_ranges r = { 0 }, copy = { 0 };
		bool bit[SPACE] = { false };
		bool fine = true;

		for (int i = 0; i < 400 && fine; i++)
			fine = step(&r, bit);
		fine = fine && ofs_ranges_copy(&copy, &r, NULL) == 0 &&
		    same(&copy, bit);
		good += fine;
		ofs_ranges_fini(&r);
		ofs_ranges_fini(&copy);
	}
	is_int(good, 50, "20000 random changes agree with a bit map");
}

static void edges(void)
{
	struct ofs_ranges r = { 0 };

	ok(ofs_ranges_cover(&r, 5, 5) && !ofs_ranges_meet(&r, 5, 5),
	    "an empty range is covered and does not overlap");
	ofs_ranges_cut(&r, 0);
	is_u64(r.n, 0, "cutting an empty set leaves it empty");
	ofs_ranges_add(&r, 7, 7, NULL);
	is_u64(r.n, 0, "adding an empty range adds nothing");
	for (uint64_t i = 0; i < 100; i++)
		ofs_ranges_add(&r, i * 10, i * 10 + 10, NULL);
	ok(r.n == 1 && r.v[0].end == 1000, "adjacent ranges are merged");
	ofs_ranges_add(&r, UINT64_MAX - 1, UINT64_MAX, NULL);
	ok(r.n == 2 && ofs_ranges_cover(&r, UINT64_MAX - 1, UINT64_MAX),
	    "a range up to the last offset is added");
	ofs_ranges_remove(&r, 0, UINT64_MAX, NULL);
	is_u64(r.n, 0, "removing everything leaves an empty set");
	ofs_ranges_fini(&r);
}

int main(void)
{
	like_bits();
	edges();
	return done_testing();
}
