/* local.c - segments of files of this machine */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/local.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/codec.h"
#include "store/files.h"
#include "store/gather.h"
#include "store/transport.h"
#include "store/workers.h"

/* The most scratch buffers that are kept for later fetches. */
#define MAX_SCRATCH 32

struct local {
	struct ofs_transport t;
	const struct ofs_catalog *cat;
	const struct ofs_pins_ops *pins;
	void *files; /* of pins */
	struct ofs_codec_cache *codecs;
	uint64_t cache; /* its budget */
	struct ofs_workers *workers;
	pthread_mutex_t lock; /* guards scratch and nscratch */
	uint8_t *scratch[MAX_SCRATCH];
	size_t nscratch;
};

/* The last one used is likely still in the processor's cache. */
static uint8_t *get_scratch(struct local *l, struct optimfs_error *err)
{
	uint8_t *s = NULL;

	pthread_mutex_lock(&l->lock);
	if (l->nscratch > 0)
		s = l->scratch[--l->nscratch];
	pthread_mutex_unlock(&l->lock);
	if (s == NULL)
		s = malloc(OFS_SCRATCH);
	if (s == NULL)
		ofs_no_memory(err);
	return s;
}

static void put_scratch(struct local *l, uint8_t *s)
{
	pthread_mutex_lock(&l->lock);
	if (l->nscratch < MAX_SCRATCH) {
		l->scratch[l->nscratch++] = s;
		s = NULL;
	}
	pthread_mutex_unlock(&l->lock);
	free(s);
}

/* A pinned file as the input of a codec. */
struct encoded {
	struct ofs_source file;
	uint64_t off;
	const _Atomic bool *stop; /* NULL: a reader waits for it */
};

static int encoded_read(void *ctx, uint64_t off, void *buf, uint64_t len,
    struct optimfs_error *err)
{
	struct encoded *e = ctx;
	struct iovec iov = { buf, len };

	if (e->stop != NULL && atomic_load(e->stop))
		return optimfs_fail(err, ECANCELED, "given up");
	return e->file.readv(&e->file, &iov, 1, e->off + off, err);
}

/* Decode an extent of a pinned file, unless it is decoded. */
static struct ofs_decoded *get_decoded(struct local *l, void *file,
    const struct ofs_extent *at, uint64_t max, const _Atomic bool *stop,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &l->cat->objects[at->object];
	struct encoded e = { l->pins->source(l->files, file), at->off,
		stop };
	struct ofs_codec_input in = {
		.name = o->path,
		.object = at->object,
		.off = at->off,
		.len = at->len,
		.codec = at->codec,
		.read = encoded_read,
		.ctx = &e,
	};

	if (at->off > o->size || at->len > o->size - at->off) {
		ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603", o->path,
		    " is short: it ends at byte %" PRIu64
		    ", and an item of %" PRIu64 " bytes starts at %" PRIu64,
		    o->size, at->len, at->off);
		return NULL;
	}
	return ofs_codec_get(l->codecs, &in, max, err);
}

static int too_short(const struct ofs_object *o, const struct ofs_segment *seg,
    uint64_t size, struct optimfs_error *err)
{
	if (seg->codec != OFS_PLAIN)
		return optimfs_fail(err, EUCLEAN,
		    "OFS705 %s: item of %" PRIu64 " bytes at %" PRIu64
		    " decodes to %" PRIu64 " bytes; %" PRIu64 " x %" PRIu64
		    " bytes from %" PRIu64 " on are needed",
		    o->path, seg->ext_len, seg->ext_off, size, seg->n, seg->len,
		    seg->src);
	if (ofs_object_pointer(o, err))
		return -1;
	return ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603", o->path,
	    " is short: it ends at byte %" PRIu64 ", and bytes from %" PRIu64
	    " on are needed",
	    size, seg->src < size ? size : seg->src);
}

static int check_inside(const struct local *l, const struct ofs_source *s,
    const struct ofs_segment *segs, size_t n, struct optimfs_error *err)
{
	for (size_t i = 0; i < n; i++)
		if (!ofs_segment_inside(&segs[i], s->size))
			return too_short(&l->cat->objects[segs[i].object],
			    &segs[i], s->size, err);
	return 0;
}

/* Fetch n segments of one source: a file or a decoded extent. */
static int fetch_source(struct local *l, void *file,
    const struct ofs_segment *segs, size_t n, uint8_t *buf, uint8_t *scratch,
    struct optimfs_error *err)
{
	struct ofs_extent at = { .object = segs->object,
		.codec = segs->codec,
		.off = segs->ext_off,
		.len = segs->ext_len };
	struct ofs_source s = l->pins->source(l->files, file);
	struct ofs_decoded *d = NULL;
	int ret;

