/* owners.h - which ranks hold a tensor, and its shape, as text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_OWNERS_H
#define OFS_CATALOG_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"

/* The replicas of a shard (an index of cat->shards); *n gets how many. */
const struct ofs_replica *ofs_replicas(const struct ofs_catalog *cat,
    uint32_t shard, uint32_t *n);
/* Does rank hold this shard, or a copy of it? */
bool ofs_rank_holds(const struct ofs_catalog *cat, uint32_t shard, int rank);
/* What rank has where the ranks differ at this entry; NULL. */
const struct ofs_variant *ofs_variant_of(const struct ofs_catalog *cat,
    uint32_t entry, int rank);
/* Ranks that hold a part of t, "0-3,7"; "" when nobody knows. */
void ofs_owners(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct ofs_buf *out);
/* The sorted distinct ranks of all shards; malloc'ed. */
int ofs_all_ranks(const struct ofs_catalog *cat, int **ranks, size_t *n,
    struct optimfs_error *err);
/* Shape as "4096,14336". */
void ofs_shape_text(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct ofs_buf *out);

#endif
