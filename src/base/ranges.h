/* ranges.h - a set of bytes, as disjoint ranges */
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

/* Sorted; not empty, disjoint, and never touching each other. Zero-initialise.
 * Nothing here locks. */
struct ofs_ranges {
	struct ofs_range *v;
	size_t n, cap;
};

void ofs_ranges_fini(struct ofs_ranges *r);
/* Add [off, end), which may overlap what is there. ENOMEM; then nothing has
 * changed. Bytes that follow the last range cost nothing, others the moving of
 * the ranges behind them. */
int ofs_ranges_add(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err);
/* Take [off, end) out. ENOMEM, as above: a hole makes two ranges of one. */
int ofs_ranges_remove(struct ofs_ranges *r, uint64_t off, uint64_t end,
    struct optimfs_error *err);
/* Nothing from off on is left. */
void ofs_ranges_cut(struct ofs_ranges *r, uint64_t off);
int ofs_ranges_copy(struct ofs_ranges *to, const struct ofs_ranges *from,
    struct optimfs_error *err);

/* The index of the first range that ends behind off; n when there is none. */
size_t ofs_ranges_find(const struct ofs_ranges *r, uint64_t off);
/* Is all of [off, end) in the set, or any of it? The empty range is in every
 * set, and meets none. */
bool ofs_ranges_cover(const struct ofs_ranges *r, uint64_t off, uint64_t end);
bool ofs_ranges_meet(const struct ofs_ranges *r, uint64_t off, uint64_t end);
/* How many bytes there are. */
uint64_t ofs_ranges_total(const struct ofs_ranges *r);

#endif
