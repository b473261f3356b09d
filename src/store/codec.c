/* codec.c - encoded extents, decoded once and kept */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/error.h"
#include "store/extent_cache.h"

/* One decoded extent may use 1/ONE_SHARE of the memory budget, so that a large
 * one does not evict all others. */
#define ONE_SHARE 2
/* Idle temporary files are closed beyond this number. */
#define MAX_FILES   64
#define MIN_BUCKETS 64

static ofs_decode_fn *const decoders[] = {
#ifdef HAVE_ZSTD
	[OFS_ZSTD] = ofs_zstd_decode,
#else
	[OFS_ZSTD] = NULL,
#endif
	[OFS_DEFLATE] = ofs_deflate_decode,
};

struct ofs_decoded {
	TAILQ_ENTRY(ofs_decoded) lru;   /* linked while refs is 0 */
	LIST_ENTRY(ofs_decoded) bucket; /* linked while hashed */
	uint32_t object, refs;
	uint64_t off, len;
	uint64_t max;     /* limit of the thread that decodes it */
	uint64_t charged; /* bytes of the budget in use */
	bool hashed, decoding, spilled;
	struct ofs_store store;
	struct optimfs_error *failure; /* NULL: decoded successfully */
};

TAILQ_HEAD(lru, ofs_decoded);
LIST_HEAD(bucket, ofs_decoded);

struct ofs_codec_cache {
	uint64_t budget;
	struct ofs_counters *counters;
	pthread_mutex_t large; /* struct ofs_codec_io */
	/* guards all below; while decoding, the store belongs to the thread
	 * that decodes, then it is const */
	pthread_mutex_t lock;
	pthread_cond_t done;
	struct bucket *bucket;
	size_t nbuckets, n;
	struct lru memory, files; /* idle entries, oldest first */
	size_t nfiles;            /* number of entries with spilled set */
	uint64_t used;
};

struct ofs_codec_cache *ofs_codec_cache_new(uint64_t budget,
    struct ofs_counters *counters, struct optimfs_error *err)
{
	struct ofs_codec_cache *cache = calloc(1, sizeof(*cache));

	if (cache != NULL)
		cache->bucket = calloc(MIN_BUCKETS, sizeof(*cache->bucket));
	if (cache == NULL || cache->bucket == NULL) {
		free(cache);
		ofs_no_memory(err);
		return NULL;
	}
	cache->nbuckets = MIN_BUCKETS;
	cache->budget = budget;
	cache->counters = counters;
	TAILQ_INIT(&cache->memory);
	TAILQ_INIT(&cache->files);
	pthread_mutex_init(&cache->large, NULL);
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->done, NULL);
	return cache;
}

static void set_used(struct ofs_codec_cache *cache, uint64_t used)
{
	cache->used = used;
	atomic_store_explicit(&cache->counters->cached, used,
	    memory_order_relaxed);
}

/* Free an entry that is in no list and has no users. The lock is held. */
static void destroy(struct ofs_codec_cache *cache, struct ofs_decoded *d)
{
	if (d->hashed) {
		LIST_REMOVE(d, bucket);
		cache->n--;
	}
	if (d->spilled)
		cache->nfiles--;
	set_used(cache, cache->used - d->charged);
	ofs_store_fini(&d->store);
	free(d->failure);
	free(d);
}

static bool evict(struct ofs_codec_cache *cache, struct lru *from)
{
	struct ofs_decoded *d = TAILQ_FIRST(from);

	if (d == NULL)
		return false;
	TAILQ_REMOVE(from, d, lru);
	destroy(cache, d);
	return true;
}

void ofs_codec_cache_free(struct ofs_codec_cache *cache)
{
	if (cache == NULL)
		return;
	while (evict(cache, &cache->memory) || evict(cache, &cache->files))
		;
	pthread_cond_destroy(&cache->done);
	pthread_mutex_destroy(&cache->lock);
	pthread_mutex_destroy(&cache->large);
	free(cache->bucket);
	free(cache);
}

