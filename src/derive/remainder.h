/* remainder.h - float32 of which a bfloat16 weight is the upper half */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_REMAINDER_H
#define OFS_DERIVE_REMAINDER_H

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* TransformerEngine's optimizer may keep only the lower half of a master weight,
 * as int16, because the upper half is the weight rounded to bfloat16. For each
 * optim/state/X/fp32_remainder with a model/X of its shape, adds the master
 * weight as a derived tensor, optim/state/X/fp32, if there is none. The entries
 * have their places in the tree, and the catalog is not finished. */
int ofs_remainder_find(struct ofs_catalog *cat, struct optimfs_error *err);

#endif
