/* search.h - sorted arrays */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_SEARCH_H
#define OFS_BASE_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compare a key with an item, as for bsearch(3). All functions are inline, so
 * that the compiler inlines the comparison. items may be NULL when n is 0. */
typedef int ofs_search_fn(const void *key, const void *item);

static inline size_t ofs_bisect(const void *key, const void *items, size_t n,
    size_t size, ofs_search_fn *compare, bool behind)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = compare(key, (const char *)items + mid * size);

		if (c > 0 || (behind && c == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Comparisons for qsort(3) and searches, of items that are one value. */
static inline int ofs_compare_int(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static inline int ofs_compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static inline int ofs_compare_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static inline int ofs_compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The index of the first item that is not before key; n when all are before
 * it. */
static inline size_t ofs_lower_bound(const void *key, const void *items,
    size_t n, size_t size, ofs_search_fn *compare)
{
	return ofs_bisect(key, items, n, size, compare, false);
}

/* The index of the first item that is after key; n when there is no such
 * item. */
static inline size_t ofs_upper_bound(const void *key, const void *items,
    size_t n, size_t size, ofs_search_fn *compare)
{
	return ofs_bisect(key, items, n, size, compare, true);
}

/* The first item that equals key, or NULL. */
static inline void *ofs_search(const void *key, const void *items, size_t n,
    size_t size, ofs_search_fn *compare)
{
	size_t i = ofs_lower_bound(key, items, n, size, compare);
	const char *found = (const char *)items + (i < n ? i * size : 0);

	return i < n && compare(key, found) == 0 ? (void *)found : NULL;
}

#endif
