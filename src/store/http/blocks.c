/* blocks.c - the last blocks of files that were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/memory.h"

#define BUCKETS 1024

struct block {
	LIST_ENTRY(block) same; /* bucket */
	struct slab *slab;
	const uint8_t *p;
	uint64_t number;
	uint32_t file;
	size_t n;
	bool is_known; /* no other one has taken its place */
};

/* What came together, and goes together: to copy each block to memory of its own
 * would take longer than to receive it. */
struct slab {
	TAILQ_ENTRY(slab) age;
	uint8_t *p;
	size_t bytes, nblocks, holders;
	bool is_dropped; /* the last holder frees it */
	struct block block[];
};

struct ofs_http_blocks {
	pthread_mutex_t lock;
	size_t have, most;       /* bytes */
	TAILQ_HEAD(, slab) ages; /* least recently used first */
	LIST_HEAD(, block) bucket[BUCKETS];
};

struct ofs_http_blocks *ofs_http_blocks_new(size_t most,
    struct optimfs_error *err)
{
	struct ofs_http_blocks *b = ofs_alloc(1, sizeof(*b), err);

	if (b == NULL)
		return NULL;
	b->most = most;
	pthread_mutex_init(&b->lock, NULL);
	TAILQ_INIT(&b->ages);
	return b;
}

static void forget_block(struct block *k)
{
	if (k->is_known)
		LIST_REMOVE(k, same);
	k->is_known = false;
}

static void free_slab(struct slab *s)
{
	free(s->p);
	free(s);
}

static void drop_slab(struct ofs_http_blocks *b, struct slab *s)
{
	for (size_t i = 0; i < s->nblocks; i++)
		forget_block(&s->block[i]);
	TAILQ_REMOVE(&b->ages, s, age);
	b->have -= s->bytes;
	s->is_dropped = true;
	if (s->holders == 0)
		free_slab(s);
}

void ofs_http_blocks_free(struct ofs_http_blocks *b)
{
	if (b == NULL)
		return;
	while (!TAILQ_EMPTY(&b->ages))
		drop_slab(b, TAILQ_FIRST(&b->ages));
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static size_t bucket_of(uint32_t file, uint64_t number)
{
	return (size_t)((number + file * UINT64_C(0x9E3779B1)) % BUCKETS);
}

/* The lock is held. */
static struct block *find_block(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number)
{
	struct block *k;

	LIST_FOREACH(k, &b->bucket[bucket_of(file, number)], same)
	if (k->file == file && k->number == number)
		break;
	return k;
}

bool ofs_http_blocks_has(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number)
{
	bool has;

	pthread_mutex_lock(&b->lock);
	has = find_block(b, file, number) != NULL;
	pthread_mutex_unlock(&b->lock);
	return has;
}

bool ofs_http_blocks_get(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, size_t off, void *out, size_t n)
{
	struct block *k;
	bool found;

	pthread_mutex_lock(&b->lock);
	k = find_block(b, file, number);
	found = k != NULL && off <= k->n && n <= k->n - off;
	if (found) {
		memcpy(out, k->p + off, n);
		TAILQ_REMOVE(&b->ages, k->slab, age);
		TAILQ_INSERT_TAIL(&b->ages, k->slab, age);
	}
	pthread_mutex_unlock(&b->lock);
	return found;
}

const uint8_t *ofs_http_blocks_hold(struct ofs_http_blocks *b, uint32_t file,
    uint64_t off, uint64_t *n, void **held)
{
	const uint8_t *p = NULL;
	struct block *k;
	uint64_t skip;

	pthread_mutex_lock(&b->lock);
	k = find_block(b, file, off / OFS_HTTP_BLOCK);
	if (k != NULL && off % OFS_HTTP_BLOCK < k->n) {
		p = k->p + off % OFS_HTTP_BLOCK;
		skip = (uint64_t)(p - k->slab->p);
		if (*n > k->slab->bytes - skip)
			*n = k->slab->bytes - skip;
		k->slab->holders++;
		*held = k->slab;
	}
	pthread_mutex_unlock(&b->lock);
	return p;
}

void ofs_http_blocks_let(struct ofs_http_blocks *b, void *held)
{
	struct slab *s = held;

	pthread_mutex_lock(&b->lock);
	if (--s->holders == 0 && s->is_dropped)
		free_slab(s);
	pthread_mutex_unlock(&b->lock);
}

/* The lock is held. */
static void add_block(struct ofs_http_blocks *b, struct block *k)
{
	struct block *old = find_block(b, k->file, k->number);

	if (old != NULL)
		forget_block(old);
	LIST_INSERT_HEAD(&b->bucket[bucket_of(k->file, k->number)], k, same);
	k->is_known = true;
}

void ofs_http_blocks_give(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, uint8_t *p, size_t n)
{
	size_t nblocks = (size_t)((n + OFS_HTTP_BLOCK - 1) / OFS_HTTP_BLOCK);
	struct slab *s = calloc(1, sizeof(*s) + nblocks * sizeof(*s->block));

	if (s == NULL || p == NULL) {
		free(s);
		free(p);
		return; /* it will be fetched again */
	}
	s->p = p;
	s->bytes = n;
	s->nblocks = nblocks;
	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < nblocks; i++) {
		size_t off = (size_t)(i * OFS_HTTP_BLOCK);

		s->block[i].slab = s;
		s->block[i].p = p + off;
		s->block[i].n =
		    n - off < OFS_HTTP_BLOCK ? n - off : (size_t)OFS_HTTP_BLOCK;
		s->block[i].file = file;
		s->block[i].number = number + i;
		add_block(b, &s->block[i]);
	}
	TAILQ_INSERT_TAIL(&b->ages, s, age);
	b->have += n;
	while (b->have > b->most && TAILQ_FIRST(&b->ages) != s)
		drop_slab(b, TAILQ_FIRST(&b->ages));
	pthread_mutex_unlock(&b->lock);
}

void ofs_http_blocks_put(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, const void *p, size_t n)
{
	uint8_t *copy = malloc(n);

	if (copy != NULL)
		memcpy(copy, p, n);
	ofs_http_blocks_give(b, file, number, copy, n);
}
