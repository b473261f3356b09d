/* catalog_impl.h - shared declarations of the files that build a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_CATALOG_IMPL_H
#define OFS_CATALOG_CATALOG_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/map.h"
#include "catalog/catalog.h"

/* The arrays of struct ofs_catalog, in the same order. */
enum ofs_catalog_array {
	OFS_OBJECTS,
	OFS_SHARDS,
	OFS_REPLICAS,
	OFS_VIEWS,
	OFS_TENSORS,
	OFS_VALUES,
	OFS_ITEMS,
	OFS_ENTRIES,
	OFS_VARIANTS,
	OFS_ALIASES,
	OFS_SCALES,
	OFS_INNER,
	OFS_PICKLED,
	OFS_LOW_BITS,
	OFS_DERIVATIONS,
	OFS_KEPT,
	OFS_NOTES,
	OFS_LEFTS,
	OFS_STRS,
	OFS_PATHS,
	OFS_DIMS,
	OFS_BOUNDS,
	OFS_DOCS,
	OFS_NARRAYS
};

/* The files whose permissions are in an ofs_access. */
struct ofs_passed {
	bool owned;      /* uid and gid are those of a file */
	const char *dir; /* directory of the last one, ndir bytes */
	size_t ndir;
};

struct ofs_catalog_build {
	uint32_t cap[OFS_NARRAYS];
	struct ofs_map strs, paths, dims, notes;
	struct ofs_passed passed;
	struct optimfs_error failure; /* code 0: nothing failed yet */
};

/* Set access to what the directory allows. */
void ofs_access_init(const struct ofs_catalog *cat, struct ofs_access *a);

/* Make room for want items in all; false when memory is exhausted. No array is
 * ever NULL, so an empty one is not a special case. */
bool ofs_catalog_reserve(struct ofs_catalog *cat, enum ofs_catalog_array a,
    uint64_t want);
/* Append n items and return the index of the first; OFS_NONE with ENOMEM or
 * E2BIG, or with what failed before. */
uint32_t ofs_catalog_append(struct ofs_catalog *cat, enum ofs_catalog_array a,
    const void *items, size_t n, struct optimfs_error *err);
/* Append the arrays of base, without its entries, variants and documents; false:
 * err. */
bool ofs_catalog_append_all(struct ofs_catalog *cat,
    const struct ofs_catalog *base, struct optimfs_error *err);
/* Shrink the arrays to their lengths. */
void ofs_catalog_shrink(struct ofs_catalog *cat);
/* Free the arrays. */
void ofs_catalog_drop(struct ofs_catalog *cat);
/* Fail, now and in all that follows, with the error err or with ENOMEM; returns
 * OFS_NONE. */
uint32_t ofs_catalog_stop(struct ofs_catalog *cat,
    const struct optimfs_error *err);
uint32_t ofs_catalog_no_memory(struct ofs_catalog *cat,
    struct optimfs_error *err);

#endif
