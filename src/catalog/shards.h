/* shards.h - the shards of a tensor that have elements of a region */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_SHARDS_H
#define OFS_CATALOG_SHARDS_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* How the elements of a shard lie in its storage; NULL: in C order from the
 * start. The storage of a derived one is what is computed. */
static inline const struct ofs_view *ofs_shard_view(const struct ofs_catalog
							*cat,
    const struct ofs_shard *s)
{
	const struct ofs_derived_part *part;

	if (s->view == OFS_NONE)
		return NULL;
	if (s->at.encoding != OFS_DERIVED)
		return &cat->views[s->view];
	part = cat->derived[s->view].part;
	return part == NULL ? NULL : &part->view;
}

/* Are elements of it computed? Then they have no place where others could be
 * written. */
static inline bool ofs_tensor_is_derived(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	for (uint32_t i = 0; i < t->nshards; i++)
		if (cat->shards[t->shard + i].at.encoding == OFS_DERIVED)
			return true;
	return false;
}

/* Are elements of it in no shard, and not read as zeros? */
static inline bool ofs_tensor_has_holes(const struct ofs_tensor *t)
{
	return (t->flags & (OFS_TENSOR_HOLES | OFS_TENSOR_ZERO)) ==
	    OFS_TENSOR_HOLES;
}

/* A box of consecutive elements within a larger box: coordinates before dim are
 * those of prefix, dim goes from lo to hi, later dimensions are whole. */
struct ofs_slab {
	const uint64_t *prefix;
	unsigned int dim;
	uint64_t lo, hi;
};

/* A range of the elements of a box, in C order, as at most 2 * ndim - 1 slabs
 * in that order. Coordinates are those of the grid. Contains pointers to
 * itself. */
struct ofs_region {
	unsigned int ndim, n;
	uint64_t lo[OFS_MAX_DIMS], hi[OFS_MAX_DIMS]; /* the box */
	uint64_t pitch[OFS_MAX_DIMS]; /* in elements of the box */
	uint64_t first[OFS_MAX_DIMS], last[OFS_MAX_DIMS];
	struct ofs_slab slab[2 * OFS_MAX_DIMS];
};

/* r = elements [first, first + count) of the box lo .. lo + size; count > 0. */
void ofs_region_init(struct ofs_region *r, unsigned int ndim,
    const uint64_t *lo, const uint64_t *size, uint64_t first, uint64_t count);
/* The bounds of coordinate dim in a slab. */
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

/* The box of cat->shards[s], a shard of t: [lo, hi) in each dimension. */
void ofs_shard_bounds(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    uint32_t s, uint64_t *lo, uint64_t *hi);

/* An iterator over the shards of t that intersect a region, in the order of
 * cat->shards. t must have no error, except while building. */
#define OFS_WALK_LEVELS 8
struct ofs_walk {
	const struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	const struct ofs_region *region;
	uint32_t at; /* index in the shards of t */
	unsigned int level, top;
	uint32_t base[OFS_WALK_LEVELS]; /* start of each level in bounds */
	uint64_t steps;                 /* tests so far */
	uint64_t budget; /* steps after which the walk ends; 0: no limit */
};
void ofs_walk_init(struct ofs_walk *w, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_region *region);
/* The next index in cat->shards; OFS_NONE after the last. */
uint32_t ofs_walk_next(struct ofs_walk *w);

/* While building: create the index of t, whose shards are sorted, if it has
 * enough shards. */
int ofs_shards_index(struct ofs_catalog *cat, struct ofs_tensor *t,
    struct optimfs_error *err);

#endif
