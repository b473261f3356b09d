/* memory.h - memory, growing arrays, and the out-of-memory error */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_MEMORY_H
#define OFS_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Fail with ENOMEM (OFS443); -1. */
int ofs_no_memory(struct optimfs_error *err);
/* As calloc(3); NULL with that error. */
void *ofs_alloc(size_t n, size_t size, struct optimfs_error *err);

struct ofs_buf;
/* Ends the text in b, which is the caller's then. NULL: b is bad, and is freed,
 * with that error. */
char *ofs_buf_text(struct ofs_buf *b, struct optimfs_error *err);

/* Make room for one more item in array v, which has n items and room for cap.
 * Assigns to v and cap; cap is a size_t or a uint32_t. Capacity grows by at
 * least half, so that appending one by one takes linear time. 0, or -1 with
 * ENOMEM; v and cap then stay as they were. */
#define ofs_grow(v, n, cap, err) \
 ((n) < (cap) ? 0 : ofs_reserve(v, (uint64_t)(n) + 1, cap, err))
/* Make room for n items in all. */
#define ofs_reserve(v, n, cap, err)  \
 _Generic((cap), uint32_t            \
	  : ofs_reserve_u32, default \
	  : ofs_reserve_size)(&(v), sizeof(*(v)), n, &(cap), err)

#define OFS_HUGE_PAGE ((size_t)2 << 20)
/* As malloc and realloc, of old bytes, in huge pages; from the size of such a
 * page on the bytes begin at one. */
void *ofs_alloc_huge(size_t n);
void *ofs_realloc_huge(void *p, size_t old, size_t n);
/* Gives what was freed back to the system, after work that needed several times the
 * memory that is left in use. */
void ofs_give_back(void);

/* The bytes of memory that this process may use: those of the machine, or of its
 * control groups (base/cgroup.h). The system is asked once. */
uint64_t ofs_memory_limit(void);
/* The default of the option cache, in bytes: an eighth of that, but at most
 * 4 GiB. */
uint64_t ofs_default_cache(void);

int ofs_reserve_size(void *array, size_t item, uint64_t n, size_t *cap,
    struct optimfs_error *err);
int ofs_reserve_u32(void *array, size_t item, uint64_t n, uint32_t *cap,
    struct optimfs_error *err);

#endif
