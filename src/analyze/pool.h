/* pool.h - threads that read files in chunks and join results in order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_POOL_H
#define OFS_ANALYZE_POOL_H

#include "optimfs/analyze.h"

#define OFS_POOL_FILES 4

/* Files with the same number of elements that are read side by side. */
struct ofs_pool_item {
	uint64_t elements;
	uint64_t chunk; /* elements of a chunk, except for the last */
	size_t piece;   /* elements read at once; 0: the whole chunk */
	unsigned nfiles;
	struct {
		struct optimfs *fs;
		uint64_t node;
		size_t size; /* size of an element in bytes */
	} file[OFS_POOL_FILES];
};

/* Elements [first, first + n) of an item; buf[i] has those of file i. */
struct ofs_pool_chunk {
	size_t item;
	uint64_t first;
	size_t n;
	const void *buf[OFS_POOL_FILES];
	/* It stands for so many chunks, one behind the other, of the same
	 * elements, which in each file are all equal. If that is known, they are
	 * not read: work is bounded by what is stored. */
	uint64_t times;
	bool last; /* of the item */
};

/* Threads take chunks in the order of items. work may run in several threads,
 * each with its own data. It gets a chunk piece by piece, each as it was read,
 * so that a small piece is still in the processor's cache, and never more than
 * one of several that are equal. join runs once for each chunk, in order within an
 * item; for different items concurrently. Every item has at least one chunk, even
 * without elements. */
struct ofs_pool_ops {
	size_t mine; /* bytes of a thread's own data, which begin as zeros */
	void (*fini)(void *mine); /* frees what they refer to; NULL: nothing */
	int (*work)(void *ctx, void *mine, const struct ofs_pool_chunk *c,
	    struct optimfs_error *err);
	int (*join)(void *ctx, void *mine, const struct ofs_pool_chunk *c,
	    struct optimfs_error *err);
	/* Called once, instead of the remaining calls, for an item that cannot
	 * be read. */
	void (*failed)(void *ctx, size_t item, const struct optimfs_error *err);
};

/* -1 only if work or join failed, or memory ran out. */
int ofs_pool_run(const struct ofs_pool_item *items, size_t n,
    const struct optimfs_scan *how, const struct ofs_pool_ops *ops, void *ctx,
    struct optimfs_error *err);

#endif
