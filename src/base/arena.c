/* arena.c - blocks of growing size, handed out by a moving pointer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define FIRST_BLOCK   4096u
#define LARGEST_BLOCK OFS_HUGE_PAGE /* with its header */

struct ofs_arena_block {
	struct ofs_arena_block *next;
	size_t size, used; /* bytes of data */
	_Alignas(16) unsigned char data[];
};

void ofs_arena_fini(struct ofs_arena *a)
{
	struct ofs_arena_block *b, *next;

	for (b = a->head; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	*a = (struct ofs_arena){ 0 };
}

static struct ofs_arena_block *add_block(struct ofs_arena *a, size_t n)
{
	struct ofs_arena_block *b;
	size_t size = a->head == NULL ? FIRST_BLOCK : a->head->size * 2;

	if (size > LARGEST_BLOCK - sizeof(*b))
		size = LARGEST_BLOCK - sizeof(*b);
	if (size < n)
		size = n;
	b = ofs_alloc_huge(sizeof(*b) + size);
	if (b == NULL)
		return NULL;
	b->size = size;
	b->used = 0;
	b->next = a->head;
	a->head = b;
	return b;
}

/* n bytes, aligned to align, which is at most 16. */
static void *alloc(struct ofs_arena *a, size_t n, size_t align)
{
	struct ofs_arena_block *b = a->head;
	size_t pad = b == NULL ? 0 : -b->used & (align - 1);
	void *at;

	if (n > SIZE_MAX / 2)
		return NULL;
	if (b == NULL || b->size - b->used < pad ||
	    b->size - b->used - pad < n) {
		b = NULL;
		pad = 0;
	}
	if (b == NULL)
		b = add_block(a, n);
	if (b == NULL)
		return NULL;
	at = b->data + b->used + pad;
	b->used += n + pad;
	return at;
}

void *ofs_arena_alloc(struct ofs_arena *a, size_t n)
{
	return alloc(a, n, 8);
}

static char *put(char *at, const char *s, size_t n)
{
	if (n > 0)
		memcpy(at, s, n);
	at[n] = '\0';
	return at;
}

char *ofs_arena_strndup(struct ofs_arena *a, const char *s, size_t n)
{
	char *copy = n == SIZE_MAX ? NULL : alloc(a, n + 1, 1);

	return copy == NULL ? NULL : put(copy, s, n);
}

char *ofs_arena_counted(struct ofs_arena *a, struct ofs_str s)
{
	char *copy = alloc(a, sizeof(s.len) + s.len + (size_t)1, 1);

	if (copy == NULL)
		return NULL;
	memcpy(copy, &s.len, sizeof(s.len));
	return put(copy + sizeof(s.len), s.p, s.len);
}
