/* transport.c - fetch segments from this machine and other ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/memory.h"
#include "store/local.h"

/* Limit of bytes read ahead, for all readers together. */
#define AHEAD_MAX ((uint64_t)64 << 20)

/* Segments that a reader will fetch, as stored on the other rank. */
struct ahead {
	TAILQ_ENTRY(ahead) next;
	const void *reader;
	struct ofs_remote_ahead *coming;
	uint64_t bytes;
	size_t n;
	struct ofs_segment seg[];
};

struct remote {
	struct ofs_transport t;
	struct ofs_manifest *manifest; /* a reference */
	struct ofs_transport *local;
	/* By object: its index in the manifest; OFS_NONE: local. */
	uint32_t *there;
	pthread_mutex_t lock;       /* protects the members below */
	TAILQ_HEAD(, ahead) aheads; /* oldest first */
	uint64_t ahead_bytes;
};

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Copies the segments of one side to out; returns their number. */
static size_t pick(const struct remote *w, const struct ofs_segment *segs,
    size_t n, bool there, struct ofs_segment *out, uint64_t *bytes)
{
	size_t picked = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t file = w->there[segs[i].object];

		if ((file != OFS_NONE) != there)
			continue;
		out[picked] = segs[i];
		if (there)
			out[picked].object = file;
		*bytes += segs[i].len * segs[i].n;
		picked++;
	}
	return picked;
}

static bool same_segments(const struct ofs_segment *a,
    const struct ofs_segment *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i].object != b[i].object || a[i].codec != b[i].codec ||
		    a[i].ext_off != b[i].ext_off ||
		    a[i].ext_len != b[i].ext_len || a[i].src != b[i].src ||
		    a[i].dst != b[i].dst || a[i].len != b[i].len ||
		    a[i].n != b[i].n || a[i].src_pitch != b[i].src_pitch ||
		    a[i].dst_pitch != b[i].dst_pitch)
			return false;
	return true;
}

/* The lock is held. */
static void unlink_ahead(struct remote *w, struct ahead *a)
{
	TAILQ_REMOVE(&w->aheads, a, next);
	w->ahead_bytes -= a->bytes;
}

/* Takes segments that were read ahead; false if they were not. */
static bool fetch_ahead(struct remote *w, const struct ofs_segment *segs,
    size_t n, void *buf)
{
	struct ahead *a;
	int ret;

	pthread_mutex_lock(&w->lock);
	TAILQ_FOREACH(a, &w->aheads, next)
	if (a->n == n && same_segments(a->seg, segs, n))
		break;
	if (a != NULL)
		unlink_ahead(w, a);
	pthread_mutex_unlock(&w->lock);
	if (a == NULL)
		return false;
	ret = ofs_remote_arrived(a->coming, buf);
	free(a);
	return ret == 0;
}

static int fetch_there(struct remote *w, const struct ofs_segment *segs,
    size_t n, uint64_t bytes, void *buf, struct optimfs_error *err)
{
	uint64_t began = ofs_clock_ns();
	int ret = 0;

	if (!fetch_ahead(w, segs, n, buf))
		ret = ofs_remote_fetch(w->manifest, segs, n, buf, err);
	count(&w->t.counters.requests, 1);
	count(&w->t.counters.bytes, bytes);
	count(&w->t.counters.wait_ns, ofs_clock_ns() - began);
	return ret;
}

static int remote_fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct remote *w = (struct remote *)t;
	struct ofs_segment few[16], *part = few;
	uint64_t bytes = 0, unwanted;
	size_t m;
	int ret = 0;

	if (n > sizeof(few) / sizeof(*few))
		part = malloc(n * sizeof(*part));
	if (part == NULL)
		return ofs_no_memory(err);
	m = pick(w, segs, n, true, part, &bytes);
	if (m > 0)
		ret = fetch_there(w, part, m, bytes, buf, err);
	if (ret == 0 && m < n) {
		m = pick(w, segs, n, false, part, &unwanted);
		ret = ofs_transport_fetch(w->local, part, m, buf, err);
	}
	if (part != few)
		free(part);
	return ret;
}

static int remote_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct remote *w = (struct remote *)t;
	struct ofs_extent there = *at;

	if (w->there[at->object] == OFS_NONE)
		return w->local->ops->length(w->local, at, max, len, err);
	there.object = w->there[at->object];
	return ofs_remote_length(w->manifest, &there, max, len, err);
}

