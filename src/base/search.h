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

/* Comparisons of structs by up to three members that are numbers, for
 * qsort(3): OFS_COMPARE_BY2(by_place, struct claim, object, off). */
#define OFS_ORDER(x, y) (((x) > (y)) - ((x) < (y)))
#define OFS_COMPARE_BY(name, type, first) \
 OFS_COMPARE_BY3(name, type, first, first, first)
#define OFS_COMPARE_BY2(name, type, first, second) \
 OFS_COMPARE_BY3(name, type, first, second, second)
#define OFS_COMPARE_BY3(name, type, first, second, third) \
 static int name(const void *a, const void *b)            \
 {                                                        \
  const type *x = a, *y = b;                              \
                                                          \
  if (x->first != y->first)                               \
   return OFS_ORDER(x->first, y->first);                  \
  if (x->second != y->second)                             \
   return OFS_ORDER(x->second, y->second);                \
  return OFS_ORDER(x->third, y->third);                   \
 }
/* The comparison of a key, a number, with such a member, for searches. */
#define OFS_COMPARE_KEY(name, number, type, member)                     \
 static int name(const void *key, const void *item)                     \
 {                                                                      \
  return OFS_ORDER(*(const number *)key, ((const type *)item)->member); \
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
	const char *found;

	if (i == n)
		return NULL;
	found = (const char *)items + i * size;
	return compare(key, found) == 0 ? (void *)found : NULL;
}

#endif
