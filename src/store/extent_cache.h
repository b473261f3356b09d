/* extent_cache.h - the bytes of a decoded extent, in memory or in a file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_EXTENT_CACHE_H
#define OFS_STORE_EXTENT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/memory.h"
#include "store/gather.h"

#define OFS_BLOCK OFS_HUGE_PAGE

/* Bytes that are appended once and then read. In memory they are blocks of
 * OFS_BLOCK bytes (the last one may be shorter); spilled, they are an unlinked
 * file. Zero-initialise, with fd -1. */
struct ofs_store {
	uint8_t **block;
	size_t nblocks, cap;
	uint64_t len;
	int fd; /* -1: in memory */
};

void ofs_store_fini(struct ofs_store *s);
/* Append n bytes of *block, which is malloc'ed. In memory s takes ownership and
 * sets *block to NULL. A block of fewer than OFS_BLOCK bytes must be the last.
 * ENOMEM, ENOSPC. */
int ofs_store_append(struct ofs_store *s, uint8_t **block, size_t n,
    struct optimfs_error *err);
/* Move the content to a temporary file; later blocks are appended there. */
int ofs_store_spill(struct ofs_store *s, struct optimfs_error *err);
/* The number of bytes in memory. */
uint64_t ofs_store_memory(const struct ofs_store *s);
/* Valid until s is changed. */
struct ofs_source ofs_store_source(struct ofs_store *s);

#endif