/* Drops those of a reader; or (NULL) the oldest of all readers from max bytes on. */
static void drop_aheads(struct remote *w, const void *reader, uint64_t max)
{
	TAILQ_HEAD(, ahead) over = TAILQ_HEAD_INITIALIZER(over);
	struct ahead *a, *next;

	pthread_mutex_lock(&w->lock);
	for (a = TAILQ_FIRST(&w->aheads); a != NULL; a = next) {
		next = TAILQ_NEXT(a, next);
		if (reader == NULL ? w->ahead_bytes < max : a->reader != reader)
			continue;
		unlink_ahead(w, a);
		TAILQ_INSERT_TAIL(&over, a, next);
	}
	pthread_mutex_unlock(&w->lock);
	while ((a = TAILQ_FIRST(&over)) != NULL) {
		TAILQ_REMOVE(&over, a, next);
		ofs_remote_drop(a->coming);
		free(a);
	}
}

static void remote_ahead(struct ofs_transport *t, const void *reader,
    const struct ofs_segment *segs, size_t n)
{
	struct remote *w = (struct remote *)t;
	const struct optimfs_group *group = w->manifest->group;
	struct ahead *a;

	if (n == 0) {
		drop_aheads(w, reader, 0);
		return;
	}
	if (group->gather != NULL && group->gather->is_used(group))
		return;
	a = malloc(sizeof(*a) + n * sizeof(*segs));
	if (a == NULL)
		return;
	*a = (struct ahead){ .reader = reader };
	a->n = pick(w, segs, n, true, a->seg, &a->bytes);
	a->coming =
	    a->n == 0 ? NULL : ofs_remote_ahead(w->manifest, a->seg, a->n);
	if (a->coming == NULL) {
		free(a);
		return;
	}
	pthread_mutex_lock(&w->lock);
	TAILQ_INSERT_TAIL(&w->aheads, a, next);
	w->ahead_bytes += a->bytes;
	pthread_mutex_unlock(&w->lock);
	drop_aheads(w, NULL, AHEAD_MAX);
}

static bool remote_hole(struct ofs_transport *t, const struct ofs_segment *seg)
{
	struct remote *w = (struct remote *)t;

	return w->there[seg->object] == OFS_NONE &&
	    ofs_transport_hole(w->local, seg);
}

static void remote_close(struct ofs_transport *t)
{
	struct remote *w = (struct remote *)t;

	drop_aheads(w, NULL, 0);
	pthread_mutex_destroy(&w->lock);
	ofs_transport_close(w->local);
	ofs_manifest_let(w->manifest);
	free(w->there);
	free(w);
}

static const struct ofs_transport_ops remote_ops = {
	.name = "ranks",
	.fetch = remote_fetch,
	.length = remote_length,
	.close = remote_close,
	.ahead = remote_ahead,
	.hole = remote_hole,
};

struct ofs_transport *ofs_transport_group(const struct ofs_catalog *cat,
    struct ofs_manifest *manifest, uint64_t cache, struct optimfs_error *err)
{
	/* a single rank gathers from itself if it has another way */
	bool alone =
	    manifest->group->size == 1 && manifest->group->gather != NULL;
	bool (*is_there)(const struct ofs_dir *, const char *, uint32_t *) =
	    alone ? ofs_dir_shared : ofs_dir_remote;
	struct remote *w = calloc(1, sizeof(*w));

	if (w != NULL)
		w->there = calloc((size_t)cat->nobjects + 1, sizeof(*w->there));
	if (w == NULL || w->there == NULL) {
		free(w);
		ofs_no_memory(err);
		return NULL;
	}
	w->t.ops = &remote_ops;
	pthread_mutex_init(&w->lock, NULL);
	TAILQ_INIT(&w->aheads);
	w->manifest = ofs_manifest_hold(manifest);
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (!is_there(&cat->dir, cat->objects[i].path, &w->there[i]))
			w->there[i] = OFS_NONE;
	w->local = ofs_transport_local(cat, cache, err);
	if (w->local != NULL)
		return &w->t;
	remote_close(&w->t);
	return NULL;
}

struct ofs_transport *ofs_transport_group_local(struct ofs_transport *t)
{
	return t->ops == &remote_ops ? ((struct remote *)t)->local : NULL;
}
