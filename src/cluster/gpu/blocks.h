/* blocks.h - a cache of file blocks in GPU memory */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_BLOCKS_H
#define OFS_CLUSTER_GPU_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Blocks are pinned while in use, and then kept until the least recently used
 * one is needed for other bytes. Thread-safe. */
struct ofs_blocks;

/* A block of a file. */
struct ofs_block_key {
	uint32_t manifest, file;
	uint64_t index;
};

struct ofs_blocks *ofs_blocks_new(uint32_t n, struct optimfs_error *err);
void ofs_blocks_free(struct ofs_blocks *b);

#define OFS_NO_BLOCK UINT32_MAX
/* Pins a block: that of key if *hit is set to true, otherwise one to fill. key
 * NULL: a private block. OFS_NO_BLOCK: all are pinned. */
uint32_t ofs_blocks_get(struct ofs_blocks *b, const struct ofs_block_key *key,
    bool *hit);
/* Unpins it. good: it contains its bytes. */
void ofs_blocks_put(struct ofs_blocks *b, uint32_t i, bool good);

struct ofs_blocks_counts {
	uint64_t hits, misses;
	uint32_t kept;
};
struct ofs_blocks_counts ofs_blocks_count(struct ofs_blocks *b);

#endif
