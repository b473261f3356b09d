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
	TAILQ_ENTRY(block) age;
	uint64_t number;
	uint32_t file;
	size_t n;
	uint8_t p[];
};

struct ofs_http_blocks {
	pthread_mutex_t lock;
	size_t have, most;        /* bytes */
	TAILQ_HEAD(, block) ages; /* least recently used first */
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

static void drop_block(struct ofs_http_blocks *b, struct block *k)
{
	LIST_REMOVE(k, same);
	TAILQ_REMOVE(&b->ages, k, age);
	b->have -= k->n;
	free(k);
}

void ofs_http_blocks_free(struct ofs_http_blocks *b)
{
	if (b == NULL)
		return;
	while (!TAILQ_EMPTY(&b->ages))
		drop_block(b, TAILQ_FIRST(&b->ages));
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
    uint64_t number, void *out, size_t n)
{
	struct block *k;
	bool found;

	pthread_mutex_lock(&b->lock);
	k = find_block(b, file, number);
	found = k != NULL && k->n == n;
	if (found) {
		memcpy(out, k->p, n);
		TAILQ_REMOVE(&b->ages, k, age);
		TAILQ_INSERT_TAIL(&b->ages, k, age);
	}
	pthread_mutex_unlock(&b->lock);
	return found;
}

void ofs_http_blocks_put(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, const void *p, size_t n)
{
	struct block *k = malloc(sizeof(*k) + n), *old;

	if (k == NULL)
		return; /* it will be fetched again */
	k->file = file;
	k->number = number;
	k->n = n;
	memcpy(k->p, p, n);
	pthread_mutex_lock(&b->lock);
	old = find_block(b, file, number);
	if (old != NULL)
		drop_block(b, old);
	LIST_INSERT_HEAD(&b->bucket[bucket_of(file, number)], k, same);
	TAILQ_INSERT_TAIL(&b->ages, k, age);
	b->have += n;
	while (b->have > b->most && TAILQ_FIRST(&b->ages) != k)
		drop_block(b, TAILQ_FIRST(&b->ages));
	pthread_mutex_unlock(&b->lock);
}
