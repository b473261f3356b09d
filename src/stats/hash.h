/* hash.h - the XXH3 of the bytes of a tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_HASH_H
#define OFS_STATS_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A tensor has no hash, 0, if more bytes of it are not stored: they need no
 * reading (analyze/pool.h), but hashes cannot be added up, so that each would have
 * to be hashed. */
#define OFS_STATS_HASH_MAX ((uint64_t)1 << 30)

/* Of bytes that come one part after the other. */
struct ofs_stats_hash;

struct ofs_stats_hash *ofs_stats_hash_new(struct optimfs_error *err);
void ofs_stats_hash_free(struct ofs_stats_hash *h);
/* Appends n bytes, times times: all but the first are not stored. */
void ofs_stats_hash_add(struct ofs_stats_hash *h, const void *p, size_t n,
    uint64_t times);
uint64_t ofs_stats_hash_value(const struct ofs_stats_hash *h);

/* Of bytes that are all there. */
uint64_t ofs_stats_hash_of(const void *p, size_t n);

#endif