	if (segs->codec != OFS_PLAIN) {
		d = get_decoded(l, file, &at, UINT64_MAX, NULL, err);
		if (d == NULL)
			return -1;
		s = ofs_decoded_source(d);
	}
	ret = check_inside(l, &s, segs, n, err);
	if (ret == 0)
		ret = ofs_gather(&s, segs, n, buf, scratch, err);
	if (d != NULL)
		ofs_codec_put(l->codecs, d);
	return ret;
}

static bool same_source(const struct ofs_segment *a,
    const struct ofs_segment *b)
{
	return a->object == b->object && a->codec == b->codec &&
	    (a->codec == OFS_PLAIN ||
		(a->ext_off == b->ext_off && a->ext_len == b->ext_len));
}

/* Run by a worker. Its result, or its failure, is in the cache for readers. */
static void decode_now(void *ctx, const struct ofs_extent *at,
    const _Atomic bool *stop)
{
	struct local *l = ctx;
	struct optimfs_error err;
	void *file = l->pins->get(l->files, at->object, &err);
	struct ofs_decoded *d;

	if (file == NULL)
		return;
	d = get_decoded(l, file, at, UINT64_MAX, stop, &err);
	if (d != NULL)
		ofs_codec_put(l->codecs, d);
	l->pins->put(l->files, file);
}

/* Takes one extent more than there are workers: the one that the reader waits
 * for. All must fit in half of the budget. */
static void local_decode(struct ofs_transport *t, const struct ofs_extent *at,
    size_t n, uint64_t bytes)
{
	struct local *l = (struct local *)t;
	size_t most = ofs_workers_most(l->workers) + 1;

	if (n > most)
		n = most;
	if (n > 0 && bytes > l->cache / 2 / n)
		return;
	for (size_t i = 0; i < n; i++)
		if (!ofs_codec_has(l->codecs, at[i].object, at[i].off,
			at[i].len))
			ofs_workers_add(l->workers, &at[i]);
}

/* All requests go to the disk at once, not each after the previous one. */
static void local_willneed(struct ofs_transport *t, const struct ofs_extent *at,
    size_t n)
{
	struct local *l = (struct local *)t;
	struct optimfs_error err;
	void *file;

	for (size_t i = 0; i < n; i++) {
		file = l->pins->get(l->files, at[i].object, &err);
		if (file == NULL)
			continue; /* reading it will report the error */
		l->pins->willneed(file, at[i].off, at[i].len);
		l->pins->put(l->files, file);
	}
}

/* While an extent is decoded, workers decode those of the next segments. Their
 * decoded lengths are unknown; four times the encoded length is an estimate. */
static void decode_next(struct local *l, const struct ofs_segment *segs,
    size_t n)
{
	struct ofs_extent at[OFS_WORKERS_MOST + 1] = { 0 };
	size_t most = ofs_workers_most(l->workers) + 1, found = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < n && found < most; i++) {
		if (segs[i].codec == OFS_PLAIN ||
		    (i > 0 && same_source(&segs[i - 1], &segs[i])))
			continue;
		at[found++] = (struct ofs_extent){ .object = segs[i].object,
			.codec = segs[i].codec,
			.off = segs[i].ext_off,
			.len = segs[i].ext_len };
		if (segs[i].ext_len * 4 > bytes)
			bytes = segs[i].ext_len * 4;
	}
	/* the calling thread decodes the first */
	if (found > 1)
		local_decode(&l->t, at + 1, found - 1, bytes);
}

/* Fetch n segments of one object; rest is the number of segments not yet
 * fetched, with these. If the file has changed, that is the error, rather than
 * the failure to read it. */
static int fetch_object(struct local *l, const struct ofs_segment *segs,
    size_t n, size_t rest, uint8_t *buf, uint8_t *scratch,
    struct optimfs_error *err)
{
	void *file = l->pins->get(l->files, segs->object, err);
	int ret = 0;

	if (file == NULL)
		return -1;
	for (size_t i = 0, j; i < n && ret == 0; i = j) {
		for (j = i + 1; j < n && same_source(&segs[i], &segs[j]); j++)
			;
		if (segs[i].codec != OFS_PLAIN)
			decode_next(l, segs + i, rest - i);
		ret = fetch_source(l, file, segs + i, j - i, buf, scratch, err);
	}
	if (l->pins->check(l->files, file, err) == -1)
		ret = -1;
	l->pins->put(l->files, file);
	return ret;
}

static int by_source(const void *a, const void *b)
{
	const struct ofs_segment *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	if (x->codec != y->codec)
		return x->codec < y->codec ? -1 : 1;
	if (x->codec != OFS_PLAIN && x->ext_off != y->ext_off)
		return x->ext_off < y->ext_off ? -1 : 1;
	if (x->codec != OFS_PLAIN && x->ext_len != y->ext_len)
		return x->ext_len < y->ext_len ? -1 : 1;
	return x->src < y->src ? -1 : x->src > y->src;
}

static bool is_sorted(const struct ofs_segment *segs, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (by_source(&segs[i - 1], &segs[i]) > 0)
			return false;
	return true;
}

