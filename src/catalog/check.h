/* check.h - the checks that finish a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_CHECK_H
#define OFS_CATALOG_CHECK_H

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* The part of ofs_catalog_finish that checks tensors and items. Fails with
 * ENOMEM only. */
int ofs_catalog_check(struct ofs_catalog *cat, struct optimfs_error *err);

#endif
