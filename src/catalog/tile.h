/* tile.h - do the boxes of a tensor's shards tile it? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_TILE_H
#define OFS_CATALOG_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"

/* Budget of all ofs_tile_overlap calls for one catalog, in tests of a box
 * against a box: some seconds. */
#define OFS_TILE_WORK ((uint64_t)1 << 29)

/* Do the boxes, all inside, cover each of the numel elements of t exactly
 * once? Linear in their number. *held gets how many elements they have
 * together, UINT64_MAX when those do not fit. */
bool ofs_tile_exact(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint64_t numel, uint64_t *held);

/* For boxes that do not: do two of them overlap? pair gets their indexes in
 * cat->shards. t has its index. *work is what this may still cost and gets
 * less; a tensor alone may cost a part of it in proportion to its shards. */
enum ofs_tile { OFS_TILE_DISJOINT, OFS_TILE_OVERLAP, OFS_TILE_UNKNOWN };
enum ofs_tile ofs_tile_overlap(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint64_t *work, uint32_t pair[2]);

/* "[0:4, 8:16)" of shard s, cut to fit, NUL-terminated. */
void ofs_tile_print(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint32_t s, char *text, size_t size);

#endif
