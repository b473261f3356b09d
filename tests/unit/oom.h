/* oom.h - an allocator whose nth call fails */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OOM_H
#define OOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* For test programs that are linked with --wrap for the four functions below.
 * Call number left of the allocator fails, counted from now, in any thread; -1:
 * none. */
static atomic_long left = -1;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

static bool fails(void)
{
	return left > 0 && atomic_fetch_sub(&left, 1) == 1;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

#endif
