/* check.h - what a finished catalog promises, established */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_CHECK_H
#define OFS_CATALOG_CHECK_H

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* The part of ofs_catalog_finish that looks at tensors and items. Fails only
 * for lack of memory. */
int ofs_catalog_check(struct ofs_catalog *cat, struct optimfs_error *err);

/* For it alone: append to cat->replicas and cat->bounds, as the functions of
 * catalog.h do. */
uint32_t ofs_catalog_replica(struct ofs_catalog *cat,
    const struct ofs_replica *r, struct optimfs_error *err);
uint32_t ofs_catalog_bounds(struct ofs_catalog *cat, const uint64_t *v,
    size_t n, struct optimfs_error *err);

#endif
