/* low_bit.h - which tensors together are one in few bits */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_LOW_BIT_H
#define OFS_DERIVE_LOW_BIT_H

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* Files of inference engines and 8-bit optimizers store a tensor as several:
 * codes, scales, tables. Finds them by their names, types and shapes, and adds
 * for each a derived float32 tensor without an entry: cat->low_bits. The entries
 * have their places in the tree, and the catalog is not finished. The forms are
 * in docs/formats/low_bit.md; what fits none exactly is left as it is. */
int ofs_low_bit_find(struct ofs_catalog *cat, struct optimfs_error *err);

/* A copy of cat, which it borrows, in which the derived tensors have the entries
 * of their codes, and the other parts none. */
struct ofs_catalog *ofs_low_bit_unpacked(const struct ofs_catalog *cat,
    struct optimfs_error *err);

#endif