/* segs sorted by source: segs itself, or a copy that the caller frees. */
static const struct ofs_segment *sort(const struct ofs_segment *segs, size_t n,
    struct ofs_segment **copy, struct optimfs_error *err)
{
	*copy = NULL;
	if (is_sorted(segs, n))
		return segs;
	*copy = malloc(n * sizeof(**copy));
	if (*copy == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	memcpy(*copy, segs, n * sizeof(*segs));
	qsort(*copy, n, sizeof(**copy), by_source);
	return *copy;
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static int local_fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct local *l = (struct local *)t;
	uint64_t began = ofs_clock_ns(), bytes = 0;
	struct ofs_segment *copy;
	uint8_t *scratch;
	int ret = -1;

	if (n == 0)
		return 0;
	err = OFS_SOME_ERROR(err);
	segs = sort(segs, n, &copy, err);
	scratch = segs == NULL ? NULL : get_scratch(l, err);
	if (scratch != NULL)
		ret = 0;
	for (size_t i = 0, j; i < n && ret == 0; i = j) {
		for (j = i; j < n && segs[i].object == segs[j].object; j++)
			bytes += segs[j].len * segs[j].n;
		ret =
		    fetch_object(l, segs + i, j - i, n - i, buf, scratch, err);
	}
	if (scratch != NULL)
		put_scratch(l, scratch);
	free(copy);
	count(&t->counters.requests, 1);
	count(&t->counters.bytes, bytes);
	count(&t->counters.wait_ns, ofs_clock_ns() - began);
	return ret;
}

static int local_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct local *l = (struct local *)t;
	struct ofs_decoded *d;
	void *file;
	uint64_t size = 0;
	int ret = -1;

	err = OFS_SOME_ERROR(err);
	file = l->pins->get(l->files, at->object, err);
	if (file == NULL)
		return -1;
	d = get_decoded(l, file, at, max, NULL, err);
	if (d != NULL) {
		size = ofs_decoded_source(d).size;
		ofs_codec_put(l->codecs, d);
		ret = 0;
	}
	if (l->pins->check(l->files, file, err) == -1)
		ret = -1;
	l->pins->put(l->files, file);
	if (ret == 0)
		*len = size;
	return ret;
}

static bool local_hole(struct ofs_transport *t, const struct ofs_segment *seg)
{
	struct local *l = (struct local *)t;
	const struct ofs_object *o = &l->cat->objects[seg->object];
	struct optimfs_error err;
	void *file;
	bool hole;

	if (seg->src_pitch < 0 || !ofs_segment_inside(seg, o->size))
		return false;
	file = l->pins->get(l->files, seg->object, &err);
	if (file == NULL)
		return false; /* reading it will report the error */
	hole = l->pins->hole(l->files, file, seg->src,
	    seg->len + (seg->n - 1) * (uint64_t)seg->src_pitch);
	l->pins->put(l->files, file);
	return hole;
}

static void local_close(struct ofs_transport *t)
{
	struct local *l = (struct local *)t;

	ofs_workers_free(l->workers); /* first, because they use all others */
	while (l->nscratch > 0)
		free(l->scratch[--l->nscratch]);
	ofs_codec_cache_free(l->codecs);
	if (l->files != NULL)
		l->pins->free(l->files);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static const struct ofs_transport_ops local_ops = {
	.name = "local",
	.fetch = local_fetch,
	.length = local_length,
	.willneed = local_willneed,
	.decode = local_decode,
	.hole = local_hole,
	.close = local_close,
};

struct ofs_transport *ofs_transport_pinned(const struct ofs_catalog *cat,
    const struct ofs_pins_ops *pins, void *ctx, uint64_t cache,
    struct optimfs_error *err)
{
	struct local *l = ofs_alloc(1, sizeof(*l), err);

	if (l == NULL)
		return NULL;
	l->t.ops = &local_ops;
	l->cat = cat;
	l->cache = cache;
	l->pins = pins;
	pthread_mutex_init(&l->lock, NULL);
	l->files = pins->new(ctx, cat, &l->t.counters, err);
	if (l->files != NULL)
		l->codecs = ofs_codec_cache_new(cache, &l->t.counters, err);
	if (l->codecs != NULL)
		l->workers = ofs_workers_new(decode_now, l, err);
	if (l->workers == NULL) {
		local_close(&l->t);
		return NULL;
	}
	return &l->t;
}

struct ofs_transport *ofs_transport_local(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err)
{
	return ofs_transport_pinned(cat, &ofs_open_files_pins, NULL, cache,
	    err);
}

struct ofs_transport *ofs_transport_of(const struct ofs_catalog *cat,
    uint64_t cache, struct optimfs_error *err)
{
	const struct ofs_namespace *e = cat->dir.names;

	return e == NULL ? ofs_transport_local(cat, cache, err)
			 : e->ops->transport(e, cat, cache, err);
}
