/* check.h - the checks that finish a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_CHECK_H
#define OFS_CATALOG_CHECK_H

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* The part of ofs_catalog_finish that checks tensors and items. Fails with
 * ENOMEM only. */
int ofs_catalog_check(struct ofs_catalog *cat, struct optimfs_error *err);
/* The same for the tensors from first on, that were added, with their shards in
 * this order and behind all others, to a copy of a finished catalog. */
int ofs_catalog_check_added(struct ofs_catalog *cat, uint32_t first,
    struct optimfs_error *err);

#endif
