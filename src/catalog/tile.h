/* tile.h - the check that a tensor's shards tile it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_TILE_H
#define OFS_CATALOG_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"

/* Budget of all ofs_tile_overlap calls for one catalog, in comparisons of two
 * boxes: some seconds. */
#define OFS_TILE_WORK ((uint64_t)1 << 29)

/* Do the boxes, which are all inside t, cover each of its numel elements
 * exactly once? Takes linear time. *held gets the sum of their volumes,
 * UINT64_MAX when it overflows. */
bool ofs_tile_exact(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t numel, uint64_t *held);

/* When they do not: do two boxes overlap? pair gets their indexes in
 * cat->shards. t must have its index. *work is the rest of the budget and is
 * reduced; one tensor may use a part of it in proportion to its shards. */
enum ofs_tile { OFS_TILE_DISJOINT, OFS_TILE_OVERLAP, OFS_TILE_UNKNOWN };
enum ofs_tile ofs_tile_overlap(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint64_t *work, uint32_t pair[2]);

/* Print the box of s, a shard of t, as "[0:4, 8:16)", truncated to size,
 * NUL-terminated. */
void ofs_tile_print(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, char *text, size_t size);

#endif
