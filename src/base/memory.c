/* memory.c - memory, growing arrays, and the out-of-memory error */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/memory.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cgroup.h"

#define FIRST     8 /* capacity of a new array */
#define LIMIT_MIN (UINT64_C(16) << 20)

int ofs_no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "OFS443 out of memory");
}

void *ofs_alloc(size_t n, size_t size, struct optimfs_error *err)
{
	void *p = calloc(n, size);

	if (p == NULL)
		ofs_no_memory(err);
	return p;
}

/* Asks the kernel for huge pages below the n bytes at p, if n is at least one such
 * page. Bytes that have been touched already stay where they are. p may be NULL.
 * Returns p. */
static void *use_huge(void *p, size_t n)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t before = (uintptr_t)p & (page - 1);

	/* all of malloc's mapping: of two kinds it could not grow in place */
	if (p != NULL && n >= OFS_HUGE_PAGE)
		(void)madvise((char *)p - before,
		    (before + n + page - 1) & -page, MADV_HUGEPAGE);
	return p;
}

char *ofs_buf_text(struct ofs_buf *b, struct optimfs_error *err)
{
	ofs_buf_putc(b, '\0');
	if (!b->bad)
		return (char *)b->data;
	ofs_buf_fini(b);
	ofs_no_memory(err);
	return NULL;
}

void *ofs_alloc_huge(size_t n)
{
	void *p;

	if (n < OFS_HUGE_PAGE)
		return malloc(n);
	/* aligned_alloc takes only multiples of the alignment */
	if (posix_memalign(&p, OFS_HUGE_PAGE, n) != 0)
		return NULL;
	return use_huge(p, n);
}

void *ofs_realloc_huge(void *p, size_t old, size_t n)
{
	void *new;

	if (n < OFS_HUGE_PAGE || old >= OFS_HUGE_PAGE)
		return use_huge(realloc(p, n), n);
	new = ofs_alloc_huge(n);
	if (new == NULL)
		return NULL;
	if (old > 0)
		memcpy(new, p, old);
	free(p);
	return new;
}

/* array points to a pointer of any type, so the pointer is copied rather than
 * cast. */
static int reserve(void *array, size_t item, uint64_t n, size_t *cap,
    uint64_t max, struct optimfs_error *err)
{
	uint64_t want = *cap + *cap / 2;
	void *v;

	if (n <= *cap)
		return 0;
	if (want < n)
		want = n;
	if (want < FIRST)
		want = FIRST;
	if (want > max)
		want = max;
	memcpy(&v, array, sizeof(v));
	v = n > want || want > PTRDIFF_MAX / item
	    ? NULL
	    : ofs_realloc_huge(v, *cap * item, want * item);
	if (v == NULL)
		return ofs_no_memory(err);
	memcpy(array, &v, sizeof(v));
	*cap = want;
	return 0;
}

int ofs_reserve_size(void *array, size_t item, uint64_t n, size_t *cap,
    struct optimfs_error *err)
{
	return reserve(array, item, n, cap, SIZE_MAX, err);
}

int ofs_reserve_u32(void *array, size_t item, uint64_t n, uint32_t *cap,
    struct optimfs_error *err)
{
	size_t wide = *cap;
	int ret = reserve(array, item, n, &wide, UINT32_MAX, err);

	*cap = (uint32_t)wide;
	return ret;
}

static uint64_t memory_limit(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t all = pages <= 0 || page <= 0
	    ? UINT64_C(2) << 30
	    : (uint64_t)pages * (uint64_t)page;
	uint64_t limit = ofs_cgroup_memory("");

	/* a group without memory could not run this */
	if (limit < LIMIT_MIN)
		limit = LIMIT_MIN;
	return limit < all ? limit : all;
}

uint64_t ofs_memory_limit(void)
{
	static _Atomic uint64_t known;
	uint64_t limit = atomic_load_explicit(&known, memory_order_relaxed);

	if (limit == 0) {
		limit = memory_limit();
		atomic_store_explicit(&known, limit, memory_order_relaxed);
	}
	return limit;
}

uint64_t ofs_default_cache(void)
{
	const uint64_t max = (uint64_t)4 << 30;
	uint64_t part = ofs_memory_limit() / 8;

	return part < max ? part : max;
}

void ofs_give_back(void)
{
	/* a sanitizer has an allocator of its own, and glibc's is not set up */
#ifndef SANITIZED
	malloc_trim(0);
#endif
}