static struct bucket *bucket_of(struct ofs_codec_cache *cache, uint32_t object,
    uint64_t off)
{
	uint64_t h =
	    (off ^ (uint64_t)object << 40) * UINT64_C(0x9e3779b97f4a7c15);

	return &cache->bucket[(h >> 32) & (cache->nbuckets - 1)];
}

/* Double the buckets. Without memory the chains stay as they are. */
static void grow(struct ofs_codec_cache *cache)
{
	size_t n = cache->nbuckets;
	struct bucket *old = cache->bucket,
		      *more = calloc(n * 2, sizeof(*more));
	struct ofs_decoded *d;

	if (more == NULL)
		return;
	cache->bucket = more;
	cache->nbuckets = n * 2;
	for (size_t i = 0; i < n; i++)
		while ((d = LIST_FIRST(&old[i])) != NULL) {
			LIST_REMOVE(d, bucket);
			LIST_INSERT_HEAD(bucket_of(cache, d->object, d->off), d,
			    bucket);
		}
	free(old);
}

static struct ofs_decoded *find_decoded(struct ofs_codec_cache *cache,
    uint32_t object, uint64_t off, uint64_t len)
{
	struct ofs_decoded *d;

	LIST_FOREACH(d, bucket_of(cache, object, off), bucket)
	if (d->object == object && d->off == off && d->len == len)
		return d;
	return NULL;
}

bool ofs_codec_has(struct ofs_codec_cache *cache, uint32_t object, uint64_t off,
    uint64_t len)
{
	bool has;

	pthread_mutex_lock(&cache->lock);
	has = find_decoded(cache, object, off, len) != NULL;
	pthread_mutex_unlock(&cache->lock);
	return has;
}

/* Reserve n bytes of the budget for d. The lock is not held. */
static bool charge(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    uint64_t n)
{
	bool fits = d->charged + n <= cache->budget / ONE_SHARE;

	if (!fits)
		return false;
	pthread_mutex_lock(&cache->lock);
	while (cache->used + n > cache->budget && evict(cache, &cache->memory))
		;
	fits = cache->used + n <= cache->budget;
	if (fits) {
		d->charged += n;
		set_used(cache, cache->used + n);
	}
	pthread_mutex_unlock(&cache->lock);
	return fits;
}

static void uncharge(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    uint64_t n)
{
	pthread_mutex_lock(&cache->lock);
	d->charged -= n;
	set_used(cache, cache->used - n);
	pthread_mutex_unlock(&cache->lock);
}

/* Free an idle temporary file if that may help against err. */
static bool make_room(struct ofs_codec_cache *cache,
    const struct optimfs_error *err)
{
	bool freed;

	if (err->code != ENOSPC && err->code != EMFILE && err->code != ENFILE)
		return false;
	pthread_mutex_lock(&cache->lock);
	freed = evict(cache, &cache->files);
	pthread_mutex_unlock(&cache->lock);
	return freed;
}

static int spill(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    struct optimfs_error *err)
{
	uint64_t memory = ofs_store_memory(&d->store);

	pthread_mutex_lock(&cache->lock);
	while (cache->nfiles >= MAX_FILES && evict(cache, &cache->files))
		;
	cache->nfiles++;
	d->spilled = true;
	pthread_mutex_unlock(&cache->lock);
	while (ofs_store_spill(&d->store, err) == -1)
		if (!make_room(cache, err))
			return -1;
	uncharge(cache, d, memory);
	return 0;
}

/* The state of a decoder's callbacks. */
struct decode {
	struct ofs_codec_io io;
	struct ofs_codec_cache *cache;
	struct ofs_decoded *d;
	const struct ofs_codec_input *in;
	/* OFS_BLOCK bytes, of which fill are used; NULL: none yet */
	uint8_t *block;
	size_t fill;
};

static int decode_read(struct ofs_codec_io *io, uint64_t off, void *buf,
    uint64_t len, struct optimfs_error *err)
{
	struct decode *dec = (struct decode *)io;

	return dec->in->read(dec->in->ctx, off, buf, len, err);
}

