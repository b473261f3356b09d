/* derive.h - tensors of a catalog that are computed from others */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_H
#define OFS_DERIVE_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A kind of derivation is a struct ofs_derived_ops (catalog/catalog.h), in a
 * file of this directory with a function that makes tensors of that kind. That
 * is all: what reads a tensor finds the derivation at its shard. */

/* Makes tensor i of cat, which is being built, one derived shard: all of it is
 * computed by d. Its own shards are no longer used, but the first of them, if
 * there is one, tells from which file some of it comes. */
int ofs_derive_tensor(struct ofs_catalog *cat, uint32_t i,
    const struct ofs_derived *d, struct optimfs_error *err);

#endif
