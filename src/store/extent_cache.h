/* extent_cache.h - the bytes of a decoded extent, in memory or in a file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_EXTENT_CACHE_H
#define OFS_STORE_EXTENT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "store/gather.h"

/* A huge page. */
#define OFS_BLOCK ((size_t)2 << 20)

/* Bytes that are appended once and then read. In memory they are blocks of
 * OFS_BLOCK bytes (the last one shorter); spilled, they are a file that has no
 * name. Zero-initialise with fd -1. */
struct ofs_store {
	uint8_t **block;
	size_t nblocks, cap;
	uint64_t len;
	int fd; /* -1: in memory */
};

void ofs_store_fini(struct ofs_store *s);
/* Append n bytes of *block, which is malloc'ed: in memory it is s's then, and
 * *block is NULL. After fewer than OFS_BLOCK bytes none may follow. ENOMEM,
 * ENOSPC. */
int ofs_store_append(struct ofs_store *s, uint8_t **block, size_t n,
    struct optimfs_error *err);
/* Move what is in memory to a temporary file, where the rest will go. */
int ofs_store_spill(struct ofs_store *s, struct optimfs_error *err);
/* Bytes of memory it holds. */
uint64_t ofs_store_memory(const struct ofs_store *s);
/* Valid while s is not changed. */
struct ofs_source ofs_store_source(struct ofs_store *s);

#endif
