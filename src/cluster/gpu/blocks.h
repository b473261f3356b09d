/* blocks.h - which block of GPU memory holds what */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_BLOCKS_H
#define OFS_CLUSTER_GPU_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Blocks, pinned while in use; then kept for the next who wants the same bytes,
 * the one that was used longest ago making room. Any thread may call. */
struct ofs_blocks;

/* A block of a file. */
struct ofs_block_key {
	uint32_t manifest, file;
	uint64_t index;
};

struct ofs_blocks *ofs_blocks_new(uint32_t n, struct optimfs_error *err);
void ofs_blocks_free(struct ofs_blocks *b);

#define OFS_NO_BLOCK UINT32_MAX
/* Pin a block: the one of key, when hit comes back true; otherwise one to fill.
 * key NULL: one that nobody else will see. OFS_NO_BLOCK: all are pinned. */
uint32_t ofs_blocks_get(struct ofs_blocks *b, const struct ofs_block_key *key,
    bool *hit);
/* Unpin it. good: it has its bytes now. */
void ofs_blocks_put(struct ofs_blocks *b, uint32_t i, bool good);

struct ofs_blocks_counts {
	uint64_t hits, misses;
	uint32_t kept;
};
struct ofs_blocks_counts ofs_blocks_count(struct ofs_blocks *b);

#endif
