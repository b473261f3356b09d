/* owners.h - the ranks that hold a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_OWNERS_H
#define OFS_CATALOG_OWNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"

/* The replicas of a shard (an index of cat->shards); *n gets their number. */
const struct ofs_replica *ofs_replicas(const struct ofs_catalog *cat,
    uint32_t shard, uint32_t *n);
/* The copy of a shard that rank has; NULL: it has the shard itself, or
 * nothing. */
const struct ofs_replica *ofs_replica_of(const struct ofs_catalog *cat,
    uint32_t shard, int rank);
/* Does rank have this shard or a replica of it? */
bool ofs_rank_holds(const struct ofs_catalog *cat, uint32_t shard, int rank);
/* The bytes of a shard of t in its file of the tree. */
uint64_t ofs_shard_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, uint32_t shard);
/* The version of rank, where ranks differ on this entry; else NULL. */
const struct ofs_variant *ofs_variant_of(const struct ofs_catalog *cat,
    uint32_t entry, int rank);
/* Append the ranks that hold parts of t, as "0-3,7"; nothing when they are
 * unknown. */
void ofs_owners(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct ofs_buf *out);
/* The sorted distinct ranks of all shards; *ranks is malloc'ed and the
 * caller's. */
int ofs_all_ranks(const struct ofs_catalog *cat, int **ranks, size_t *n,
    struct optimfs_error *err);

#endif