static int put_block(struct decode *dec, struct optimfs_error *err)
{
	struct ofs_store *s = &dec->d->store;
	size_t n = dec->fill;

	dec->fill = 0;
	if (s->fd == -1 && charge(dec->cache, dec->d, n)) {
		if (ofs_store_append(s, &dec->block, n, err) == 0)
			return 0;
		uncharge(dec->cache, dec->d, n);
	}
	if (s->fd == -1 && spill(dec->cache, dec->d, err) == -1)
		return -1;
	while (ofs_store_append(s, &dec->block, n, err) == -1)
		if (!make_room(dec->cache, err))
			return -1;
	return 0;
}

/* After the first block more are likely: a huge page makes one page fault for
 * the whole block. */
static uint8_t *new_block(const struct ofs_store *s)
{
	return s->nblocks == 0 ? malloc(OFS_BLOCK) : ofs_alloc_huge(OFS_BLOCK);
}

static void *decode_room(struct ofs_codec_io *io, size_t *n,
    struct optimfs_error *err)
{
	struct decode *dec = (struct decode *)io;

	if (dec->block == NULL)
		dec->block = new_block(&dec->d->store);
	if (dec->block == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	*n = OFS_BLOCK - dec->fill;
	return dec->block + dec->fill;
}

static int decode_wrote(struct ofs_codec_io *io, size_t n,
    struct optimfs_error *err)
{
	struct decode *dec = (struct decode *)io;

