/* keys.c - keys, numbered in the order in which they were added */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static bool same(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct ofs_str *s = &((const struct ofs_keys *)ctx)->v[index];

	return s->len == n && (n == 0 || memcmp(s->p, key, n) == 0);
}

uint32_t ofs_keys_find(const struct ofs_keys *keys, const void *p, size_t n)
{
	return ofs_map_find(&keys->map, ofs_map_hash(p, n), same, keys, p, n);
}

static uint32_t append(struct ofs_keys *keys, struct ofs_str s,
    struct optimfs_error *err)
{
	if (ofs_grow(keys->v, keys->n, keys->cap, err) == -1)
		return OFS_NONE;
	if (!ofs_map_add(&keys->map, ofs_map_hash(s.p, s.len), keys->n)) {
		ofs_no_memory(err);
		return OFS_NONE;
	}
	keys->v[keys->n] = s;
	return keys->n++;
}

uint32_t ofs_keys_add(struct ofs_keys *keys, struct ofs_str s,
    struct optimfs_error *err)
{
	uint32_t found = ofs_keys_find(keys, s.p, s.len);

	return found != OFS_NONE ? found : append(keys, s, err);
}

uint32_t ofs_keys_copy(struct ofs_keys *keys, const void *p, size_t n,
    struct optimfs_error *err)
{
	uint32_t found = ofs_keys_find(keys, p, n);
	char *copy;

	if (found != OFS_NONE)
		return found;
	copy = ofs_arena_alloc(&keys->arena, n + 1);
	if (copy == NULL) {
		ofs_no_memory(err);
		return OFS_NONE;
	}
	if (n > 0)
		memcpy(copy, p, n);
	copy[n] = '\0';
	return append(keys, (struct ofs_str){ copy, (uint32_t)n }, err);
}

void ofs_keys_fini(struct ofs_keys *keys)
{
	free(keys->v);
	ofs_map_fini(&keys->map);
	ofs_arena_fini(&keys->arena);
	*keys = (struct ofs_keys){ 0 };
}
