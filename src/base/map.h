/* map.h - from a key's hash to the index of the item that has it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_MAP_H
#define OFS_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Open addressing over 32-bit indexes of an array that is the owner's and
 * holds the keys; 8 bytes a slot. The hash is seeded anew in each process, so
 * that no file can be made to collide. Zero-initialise. */
struct ofs_map {
	struct ofs_map_slot *slot;
	uint32_t n;
	unsigned int bits; /* there are 1 << bits slots, or none */
};

void ofs_map_fini(struct ofs_map *map);

uint64_t ofs_hash64(const void *key, size_t n);
static inline uint32_t ofs_map_hash(const void *key, size_t n)
{
	return (uint32_t)ofs_hash64(key, n);
}

/* Is item index the one with this key? */
typedef bool ofs_map_same_fn(const void *ctx, uint32_t index, const void *key,
    size_t n);
/* The index of the item with key, whose hash is given; UINT32_MAX when there
 * is none. */
uint32_t ofs_map_find(const struct ofs_map *map, uint32_t hash,
    ofs_map_same_fn *same, const void *ctx, const void *key, size_t n);
/* Add the index of an item that is not in the map; false: out of memory, and
 * nothing changed. */
bool ofs_map_add(struct ofs_map *map, uint32_t hash, uint32_t index);

#endif
