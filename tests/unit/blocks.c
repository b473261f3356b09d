/* cluster/gpu/blocks.c - the cache of blocks in GPU memory */
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

/* Pins the block of this index. */
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
		ok(!fill(b, i), "block %" PRIu64 " is a miss in an empty cache",
		    i);
	is_int(ofs_blocks_count(b).kept, BLOCKS,
	    "the cache keeps as many blocks as it has room for");
	for (uint64_t i = 0; i < BLOCKS; i++)
		hits &= fill(b, i);
	ok(hits, "all kept blocks are hits");
	fill(b, 0); /* block 1 is now the least recently used */
	ok(!fill(b, 100), "a new block is a miss in a full cache");
	ok(fill(b, 0), "the most recently used block stays");
	ok(fill(b, 2) && fill(b, 3), "the blocks used after block 1 stay");
	ok(!fill(b, 1), "the least recently used block was evicted");
	is_int(ofs_blocks_count(b).kept, BLOCKS, "the cache stays full");
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
	    "no block can be had while all are pinned");
	for (uint32_t i = 0; i < BLOCKS; i++)
		ofs_blocks_put(b, held[i], true);
	is_int(ofs_blocks_count(b).kept, 0,
	    "blocks without a key are not kept");
	fill(b, 7);
	held[0] = get(b, 7, &hit);
	held[1] = get(b, 7, &hit);
	ok(hit && held[0] == held[1],
	    "two readers of one key get the same block");
	for (uint64_t i = 100; i < 120; i++)
		fill(b, i);
	ofs_blocks_put(b, held[0], true);
	for (uint64_t i = 200; i < 220; i++)
		fill(b, i);
	ofs_blocks_put(b, held[1], true);
	ok(fill(b, 7), "a block is not evicted while it is pinned");
	ofs_blocks_free(b);
}

static void failures(void)
{
	struct ofs_blocks *b = make(BLOCKS);
	uint32_t one, two;
	bool hit;

	one = get(b, 5, &hit);
	two = get(b, 5, &hit);
	ok(!hit && one != two,
	    "a block that is being filled is a miss for other readers");
	ofs_blocks_put(b, two, true);
	ofs_blocks_put(b, one, false);
	is_int(ofs_blocks_count(b).kept, 0,
	    "a block whose filling failed is not kept");
	ok(!fill(b, 5) && fill(b, 5),
	    "a block whose filling failed can be filled later");
	one = get(b, 5, &hit);
	ofs_blocks_put(b, one, false);
	ok(hit && !fill(b, 5),
	    "a block that its reader gives back as bad is not kept");
	ofs_blocks_free(b);
}

/* Many threads: a block holds what its key says, whichever thread filled it,
 * and nobody reads a block while it is filled. */
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
	is_int(wrong, 0,
	    "blocks hold what their keys say while four threads use them");
	ok(nhits > 0 && ofs_blocks_count(shared).hits == nhits,
	    "all hits are counted");
	ok(ofs_blocks_count(shared).kept <= CROWD,
	    "no more blocks are kept than there is room for");
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
