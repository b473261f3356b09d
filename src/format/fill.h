/* fill.h - fill=zero: missing optimizer state as zeros */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FILL_H
#define OFS_FORMAT_FILL_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"

/* Does an optimizer begin with zeros in the state of this name? So it is for
 * the moments of Adam and for momentum. */
bool ofs_starts_at_zero(const char *name);

/* With fill=zero, marks the tensors of such state, so that elements without a shard, or
 * in a lost file, read as zeros (OFS_TENSOR_ZERO). cat must have its tree paths.
 * EINVAL: another value of fill=. */
int ofs_fill(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err);

#endif
