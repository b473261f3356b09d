/* chain.c - the choices of ascending numbers, one from each set */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "format/megatron/buckets/buckets.h"

/* The slices of a buffer, from its start to its end, are parameters in the
 * order of their registration, without those that it has not (frozen ones, or
 * of other ranks). Each slice has a set of parameters that it may be.
 *
 * If every slice can have one, the choice that takes the smallest number each
 * time and the one that takes the largest, from the end, are the limits of all
 * choices: where they agree there is no other.
 *
 * Otherwise something is wrong: weights were exchanged, or one set lacks the
 * right parameter. Then the longest chains are compared, as in the search for
 * the longest ascending subsequence: fore is the length of the longest chain
 * that ends with a number of a slice, back that of the longest that begins
 * there. It is on a longest chain if the two add up to that; and on all, if it is
 * the only one in its place. */

/* The most numbers of all sets that the second way considers. */
#define MAX_PAIRS (UINT64_C(1) << 22)

static int above(const void *key, const void *item)
{
	return ofs_compare_u32(key, item);
}

/* The smallest number larger than after; OFS_NONE. */
static uint32_t next_of(const struct ofs_bucket_options *o, uint32_t after)
{
	size_t i = ofs_upper_bound(&after, o->v, o->n, sizeof(*o->v), above);

	return i == o->n ? OFS_NONE : o->v[i];
}

/* The largest number smaller than before; OFS_NONE. */
static uint32_t last_of(const struct ofs_bucket_options *o, uint32_t before)
{
	size_t i = ofs_lower_bound(&before, o->v, o->n, sizeof(*o->v), above);

	return i == 0 ? OFS_NONE : o->v[i - 1];
}

/* Can every slice have a number? Then only[] gets what is certain. */
static bool choose_all(const struct ofs_bucket_options *slice, uint32_t n,
    uint32_t *only)
{
	uint32_t at = OFS_NONE;

	for (uint32_t i = 0; i < n; i++) {
		at = at == OFS_NONE
		    ? (slice[i].n > 0 ? slice[i].v[0] : OFS_NONE)
		    : next_of(&slice[i], at);
		if (at == OFS_NONE)
			return false;
		only[i] = at;
	}
	at = OFS_NONE;
	for (uint32_t i = n; i-- > 0;) {
		at = last_of(&slice[i], at);
		if (only[i] != at)
			only[i] = OFS_NONE;
	}
	return true;
}

/* A number of a slice. */
struct pair {
	uint32_t slice, v;
	uint32_t fore, back;
};

/* Insert v in the ends of the shortest to the longest chain; returns the length
 * of the longest that v ends. */
static uint32_t extend(uint32_t *end, uint32_t *n, uint32_t v)
{
	uint32_t i =
	    (uint32_t)ofs_lower_bound(&v, end, *n, sizeof(*end), above);

	end[i] = v;
	if (i == *n)
		++*n;
	return i + 1;
}

/* The numbers of a slice are taken from the largest on, so that a chain has one
 * of them at most. */
static uint32_t look_forward(struct pair *p, uint32_t n, uint32_t *end)
{
	uint32_t longest = 0, next;

	for (uint32_t i = 0; i < n; i = next) {
		for (next = i + 1; next < n && p[next].slice == p[i].slice;)
			next++;
		for (uint32_t k = next; k-- > i;)
			p[k].fore = extend(end, &longest, p[k].v);
	}
	return longest;
}

/* The same from the end: mirrored numbers ascend. */
static void look_back(struct pair *p, uint32_t n, uint32_t *end)
{
	uint32_t longest = 0, next;

	for (uint32_t i = n; i > 0; i = next) {
		for (next = i - 1;
		     next > 0 && p[next - 1].slice == p[i - 1].slice;)
			next--;
		for (uint32_t k = next; k < i; k++)
			p[k].back = extend(end, &longest, ~p[k].v);
	}
}

/* count[f]: the pairs in place f of a longest chain. */
static void choose_most(struct pair *p, uint32_t n, uint32_t longest,
    uint32_t *count, uint32_t *only)
{
	for (uint32_t i = 0; i <= longest; i++)
		count[i] = 0;
	for (uint32_t i = 0; i < n; i++)
		if (p[i].fore + p[i].back == longest + 1)
			count[p[i].fore]++;
	for (uint32_t i = 0; i < n; i++)
		if (p[i].fore + p[i].back == longest + 1 &&
		    count[p[i].fore] == 1)
			only[p[i].slice] = p[i].v;
}

static uint32_t fill(const struct ofs_bucket_options *slice, uint32_t n,
    struct pair *p)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < slice[i].n; j++)
			p[k++] = (struct pair){ i, slice[i].v[j], 0, 0 };
	return k;
}

int ofs_bucket_chain(const struct ofs_bucket_options *slice, uint32_t n,
    uint32_t *only, bool *whole, struct optimfs_error *err)
{
	uint64_t pairs = 0;
	struct pair *p;
	uint32_t *end, longest;

	*whole = choose_all(slice, n, only);
	if (*whole)
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		only[i] = OFS_NONE;
		pairs += slice[i].n;
	}
	if (pairs > MAX_PAIRS)
		return 0;
	p = calloc(pairs + 1, sizeof(*p));
	end = calloc((size_t)n + 2, sizeof(*end));
	if (p == NULL || end == NULL) {
		free(p);
		free(end);
		return ofs_no_memory(err);
	}
	fill(slice, n, p);
	longest = look_forward(p, (uint32_t)pairs, end);
	look_back(p, (uint32_t)pairs, end);
	choose_most(p, (uint32_t)pairs, longest, end, only);
	free(p);
	free(end);
	return 0;
}
