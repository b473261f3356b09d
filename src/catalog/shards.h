/* shards.h - which shards of a tensor hold elements of a region */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_SHARDS_H
#define OFS_CATALOG_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A box cut out of a larger one by consecutive elements: coordinates before
 * dim are those of prefix, dim runs from lo to hi, those after it are whole. */
struct ofs_slab {
	const uint64_t *prefix;
	unsigned int dim;
	uint64_t lo, hi;
};

/* A range of the elements of a box, in C order, as at most 2 * ndim - 1
 * slabs in that order. Coordinates are the grid's. Points into itself. */
struct ofs_region {
	unsigned int ndim, n;
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS]; /* of the box */
	uint64_t pitch[OFS_MAX_DIMS]; /* elements of it from index to index */
	uint64_t first[OFS_MAX_DIMS], last[OFS_MAX_DIMS];
	struct ofs_slab slab[2 * OFS_MAX_DIMS];
};

/* Elements [first, first + count), count > 0, of the box lo .. lo + size,
 * which holds them. */
void ofs_region_init(struct ofs_region *r, unsigned int ndim,
    const uint64_t *lo, const uint64_t *size, uint64_t first, uint64_t count);
/* Where coordinate dim of slab begins and ends. */
static inline uint64_t ofs_slab_lo(const struct ofs_region *r,
    const struct ofs_slab *s, unsigned int dim)
{
	if (dim < s->dim)
		return s->prefix[dim];
	return dim == s->dim ? s->lo : r->lo[dim];
}
static inline uint64_t ofs_slab_hi(const struct ofs_region *r,
    const struct ofs_slab *s, unsigned int dim)
{
	if (dim < s->dim)
		return s->prefix[dim] + 1;
	return dim == s->dim ? s->hi : r->hi[dim];
}

/* The shards of t that a region touches, one after the other in the order of
 * cat->shards. t has no error, except where building says otherwise. */
#define OFS_WALK_LEVELS 8
struct ofs_walk {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	const struct ofs_region *region;
	uint32_t at; /* of t's shards */
	unsigned int level, top;
	uint32_t base[OFS_WALK_LEVELS]; /* of each level's bounds */
	uint64_t steps;                 /* tests made */
	uint64_t budget; /* of steps, after which the walk ends; 0: none */
};
void ofs_walk_init(struct ofs_walk *w, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_region *region);
/* Its index in cat->shards; OFS_NONE after the last. */
uint32_t ofs_walk_next(struct ofs_walk *w);

/* Give t, whose shards are sorted, its index if it has so many shards that
 * one pays. While the catalog is being built. */
int ofs_shards_index(struct ofs_catalog *cat, struct ofs_tensor *t,
    struct optimfs_error *err);

#endif
