/* walk.h - paths from a pickled object's mappings and lists */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_WALK_H
#define OFS_FORMAT_TORCH_FILE_WALK_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/torch.h"
#include "catalog/catalog.h"

/* Call leaf for every leaf of a pickled object, with its path, until a call
 * returns non-zero, and return that, else 0. Mappings, and lists with tensors
 * or mappings in them, are descended into; leaves are tensors and all other
 * values. Each path begins with the npref components of prefix. */
typedef int ofs_torch_visit_fn(void *ctx, uint32_t path, uint32_t node,
    struct optimfs_error *err);
int ofs_torch_walk(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t root, const uint32_t *prefix, size_t npref,
    ofs_torch_visit_fn *leaf, void *ctx, struct optimfs_error *err);

/* Add the leaves of a pickled object (root) to cat. Its storages are in the
 * archive at; NULL: there are none, as in bare pickles. doc must be owned by
 * cat. */
int ofs_torch_add(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t root, const struct ofs_torch_archive *at, const uint32_t *prefix,
    size_t npref, struct optimfs_error *err);

#endif
