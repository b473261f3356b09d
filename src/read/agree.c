/* agree.c - the copies of a shard that several ranks stored */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/agree.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "catalog/owners.h"
#include "read/fetch.h"
#include "read/locate.h"

/* Ranks of one job may have trained apart. Whose weights are shown would then
 * depend on the order of files, so nothing is shown unless all are equal. Most
 * files have checksums that say so (src/format/ranks/copies.c). The others are
 * read when one of them is, before its first byte is given to anybody; that is
 * known then for as long as the checkpoint is open. */

#define BLOCK ((uint64_t)1 << 20)

struct comparing {
	struct ofs_reader *r;
	const struct ofs_tensor *t;
	const struct ofs_replica *copy;
	uint32_t n;
	struct ofs_place **place; /* of each copy; NULL: it cannot be read */
	uint8_t *buf[2];
};

static bool lacks_memory(const struct optimfs_error *why,
    struct optimfs_error *err)
{
	if (why->code != ENOMEM)
		return false;
	optimfs_fail_with(err, why);
	return true;
}

static int find_copies(struct comparing *c, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	for (uint32_t i = 0; i < c->n; i++) {
		if (ofs_extent_lost(c->r->cat, &c->copy[i].at, NULL))
			continue;
		c->place[i] = ofs_locate_replica(c->r, c->t, &c->copy[i], &why);
		if (c->place[i] == NULL && lacks_memory(&why, err))
			return -1;
	}
	return 0;
}

static int rank_of(const struct comparing *c, const struct ofs_extent *at)
{
	return c->r->cat->objects[at->object].rank;
}

static int differ(const struct comparing *c, uint32_t shard, uint32_t copy,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS674 rank %d and rank %d have different elements in the same "
	    "place, and nothing says how they belong together; .optimfs/rank/ "
	    "has each",
	    rank_of(c, &c->r->cat->shards[shard].at),
	    rank_of(c, &c->copy[copy].at));
}

/* Compares elements [first, first + count) of all copies. */
static int compare_block(struct comparing *c, struct ofs_fetch_part *part,
    const struct ofs_place *place, struct optimfs_error *err)
{
	size_t bytes = part->count * ofs_dtype_size(c->t->dtype);
	struct optimfs_error why = { 0 };

	part->place = place;
	if (ofs_fetch_part(c->r, part, c->buf[0], err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->place[i] == NULL)
			continue;
		part->place = c->place[i];
		if (ofs_fetch_part(c->r, part, c->buf[1], &why) == -1) {
			if (lacks_memory(&why, err))
				return -1;
			free(c->place[i]);
			c->place[i] = NULL;
		} else if (memcmp(c->buf[0], c->buf[1], bytes) != 0) {
			return differ(c, part->shard, i, err);
		}
	}
	return 0;
}

/* How many elements are equal, if part->count of them are. */
static uint64_t equal_from(struct comparing *c, struct ofs_fetch_part *part,
    const struct ofs_place *place)
{
	uint64_t least, n;

	part->place = place;
	least = ofs_fetch_part_alike(c->r, part);
	for (uint32_t i = 0; i < c->n && least > 0; i++) {
		if (c->place[i] == NULL)
			continue;
		part->place = c->place[i];
		n = ofs_fetch_part_alike(c->r, part);
		least = n < least ? n : least;
	}
	return least > part->count ? least : part->count;
}

static int compare_all(struct comparing *c, uint32_t shard,
    const struct ofs_place *place, struct optimfs_error *err)
{
	uint64_t most = BLOCK / ofs_dtype_size(c->t->dtype);
	struct ofs_fetch_part part;
	int ret =
	    ofs_fetch_part_init(&part, c->r->cat, c->t, shard, place, err);

	while (ret == 0 && part.first < part.total) {
		uint64_t left = part.total - part.first;

		part.count = left < most ? left : most;
		ret = compare_block(c, &part, place, err);
		part.first += equal_from(c, &part, place);
	}
	return ret;
}

static int compare(struct ofs_reader *r, const struct ofs_tensor *t,
    uint32_t shard, const struct ofs_place *place, struct optimfs_error *err)
{
	struct comparing c = { .r = r, .t = t };
	int ret = -1;

	c.copy = ofs_replicas(r->cat, shard, &c.n);
	if (c.n == 0)
		return 0;
	c.place = calloc(c.n, sizeof(*c.place));
	c.buf[0] = malloc(BLOCK);
	c.buf[1] = malloc(BLOCK);
	if (c.place == NULL || c.buf[0] == NULL || c.buf[1] == NULL)
		ofs_no_memory(err);
	else if (find_copies(&c, err) == 0)
		ret = compare_all(&c, shard, place, err);
	for (uint32_t i = 0; c.place != NULL && i < c.n; i++)
		free(c.place[i]);
	free(c.place);
	free(c.buf[0]);
	free(c.buf[1]);
	return ret;
}

/* One thread compares; others that want the same shard wait for it. */

enum { NOT_COMPARED, BUSY, EQUAL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

int ofs_copies_agree(struct ofs_reader *r, const struct ofs_tensor *t,
    uint32_t shard, const struct ofs_place *place, struct optimfs_error *err)
{
	_Atomic uint8_t *state = &r->compared[shard];
	int ret;

	if (atomic_load(state) == EQUAL)
		return 0;
	pthread_mutex_lock(&lock);
	while (atomic_load(state) == BUSY)
		pthread_cond_wait(&done, &lock);
	if (atomic_load(state) == EQUAL) {
		pthread_mutex_unlock(&lock);
		return 0;
	}
	atomic_store(state, BUSY);
	pthread_mutex_unlock(&lock);
	ret = compare(r, t, shard, place, err);
	pthread_mutex_lock(&lock);
	atomic_store(state, ret == 0 ? EQUAL : NOT_COMPARED);
	pthread_cond_broadcast(&done);
	pthread_mutex_unlock(&lock);
	return ret;
}
