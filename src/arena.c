/* arena.c - blocks of growing size, handed out by a moving pointer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "arena.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BLOCK   4096u
#define LARGEST_BLOCK (1u << 20)

struct ofs_arena_block {
	struct ofs_arena_block *next;
	size_t size, used; /* of data */
	_Alignas(16) unsigned char data[];
};

void ofs_arena_init(struct ofs_arena *a, uint64_t limit)
{
	*a = (struct ofs_arena){ .limit = limit };
}

void ofs_arena_fini(struct ofs_arena *a)
{
	struct ofs_arena_block *b, *next;

	for (b = a->head; b != NULL; b = next) {
		next = b->next;
		free(b);
	}
	*a = (struct ofs_arena){ .limit = a->limit };
}

static struct ofs_arena_block *add_block(struct ofs_arena *a, size_t n)
{
	struct ofs_arena_block *b;
	size_t size = a->head == NULL ? FIRST_BLOCK : a->head->size * 2;

	if (size > LARGEST_BLOCK)
		size = LARGEST_BLOCK;
	if (size < n)
		size = n;
	b = malloc(sizeof(*b) + size);
	if (b == NULL)
		return NULL;
	b->size = size;
	b->used = 0;
	b->next = a->head;
	a->head = b;
	return b;
}

void *ofs_arena_alloc(struct ofs_arena *a, size_t n)
{
	struct ofs_arena_block *b = a->head;
	void *at;

	if (n > SIZE_MAX / 2)
		return NULL;
	n = (n + 7) & ~(size_t)7;
	if (a->limit != 0 && (a->used > a->limit || n > a->limit - a->used))
		return NULL;
	if (b == NULL || b->size - b->used < n)
		b = add_block(a, n);
	if (b == NULL)
		return NULL;
	at = b->data + b->used;
	b->used += n;
	a->used += n;
	return at;
}

char *ofs_arena_strndup(struct ofs_arena *a, const char *s, size_t n)
{
	char *copy;

	if (n == SIZE_MAX)
		return NULL;
	copy = ofs_arena_alloc(a, n + 1);
	if (copy == NULL)
		return NULL;
	if (n > 0)
		memcpy(copy, s, n);
	copy[n] = '\0';
	return copy;
}
