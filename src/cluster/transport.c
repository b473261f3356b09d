/* world.c - segments of files of this machine and of other ranks' */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/transport.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

struct world {
	struct ofs_transport t;
	struct ofs_manifest *share; /* held */
	struct ofs_transport *local;
	/* By object: its number among the shared files; OFS_NONE: here. */
	uint32_t *there;
};

static void count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Put the segments of one side into out: how many. */
static size_t pick(const struct world *w, const struct ofs_segment *segs,
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

static int fetch_there(struct world *w, const struct ofs_segment *segs,
    size_t n, uint64_t bytes, void *buf, struct optimfs_error *err)
{
	uint64_t began = ofs_clock_ns();
	int ret = ofs_remote_fetch(w->share, segs, n, buf, err);

	count(&w->t.counters.requests, 1);
	count(&w->t.counters.bytes, bytes);
	count(&w->t.counters.wait_ns, ofs_clock_ns() - began);
	return ret;
}

static int world_fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct world *w = (struct world *)t;
	struct ofs_segment few[16], *part = few;
	uint64_t bytes = 0, unwanted;
	size_t m;
	int ret = 0;

	if (n > sizeof(few) / sizeof(*few))
		part = malloc(n * sizeof(*part));
	if (part == NULL)
		return optimfs_fail(err, ENOMEM, "%zu segments", n);
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

static int world_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct world *w = (struct world *)t;
	struct ofs_extent there = *at;

	if (w->there[at->object] == OFS_NONE)
		return w->local->ops->length(w->local, at, max, len, err);
	there.object = w->there[at->object];
	return ofs_remote_length(w->share, &there, max, len, err);
}

static void world_close(struct ofs_transport *t)
{
	struct world *w = (struct world *)t;

	ofs_transport_close(w->local);
	ofs_manifest_let(w->share);
	free(w->there);
	free(w);
}

static const struct ofs_transport_ops world_ops = {
	.name = "ranks",
	.fetch = world_fetch,
	.length = world_length,
	.close = world_close,
};

struct ofs_transport *ofs_transport_world(const struct ofs_catalog *cat,
    struct ofs_manifest *share, uint64_t cache, struct optimfs_error *err)
{
	/* a rank that is alone gathers from itself if it has another way */
	bool alone = share->world->size == 1 && share->world->gather != NULL;
	bool (*is_there)(const struct ofs_dir *, const char *, uint32_t *) =
	    alone ? ofs_dir_shared : ofs_dir_elsewhere;
	struct world *w = calloc(1, sizeof(*w));

	if (w != NULL)
		w->there = calloc((size_t)cat->nobjects + 1, sizeof(*w->there));
	if (w == NULL || w->there == NULL) {
		free(w);
		optimfs_fail(err, ENOMEM, "a transport");
		return NULL;
	}
	w->t.ops = &world_ops;
	w->share = ofs_manifest_hold(share);
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (!is_there(&cat->dir, cat->objects[i].path, &w->there[i]))
			w->there[i] = OFS_NONE;
	w->local = ofs_transport_local(cat, cache, err);
	if (w->local != NULL)
		return &w->t;
	world_close(&w->t);
	return NULL;
}

struct ofs_transport *ofs_transport_world_local(struct ofs_transport *t)
{
	return t->ops == &world_ops ? ((struct world *)t)->local : NULL;
}
