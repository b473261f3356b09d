/* fetch_stream.c - segments that are read once, in order, as they come */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "store/http/fetch_impl.h"

/* The end of an item says where its elements are, so the reader of one waits for
 * all of it, while the next one comes. */
#define RANGES_AHEAD 2
#define LEAST_AHEAD  (UINT64_C(16) << 20)

struct ofs_http_expected {
	struct ofs_http_stream *stream;
	struct ofs_http_slab *slab;
	uint32_t file;
	struct ofs_http_version is; /* of the file, as far as it is told */
	bool is_told;
};

struct ofs_http_stream {
	struct ofs_http_site *s;
	struct ofs_http_flow *flow;
	struct ofs_http_range *range;
	struct ofs_http_expected *expected; /* of each */
	size_t n;
	struct ofs_http_round *round;
	pthread_t thread;
	pthread_mutex_t lock; /* protects what is told */
};

/* What answers say has to agree before their bytes are read: later it would be too
 * late to refuse them. */
static bool agrees(struct ofs_http_expected *x,
    const struct ofs_http_version *is)
{
	struct ofs_http_stream *st = x->stream;
	bool same = true;

	pthread_mutex_lock(&st->lock);
	for (size_t i = 0; i < st->n && same; i++) {
		const struct ofs_http_expected *other = &st->expected[i];

		if (other->file == x->file && other->is_told)
			same = ofs_http_same(&other->is, is);
	}
	x->is = *is;
	x->is_told = true;
	pthread_mutex_unlock(&st->lock);
	return same;
}

enum ofs_http_take ofs_http_take_expected(void *ctx,
    const struct ofs_http_version *is, const void *p, size_t n)
{
	struct ofs_http_expected *x = ctx;

	return x->is_told || agrees(x, is) ? ofs_http_flow_take(x->slab, p, n)
					   : OFS_HTTP_NEVER;
}

static int expect_range(struct ofs_http_stream *st, struct ofs_http_range *r,
    uint64_t start, struct optimfs_error *err)
{
	struct ofs_http_expected *x = &st->expected[st->n];

	r->at = r->first - r->first % OFS_HTTP_BLOCK;
	r->len = r->end - r->at;
	r->direct = true;
	r->expected = x;
	x->stream = st;
	x->file = r->file;
	x->slab = ofs_http_flow_expect(st->flow, start, r->file,
	    r->at / OFS_HTTP_BLOCK, (size_t)r->len, err);
	st->range[st->n] = *r;
	st->n += x->slab != NULL;
	return x->slab == NULL ? -1 : 0;
}

static int expect_all(struct ofs_http_stream *st,
    const struct ofs_segment *segs, size_t n, struct optimfs_error *err)
{
	struct ofs_http_fetching f = { .s = st->s };
	size_t part = 0;
	int ret = ofs_http_cut(&f, segs, n, err);

	st->range = ofs_alloc(f.n + 1, sizeof(*st->range), err);
	st->expected = ofs_alloc(f.n + 1, sizeof(*st->expected), err);
	if (st->range == NULL || st->expected == NULL)
		ret = -1;
	while (ret == 0 && part < f.n) {
		struct ofs_http_range r = ofs_http_join_parts(&f, part);

		ret = expect_range(st, &r, f.part[part].dst, err);
		part += r.n;
	}
	free(f.part);
	return ret;
}

/* Fetches ranges from *next on. */
static int stream_round(struct ofs_http_stream *st, size_t *next,
    struct optimfs_error *err)
{
	struct ofs_http_fetching f = { .s = st->s };
	struct ofs_http_round *k = st->round;
	size_t first = *next;
	int ret = 0;

	k->n = k->asked = 0;
	while (ret == 0 && *next < st->n &&
	    k->n < st->s->http->limits.requests) {
		k->r[k->n] = st->range[(*next)++];
		ret = ofs_http_add_request(&f, k, &k->r[k->n++], err);
	}
	if (ret == 0)
		ret = ofs_http_ask_round(&f, k, err);
	ofs_http_end_round(st->s, k);
	for (size_t i = first; i < *next; i++)
		ofs_http_flow_end(st->expected[i].slab);
	return ret;
}

static void *stream_all(void *ctx)
{
	struct ofs_http_stream *st = ctx;
	struct optimfs_error err = { 0 };
	size_t next = 0;
	int ret = 0;

	while (ret == 0 && next < st->n)
		ret = stream_round(st, &next, &err);
	/* whoever needs the others will see why they cannot be had */
	for (; next < st->n; next++)
		ofs_http_flow_end(st->expected[next].slab);
	if (ret == -1)
		ofs_http_note_late(st->s, &err);
	return NULL;
}

static void ask_again(void *ctx)
{
	struct ofs_http_stream *st = ctx;

	st->s->http->ops->go_on(st->s->http->m);
}

static void free_stream(struct ofs_http_stream *st)
{
	ofs_http_flow_free(st->flow);
	pthread_mutex_destroy(&st->lock);
	free(st->expected);
	free(st->range);
	free(st->round);
	free(st);
}

struct ofs_http_stream *ofs_http_stream(struct ofs_http_site *s,
    const struct ofs_segment *segs, size_t n)
{
	uint64_t ahead = RANGES_AHEAD * (s->http->limits.range + OFS_HTTP_REST);
	struct ofs_http_stream *st;

	if (ahead < LEAST_AHEAD)
		ahead = LEAST_AHEAD;
	/* what is kept on a disk, or is asked of several, is kept in memory
	 * until it is complete */
	if (s->disk != NULL || s->nhosts > 1)
		return NULL;
	st = ofs_alloc(1, sizeof(*st), NULL);
	if (st == NULL)
		return NULL;
	st->s = s;
	pthread_mutex_init(&st->lock, NULL);
	st->round = ofs_alloc(1, sizeof(*st->round), NULL);
	st->flow = ofs_http_flow_new(s->blocks, ahead, ask_again, st, NULL);
	if (st->round != NULL && st->flow != NULL &&
	    expect_all(st, segs, n, NULL) == 0 &&
	    pthread_create(&st->thread, NULL, stream_all, st) == 0)
		return st;
	free_stream(st);
	return NULL;
}

void ofs_http_stream_end(struct ofs_http_stream *st)
{
	ofs_http_flow_stop(st->flow);
	pthread_join(st->thread, NULL);
	free_stream(st);
}
