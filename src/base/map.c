/* map.c - open addressing, linear probing, at most three quarters full */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <xxhash.h>

#include "base/memory.h"

#define FIRST_BITS 6

struct ofs_map_slot {
	uint32_t hash;
	uint32_t index; /* plus one; 0: empty */
};

static uint64_t seed;
static pthread_once_t seeded = PTHREAD_ONCE_INIT;

static void make_seed(void)
{
	struct timespec now;

	if (getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	seed = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^
	    (uint64_t)(uintptr_t)&now;
}

uint64_t ofs_hash64(const void *key, size_t n)
{
	pthread_once(&seeded, make_seed);
	return XXH3_64bits_withSeed(key, n, seed);
}

void ofs_map_fini(struct ofs_map *map)
{
	free(map->slot);
	*map = (struct ofs_map){ 0 };
}

/* The first slot to try for a key: the leading bits of its hash. Slots store
 * the hash, so that the map grows without the keys. */
static uint64_t home(const struct ofs_map *map, uint32_t hash)
{
	return ((uint64_t)hash << map->bits) >> 32;
}

static uint64_t next(const struct ofs_map *map, uint64_t i)
{
	return (i + 1) & (((uint64_t)1 << map->bits) - 1);
}

void ofs_map_prefetch(const struct ofs_map *map, uint32_t hash)
{
	if (map->slot != NULL)
		__builtin_prefetch(&map->slot[home(map, hash)]);
}

uint32_t ofs_map_find(const struct ofs_map *map, uint32_t hash,
    ofs_map_same_fn *same, const void *ctx, const void *key, size_t n)
{
	const struct ofs_map_slot *s;

	if (map->slot == NULL)
		return UINT32_MAX;
	for (uint64_t i = home(map, hash);; i = next(map, i)) {
		s = &map->slot[i];
		if (s->index == 0)
			return UINT32_MAX;
		if (s->hash == hash && same(ctx, s->index - 1, key, n))
			return s->index - 1;
	}
}

static void put(struct ofs_map *map, struct ofs_map_slot what)
{
	uint64_t i = home(map, what.hash);

	while (map->slot[i].index != 0)
		i = next(map, i);
	map->slot[i] = what;
	map->n++;
}

/* n empty slots. A large map is hit at random, so that most lookups would miss
 * the TLB as well if it were not in huge pages. */
static struct ofs_map_slot *new_slots(size_t n)
{
	struct ofs_map_slot *slot;

	if (n * sizeof(*slot) < OFS_HUGE_PAGE)
		return calloc(n, sizeof(*slot));
	slot = ofs_alloc_huge(n * sizeof(*slot));
	if (slot != NULL)
		memset(slot, 0, n * sizeof(*slot));
	return slot;
}

static bool resize(struct ofs_map *map, unsigned int bits)
{
	struct ofs_map bigger = { .bits = bits };

	if (bigger.bits > 32)
		return false;
	bigger.slot = new_slots((size_t)1 << bigger.bits);
	if (bigger.slot == NULL)
		return false;
	if (map->slot != NULL)
		for (uint64_t i = 0; i < (uint64_t)1 << map->bits; i++)
			if (map->slot[i].index != 0)
				put(&bigger, map->slot[i]);
	free(map->slot);
	*map = bigger;
	return true;
}

/* How many a map of so many bits takes. */
static uint64_t full(unsigned int bits)
{
	return ((uint64_t)3 << bits) / 4;
}

bool ofs_map_reserve(struct ofs_map *map, uint32_t n)
{
	unsigned int bits = FIRST_BITS;

	while (full(bits) < n)
		bits++;
	return (map->slot != NULL && map->bits >= bits) || resize(map, bits);
}

bool ofs_map_add(struct ofs_map *map, uint32_t hash, uint32_t index)
{
	if ((map->slot == NULL || map->n >= full(map->bits)) &&
	    !resize(map, map->slot == NULL ? FIRST_BITS : map->bits + 1))
		return false;
	put(map, (struct ofs_map_slot){ hash, index + 1 });
	return true;
}
