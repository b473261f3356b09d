/* arena.h - memory that is allocated piece by piece and freed at once */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_ARENA_H
#define OFS_BASE_ARENA_H

#include <stddef.h>
#include <string.h>

#include "base/types.h"

struct ofs_arena_block;

/* Starts as zeros. Not thread-safe. */
struct ofs_arena {
	struct ofs_arena_block *head;
};

void ofs_arena_fini(struct ofs_arena *a);

/* n bytes, aligned to 8, not cleared; NULL when memory is exhausted.
 * With n 0 the pointer is valid but points to no bytes. */
void *ofs_arena_alloc(struct ofs_arena *a, size_t n);
/* A NUL-terminated copy of n bytes of s; NULL as above. */
char *ofs_arena_strndup(struct ofs_arena *a, const char *s, size_t n);
/* The same, with its length before it. */
char *ofs_arena_counted(struct ofs_arena *a, struct ofs_str s);
static inline struct ofs_str ofs_counted_str(const char *p)
{
	struct ofs_str s = { p, 0 };

	memcpy(&s.len, p - sizeof(s.len), sizeof(s.len));
	return s;
}

#endif
