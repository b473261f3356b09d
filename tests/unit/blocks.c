/* cluster/gpu/blocks.c - blocks of GPU memory: who has one, what is kept, what makes room */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/blocks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tap.h"

#define BLOCKS 4

static struct ofs_blocks *make(uint32_t n)
{
	struct optimfs_error err;
	struct ofs_blocks *b = ofs_blocks_new(n, &err);

	if (b == NULL)
		bail_out("%s", err.text);
	return b;
}

static struct ofs_block_key key_of(uint64_t index)
{
	return (struct ofs_block_key){ 1, 2, index };
}

/* Pin the block of index. */
static uint32_t get(struct ofs_blocks *b, uint64_t index, bool *hit)
{
	struct ofs_block_key key = key_of(index);

	return ofs_blocks_get(b, &key, hit);
}

static bool fill(struct ofs_blocks *b, uint64_t index)
{
	bool hit;
	uint32_t i = get(b, index, &hit);

	ofs_blocks_put(b, i, true);
	return hit;
}

static void eviction(void)
{
	struct ofs_blocks *b = make(BLOCKS);
	bool hits = true;

	for (uint64_t i = 0; i < BLOCKS; i++)
		ok(!fill(b, i), "block %" PRIu64 " is not there yet", i);
	is_int(ofs_blocks_count(b).kept, BLOCKS, "all are kept");
	for (uint64_t i = 0; i < BLOCKS; i++)
		hits &= fill(b, i);
	ok(hits, "all are there");
	fill(b, 0); /* now 1 was used longest ago */
	ok(!fill(b, 100), "another one");
	ok(fill(b, 0), "what was used lately stays");
	ok(fill(b, 2) && fill(b, 3), "and so do others");
	ok(!fill(b, 1), "what was used longest ago made room");
	is_int(ofs_blocks_count(b).kept, BLOCKS, "as many as there are");
	ofs_blocks_free(b);
}

static void pins(void)
{
	struct ofs_blocks *b = make(BLOCKS);
	uint32_t held[BLOCKS];
	bool hit;

	for (uint32_t i = 0; i < BLOCKS; i++)
		held[i] = ofs_blocks_get(b, NULL, &hit);
	ok(ofs_blocks_get(b, NULL, &hit) == OFS_NO_BLOCK,
	    "none is left when all are pinned");
	for (uint32_t i = 0; i < BLOCKS; i++)
		ofs_blocks_put(b, held[i], true);
	is_int(ofs_blocks_count(b).kept, 0, "what has no key is not kept");
	fill(b, 7);
	held[0] = get(b, 7, &hit);
	held[1] = get(b, 7, &hit);
	ok(hit && held[0] == held[1], "one block for two who read it");
	for (uint64_t i = 100; i < 120; i++)
		fill(b, i);
	ofs_blocks_put(b, held[0], true);
	for (uint64_t i = 200; i < 220; i++)
		fill(b, i);
	ofs_blocks_put(b, held[1], true);
	ok(fill(b, 7), "while it is pinned it makes no room");
	ofs_blocks_free(b);
}

static void failures(void)
{
	struct ofs_blocks *b = make(BLOCKS);
	uint32_t one, two;
	bool hit;

	one = get(b, 5, &hit);
	two = get(b, 5, &hit);
	ok(!hit && one != two, "what another fills is not waited for");
	ofs_blocks_put(b, two, true);
	ofs_blocks_put(b, one, false);
	is_int(ofs_blocks_count(b).kept, 0, "what failed is not kept");
	ok(!fill(b, 5) && fill(b, 5), "but can be, later");
	one = get(b, 5, &hit);
	ofs_blocks_put(b, one, false);
	ok(hit && !fill(b, 5), "nor is what turned out bad");
	ofs_blocks_free(b);
}

/* Many threads: what a block holds is what its key says, whoever filled it, and
 * nobody else has it meanwhile. */
enum { CROWD = 16 };
static struct {
	_Atomic uint64_t holds;
	atomic_int fillers, readers;
} memory[CROWD];
static struct ofs_blocks *shared;
static atomic_uint wrong, nhits;

static void *crowd(void *arg)
{
	unsigned seed = *(unsigned *)arg;

	for (unsigned i = 0; i < 20000; i++) {
		uint64_t index = (uint64_t)rand_r(&seed) % (2 * CROWD);
		bool hit, good = rand_r(&seed) % 8 != 0;
		uint32_t k = get(shared, index, &hit);

		if (k == OFS_NO_BLOCK)
			continue;
		if (hit) {
			atomic_fetch_add(&memory[k].readers, 1);
			nhits++;
			wrong += memory[k].holds != index;
			wrong += memory[k].fillers != 0;
			atomic_fetch_sub(&memory[k].readers, 1);
		} else {
			wrong += atomic_fetch_add(&memory[k].fillers, 1) != 0;
			wrong += memory[k].readers != 0;
			memory[k].holds = index;
			atomic_fetch_sub(&memory[k].fillers, 1);
		}
		ofs_blocks_put(shared, k, hit || good);
	}
	return NULL;
}

static void crowds(void)
{
	pthread_t t[4];
	unsigned seed[4];

	shared = make(CROWD);
	for (unsigned i = 0; i < 4; i++) {
		seed[i] = i;
		if (pthread_create(&t[i], NULL, crowd, &seed[i]) != 0)
			bail_out("no thread");
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	is_int(wrong, 0, "blocks hold what their keys say");
	ok(nhits > 0 && ofs_blocks_count(shared).hits == nhits,
	    "hits are counted");
	ok(ofs_blocks_count(shared).kept <= CROWD, "no more than there are");
	ofs_blocks_free(shared);
}

int main(void)
{
	eviction();
	pins();
	failures();
	crowds();
	return done_testing();
}
