/* blocks.c - a cache of file blocks in GPU memory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/memory.h"

struct block {
	TAILQ_ENTRY(block) idle; /* while it is not pinned */
	LIST_ENTRY(block) same;  /* hash chain, while it has a key */
	struct ofs_block_key key;
	uint32_t pins;
	bool keyed, good;
};

struct ofs_blocks {
	pthread_mutex_t lock;
	TAILQ_HEAD(, block) idle; /* empty ones, then by last use */
	LIST_HEAD(chain, block) * chain;
	uint32_t n, mask, kept;
	uint64_t hits, misses;
	struct block block[];
};

struct ofs_blocks *ofs_blocks_new(uint32_t n, struct optimfs_error *err)
{
	struct ofs_blocks *b =
	    calloc(1, sizeof(*b) + (size_t)n * sizeof(b->block[0]));
	uint32_t chains = 1;

	while (chains < n)
		chains *= 2;
	if (b != NULL)
		b->chain = calloc(chains, sizeof(*b->chain));
	if (b == NULL || b->chain == NULL) {
		free(b);
		ofs_no_memory(err);
		return NULL;
	}
	pthread_mutex_init(&b->lock, NULL);
	TAILQ_INIT(&b->idle);
	b->n = n;
	b->mask = chains - 1;
	for (uint32_t i = 0; i < n; i++)
		TAILQ_INSERT_TAIL(&b->idle, &b->block[i], idle);
	return b;
}

void ofs_blocks_free(struct ofs_blocks *b)
{
	if (b == NULL)
		return;
	pthread_mutex_destroy(&b->lock);
	free(b->chain);
	free(b);
}

static struct chain *chain_of(struct ofs_blocks *b,
    const struct ofs_block_key *key)
{
	uint64_t h = (((uint64_t)key->manifest << 32 | key->file) + 1) *
	    UINT64_C(0x9e3779b97f4a7c15);

	h = (h ^ key->index) * UINT64_C(0xbf58476d1ce4e5b9);
	return &b->chain[(h >> 32) & b->mask];
}

static struct block *find(struct ofs_blocks *b, const struct ofs_block_key *key)
{
	struct block *k;

	LIST_FOREACH(k, chain_of(b, key), same)
	if (k->key.manifest == key->manifest && k->key.file == key->file &&
	    k->key.index == key->index)
		return k;
	return NULL;
}

static void forget(struct ofs_blocks *b, struct block *k)
{
	if (!k->keyed)
		return;
	LIST_REMOVE(k, same);
	b->kept -= k->good;
	k->keyed = k->good = false;
}

/* A block that another thread is filling is not used: that may fail, or wait
 * for this thread. */
static uint32_t get(struct ofs_blocks *b, const struct ofs_block_key *key,
    bool *hit)
{
	struct block *k = key == NULL ? NULL : find(b, key);
	bool filling = k != NULL && !k->good;

	*hit = k != NULL && k->good;
	if (*hit) {
		b->hits++;
		if (k->pins++ == 0)
			TAILQ_REMOVE(&b->idle, k, idle);
		return (uint32_t)(k - b->block);
	}
	b->misses += key != NULL;
	k = TAILQ_FIRST(&b->idle);
	if (k == NULL)
		return OFS_NO_BLOCK;
	TAILQ_REMOVE(&b->idle, k, idle);
	forget(b, k);
	k->pins = 1;
	if (key != NULL && !filling) {
		k->key = *key;
		k->keyed = true;
		LIST_INSERT_HEAD(chain_of(b, key), k, same);
	}
	return (uint32_t)(k - b->block);
}

uint32_t ofs_blocks_get(struct ofs_blocks *b, const struct ofs_block_key *key,
    bool *hit)
{
	uint32_t i;

	pthread_mutex_lock(&b->lock);
	i = get(b, key, hit);
	pthread_mutex_unlock(&b->lock);
	return i;
}

void ofs_blocks_put(struct ofs_blocks *b, uint32_t i, bool good)
{
	struct block *k = &b->block[i];

	pthread_mutex_lock(&b->lock);
	if (k->keyed && good && !k->good) {
		k->good = true;
		b->kept++;
	}
	if (!good)
		forget(b, k);
	if (--k->pins == 0) {
		if (k->keyed)
			TAILQ_INSERT_TAIL(&b->idle, k, idle);
		else
			TAILQ_INSERT_HEAD(&b->idle, k, idle);
	}
	pthread_mutex_unlock(&b->lock);
}

struct ofs_blocks_counts ofs_blocks_count(struct ofs_blocks *b)
{
	struct ofs_blocks_counts c;

	pthread_mutex_lock(&b->lock);
	c = (struct ofs_blocks_counts){ b->hits, b->misses, b->kept };
	pthread_mutex_unlock(&b->lock);
	return c;
}
