/* map.h - a hash table from keys to indexes of items */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_MAP_H
#define OFS_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A hash map from keys to 32-bit indexes of an array, which is the owner's and
 * holds the keys. Open addressing, 8 bytes a slot. The hash has a new seed in
 * each process, so that no file can provoke collisions. Zero-initialise. */
struct ofs_map {
	struct ofs_map_slot *slot;
	uint32_t n;
	unsigned int bits; /* slot NULL: no slots; else there are 1 << bits */
};

void ofs_map_fini(struct ofs_map *map);

uint64_t ofs_hash64(const void *key, size_t n);
static inline uint32_t ofs_map_hash(const void *key, size_t n)
{
	return (uint32_t)ofs_hash64(key, n);
}

/* Bring the slot of a key with this hash into the cache. In a loop, for the next
 * key before the present one is looked up. */
void ofs_map_prefetch(const struct ofs_map *map, uint32_t hash);
/* Does item index have this key? */
typedef bool ofs_map_same_fn(const void *ctx, uint32_t index, const void *key,
    size_t n);
/* The index of the item with key; hash is that of the key. UINT32_MAX when
 * there is no such item. */
uint32_t ofs_map_find(const struct ofs_map *map, uint32_t hash,
    ofs_map_same_fn *same, const void *ctx, const void *key, size_t n);
/* Room for n items in all, so that adding them need not move any. */
bool ofs_map_reserve(struct ofs_map *map, uint32_t n);
/* Add an item that is not in the map. false: out of memory; nothing has
 * changed. */
bool ofs_map_add(struct ofs_map *map, uint32_t hash, uint32_t index);

#endif
