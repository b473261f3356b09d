/* fill.h - state that begins as zeros, where a user asks for them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FILL_H
#define OFS_FORMAT_FILL_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"

/* Is state of this name zeros while nothing has been learned: the moments of
 * Adam, and momentum? */
bool ofs_starts_at_zero(const char *name);

/* With fill=zero: of such state of a parameter, elements that no shard has are
 * zeros (OFS_TENSOR_ZERO). cat has its tree paths. EINVAL:
 * another value of fill=. */
int ofs_fill(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);

#endif
