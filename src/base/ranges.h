/* ranges.h - a set of byte offsets, as disjoint ranges */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_RANGES_H
#define OFS_BASE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Bytes [off, end). */
struct ofs_range {
	uint64_t off, end;
};

/* Sorted, not empty, disjoint, and not adjacent. Zero-initialise. Not
 * thread-safe. */
struct ofs_ranges {
	struct ofs_range *v;
	size_t n, cap;
};

void ofs_ranges_fini(struct ofs_ranges *r);
/* Add [off, end), which may overlap the set. On ENOMEM nothing has changed.
 * Appending behind the last range takes constant time; elsewhere the ranges
 * behind are moved. */
int ofs_ranges_add(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err);
/* Remove [off, end). ENOMEM as above, because a hole splits a range. */
int ofs_ranges_remove(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err);
/* Remove all bytes from off on. */
void ofs_ranges_cut(struct ofs_ranges *r, uint64_t off);
int ofs_ranges_copy(struct ofs_ranges *to, const struct ofs_ranges *from,
    struct optimfs_error *err);

/* The index of the first range that ends after off; n when there is no such
 * range. */
size_t ofs_ranges_find(const struct ofs_ranges *r, uint64_t off);
/* Is all of [off, end) in the set; is any of it? An empty range is covered by
 * every set and meets no set. */
bool ofs_ranges_cover(const struct ofs_ranges *r, uint64_t off, uint64_t end);
bool ofs_ranges_meet(const struct ofs_ranges *r, uint64_t off, uint64_t end);
/* The number of bytes in the set. */
uint64_t ofs_ranges_total(const struct ofs_ranges *r);

#endif
