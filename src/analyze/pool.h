/* pool.h - files read in chunks by threads, their results joined in order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_POOL_H
#define OFS_ANALYZE_POOL_H

#include "optimfs/analyze.h"

#define OFS_POOL_FILES 4

/* Files of equally many elements that are looked at side by side. */
struct ofs_pool_item {
	uint64_t elements, chunk; /* of a chunk, but for the last */
	unsigned nfiles;
	struct {
		struct optimfs *fs;
		uint64_t node;
		size_t size; /* bytes of an element */
	} file[OFS_POOL_FILES];
};

/* Elements [first, first + n) of an item; buf[i] has those of file i. */
struct ofs_pool_chunk {
	size_t item;
	uint64_t first;
	size_t n;
	const void *buf[OFS_POOL_FILES];
	bool last; /* of the item */
};

/* Threads take chunks in the order of items. work may run for several at once,
 * each with the memory of its thread. join runs once a chunk, in their order
 * within an item; for items at the same time. Each item, without elements too,
 * has at least one chunk. */
struct ofs_pool_ops {
	void *(*start)(void *ctx, struct optimfs_error *err);
	void (*stop)(void *mine); /* takes NULL */
	int (*work)(void *ctx, void *mine, const struct ofs_pool_chunk *c,
	    struct optimfs_error *err);
	int (*join)(void *ctx, void *mine, const struct ofs_pool_chunk *c,
	    struct optimfs_error *err);
	/* Instead of what is left of an item, once: it cannot be read. */
	void (*failed)(void *ctx, size_t item, const struct optimfs_error *err);
};

/* -1 only where work, join or start failed, or for lack of memory. */
int ofs_pool_run(const struct ofs_pool_item *items, size_t n,
    const struct optimfs_scan *how, const struct ofs_pool_ops *ops, void *ctx,
    struct optimfs_error *err);

#endif