	if (n > dec->d->max - dec->d->store.len - dec->fill)
		return optimfs_fail(err, E2BIG,
		    "OFS710 %s: item of %" PRIu64 " bytes at %" PRIu64
		    " decodes to more than %" PRIu64 " bytes",
		    io->name, io->len, io->off, dec->d->max);
	dec->fill += n;
	return dec->fill == OFS_BLOCK ? put_block(dec, err) : 0;
}

static int decode(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    const struct ofs_codec_input *in, struct optimfs_error *err)
{
	struct decode dec = {
		.io = {
			.read = decode_read,
			.room = decode_room,
			.wrote = decode_wrote,
			.name = in->name,
			.off = in->off,
			.len = in->len,
			.large = &cache->large,
		},
		.cache = cache,
		.d = d,
		.in = in,
	};
	ofs_decode_fn *fn = NULL;
	int ret;

	if (in->codec < sizeof(decoders) / sizeof(decoders[0]))
		fn = decoders[in->codec];
	if (fn == NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS711 %s: item at %" PRIu64
		    " is compressed: this build has no zstd",
		    in->name, in->off);
	ret = fn(&dec.io, err);
	if (ret == 0 && dec.fill > 0)
		ret = put_block(&dec, err);
	free(dec.block);
	return ret;
}

/* Is the failure a property of the extent? */
static bool lasts(const struct optimfs_error *err)
{
	return err->code == EBADMSG || err->code == EUCLEAN ||
	    err->code == EOPNOTSUPP || err->number == 701 || err->number == 702;
}

/* End decoding and wake the threads that wait. The lock is held. */
static void finish(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    const struct optimfs_error *err)
{
	d->decoding = false;
	if (err != NULL) {
		if (d->failure != NULL)
			*d->failure = *err;
		ofs_store_fini(&d->store);
		set_used(cache, cache->used - d->charged + sizeof(*d));
		d->charged = sizeof(*d);
		if (d->spilled)
			cache->nfiles--;
		d->spilled = false;
	} else {
		free(d->failure);
		d->failure = NULL;
	}
	if (err != NULL && !lasts(err)) {
		LIST_REMOVE(d, bucket);
		d->hashed = false;
		cache->n--;
	}
	pthread_cond_broadcast(&cache->done);
}

/* Add an entry, which this thread must decode. The lock is held. */
static struct ofs_decoded *add_decoded(struct ofs_codec_cache *cache,
    const struct ofs_codec_input *in, uint64_t max, struct optimfs_error *err)
{
	struct ofs_decoded *d = calloc(1, sizeof(*d));

	if (d != NULL)
		d->failure = calloc(1, sizeof(*d->failure));
	if (d == NULL || d->failure == NULL) {
		free(d);
		ofs_no_memory(err);
		return NULL;
	}
	d->object = in->object;
	d->off = in->off;
	d->len = in->len;
	d->max = max < OFS_DECODED_MAX ? max : OFS_DECODED_MAX;
	d->refs = 1;
	d->decoding = true;
	d->hashed = true;
	d->store.fd = -1;
	d->charged = sizeof(*d);
	set_used(cache, cache->used + sizeof(*d));
	if (++cache->n > cache->nbuckets)
		grow(cache);
	LIST_INSERT_HEAD(bucket_of(cache, in->object, in->off), d, bucket);
	return d;
}

static void put_locked(struct ofs_codec_cache *cache, struct ofs_decoded *d)
{
	if (--d->refs > 0)
		return;
	if (!d->hashed) {
		destroy(cache, d);
		return;
	}
	TAILQ_INSERT_TAIL(d->spilled ? &cache->files : &cache->memory, d, lru);
	while (cache->used > cache->budget && evict(cache, &cache->memory))
		;
}

/* Pin the entry of in and wait until it is decoded. NULL when there is no
 * entry. The lock is held. */
static struct ofs_decoded *pin(struct ofs_codec_cache *cache,
    const struct ofs_codec_input *in)
{
	struct ofs_decoded *d =
	    find_decoded(cache, in->object, in->off, in->len);

	if (d == NULL)
		return NULL;
	if (d->refs++ == 0)
		TAILQ_REMOVE(d->spilled ? &cache->files : &cache->memory, d,
		    lru);
	while (d->decoding)
		pthread_cond_wait(&cache->done, &cache->lock);
	return d;
}

static void count(struct ofs_codec_cache *cache, bool hit)
{
	atomic_fetch_add_explicit(hit ? &cache->counters->hits
				      : &cache->counters->misses,
	    1, memory_order_relaxed);
}

/* Decode a new entry. Called with the lock, which is released meanwhile. */
static void decode_new(struct ofs_codec_cache *cache, struct ofs_decoded *d,
    const struct ofs_codec_input *in, struct optimfs_error *err)
{
	int ret;

	pthread_mutex_unlock(&cache->lock);
	ret = decode(cache, d, in, err);
	pthread_mutex_lock(&cache->lock);
	finish(cache, d, ret == 0 ? NULL : err);
	if (ret == 0)
		atomic_fetch_add_explicit(&cache->counters->decoded,
		    d->store.len, memory_order_relaxed);
}

/* Did decoding stop at a max, set by another thread, that is lower than this
 * one? Then it must be repeated. */
static bool too_short(const struct ofs_decoded *d, uint64_t max)
{
	return d->failure != NULL && d->failure->code == E2BIG && !d->hashed &&
	    d->max < max && d->max < OFS_DECODED_MAX;
}

struct ofs_decoded *ofs_codec_get(struct ofs_codec_cache *cache,
    const struct ofs_codec_input *in, uint64_t max, struct optimfs_error *err)
{
	struct ofs_decoded *d;
	bool failed = false;

	err = OFS_SOME_ERROR(err);
	pthread_mutex_lock(&cache->lock);
	while ((d = pin(cache, in)) != NULL && too_short(d, max))
		put_locked(cache, d);
	count(cache, d != NULL);
	if (d == NULL) {
		d = add_decoded(cache, in, max, err);
		if (d != NULL)
			decode_new(cache, d, in, err);
	}
	if (d != NULL && d->failure != NULL) {
		*err = *d->failure;
		failed = true;
	} else if (d != NULL && d->store.len > max) {
		optimfs_fail(err, E2BIG,
		    "OFS710 %s: item of %" PRIu64 " bytes at %" PRIu64
		    " decodes to %" PRIu64 " bytes, more than %" PRIu64,
		    in->name, in->len, in->off, d->store.len, max);
		failed = true;
	}
	if (failed) {
		put_locked(cache, d);
		d = NULL;
	}
	pthread_mutex_unlock(&cache->lock);
	return d;
}

void ofs_codec_put(struct ofs_codec_cache *cache, struct ofs_decoded *d)
{
	pthread_mutex_lock(&cache->lock);
	put_locked(cache, d);
	pthread_mutex_unlock(&cache->lock);
}

struct ofs_source ofs_decoded_source(struct ofs_decoded *d)
{
	return ofs_store_source(&d->store);
}
