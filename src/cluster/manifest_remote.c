/* manifest_remote.c - segments of files, from and for other ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "store/runs.h"

/* Segments are split into requests of at most one message each way. The answer
 * to a request is its runs, one after the other, to be laid out here. Requests
 * are sent in rounds: all requests of a round are in progress at once, to as
 * many owners as possible. */
#define ROUND_ASKS  32
#define ROUND_BYTES ((uint64_t)64 << 20)
/* Bytes in a row from one owner, if a file has several. */
#define STRIPE OFS_GROUP_ANSWER_MAX

/* Most segments of a request. */
#define SEGMENTS ((OFS_GROUP_REQUEST_MAX - 64) / OFS_WIRE_SEGMENT)

/* The segments have the numbers of their files there, and their places here. */
struct request {
	int to;
	struct ofs_segment *seg;
	size_t n, cap;
	uint64_t want;
	struct ofs_buf bytes; /* while it is sent */
};

struct gathering {
	const struct ofs_manifest *s;
	uint8_t *buf;
	struct request request[ROUND_ASKS];
	size_t n;
	uint64_t want;          /* of all requests */
	struct ofs_avoid avoid; /* owners that failed once */
	bool one_round;         /* only one round */
	struct optimfs_error *err;
};

static const struct ofs_owner *choose(const struct gathering *g, uint32_t file,
    uint64_t off)
{
	return ofs_manifest_choose(g->s, file, off / STRIPE, &g->avoid);
}

static bool avoided(const struct gathering *g, const struct ofs_owner *o)
{
	return ofs_manifest_avoids(g->s, &g->avoid, o->rank);
}

/* A round. */

static void forget(struct gathering *g)
{
	for (size_t i = 0; i < g->n; i++) {
		ofs_buf_fini(&g->request[i].bytes);
		free(g->request[i].seg);
		g->request[i] = (struct request){ 0 };
	}
	g->n = 0;
	g->want = 0;
}

static void lay_out(const struct gathering *g, const struct request *r,
    const uint8_t *answer)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct ofs_segment *seg = &r->seg[i];

		ofs_copy_runs(g->buf + seg->dst, seg->dst_pitch, answer,
		    (int64_t)seg->len, seg->len, seg->n);
		answer += seg->len * seg->n;
	}
}

/* Adds the rank to the error. 1: another owner may succeed, and this one is
 * skipped from now on; else -1. */
static int owner_failed(struct gathering *g, const struct ofs_ask *ask)
{
	*g->err = ask->err;
	ofs_group_error_in(g->s->group, ask->to, g->err);
	if (!ofs_group_says_lost(&ask->err))
		return -1;
	if (ofs_manifest_avoids(g->s, &g->avoid, ask->to))
		return 1; /* other requests to it have failed, too */
	if (g->avoid.n == OFS_AVOID_MAX)
		return -1;
	g->avoid.rank[g->avoid.n++] = ask->to;
	return 1;
}

/* 1: an owner has failed, another may succeed. */
static int finish(struct gathering *g, const struct ofs_ask *ask)
{
	int ret = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (ask[i].err.code == 0) {
			lay_out(g, &g->request[i], ask[i].answer);
			continue;
		}
		if (ret != -1)
			ret = owner_failed(g, &ask[i]);
	}
	return ret;
}

static int put_asks(struct gathering *g, struct ofs_ask *ask)
{
	for (size_t i = 0; i < g->n; i++) {
		struct request *r = &g->request[i];

		ofs_wire_u8(&r->bytes, OFS_WIRE_FETCH);
		ofs_wire_u32(&r->bytes, g->s->number);
		ofs_wire_u32(&r->bytes, (uint32_t)r->n);
		for (size_t k = 0; k < r->n; k++)
			ofs_wire_segment(&r->bytes, &r->seg[k]);
		if (r->bytes.bad)
			return ofs_no_memory(g->err);
		ask[i] = (struct ofs_ask){ .to = r->to,
			.request = r->bytes.data,
			.nrequest = r->bytes.len,
			.want = r->want };
	}
	return 0;
}

static int run(struct gathering *g)
{
	const struct optimfs_group *w = g->s->group;
	struct ofs_ask ask[ROUND_ASKS];
	int ret = put_asks(g, ask);

	if (ret == 0) {
		w->ops->ask(w->w, ask, g->n);
		ret = finish(g, ask);
		w->ops->release(w->w, ask, g->n);
	}
	forget(g);
	return ret;
}

/* Filling a round. */

static bool has_room(const struct request *r, uint64_t len)
{
	return OFS_GROUP_ANSWER_MAX - r->want >= len && r->n < SEGMENTS;
}

/* A request to rank with room for len more bytes. NULL: err; *ret 1: the round
 * that had to be sent first had a failure. */
static struct request *request_to(struct gathering *g, int rank, uint64_t len,
    int *ret)
{
	struct request *r;

	for (size_t i = g->n; i > 0; i--)
		if (g->request[i - 1].to == rank &&
		    has_room(&g->request[i - 1], len))
			return &g->request[i - 1];
	*ret = 0;
	if (g->n == ROUND_ASKS || g->want >= ROUND_BYTES)
		*ret = g->one_round ? -1 : run(g);
	if (*ret != 0)
		return NULL;
	r = &g->request[g->n++];
	*r = (struct request){ .to = rank };
	return r;
}

/* Adds as many runs of seg as fit into one request, or a part of its only run.
 * *seg becomes the rest. */
static int add_some(struct gathering *g, struct ofs_segment *seg)
{
	struct ofs_segment some = *seg;
	const struct ofs_owner *o;
	struct request *r;
	uint64_t max;
	int ret;

	o = choose(g, seg->object,
	    seg->codec == OFS_PLAIN ? seg->src : seg->ext_off);
	if (some.n == 1 && some.len > OFS_GROUP_ANSWER_MAX)
		some.len = OFS_GROUP_ANSWER_MAX;
	r = request_to(g, o->rank, some.len, &ret);
	if (r == NULL)
		return ret;
	max = (OFS_GROUP_ANSWER_MAX - r->want) / some.len;
	some.n = some.n < max ? some.n : max;
	some.object = o->index;
	if (ofs_grow(r->seg, r->n, r->cap, g->err) == -1)
		return -1;
	r->seg[r->n++] = some;
	r->want += some.len * some.n;
	g->want += some.len * some.n;
	if (some.len < seg->len) {
		seg->src += some.len;
		seg->dst += some.len;
		seg->len -= some.len;
		return 0;
	}
	seg->src += some.n * (uint64_t)seg->src_pitch;
	seg->dst += some.n * (uint64_t)seg->dst_pitch;
	seg->n -= some.n;
	return 0;
}

static int add(struct gathering *g, const struct ofs_segment *seg)
{
	struct ofs_segment one, rest = *seg;
	int ret = 0;

	if (seg->len <= OFS_GROUP_ANSWER_MAX) {
		while (ret == 0 && rest.len > 0 && rest.n > 0)
			ret = add_some(g, &rest);
		return ret;
	}
	for (uint64_t i = 0; ret == 0 && i < seg->n; i++) {
		one = *seg;
		one.n = 1;
		one.src += i * (uint64_t)seg->src_pitch;
		one.dst += i * (uint64_t)seg->dst_pitch;
		while (ret == 0 && one.n == 1 && one.len > 0)
			ret = add_some(g, &one);
	}
	return ret;
}

/* One attempt: 0, -1, or 1 if an owner failed that another can replace. */
static int try(struct gathering *g, const struct ofs_segment *segs, size_t n)
{
	int ret = 0;

	for (size_t i = 0; i < n && ret == 0; i++)
		ret = add(g, &segs[i]);
	if (ret == 0 && g->n > 0)
		ret = run(g);
	forget(g);
	return ret;
}

/* In work that ranks share nothing can go on without the owners of a file, and no
 * other rank shall wait for them as well. */
static int fail_shared(const struct gathering *g)
{
	struct optimfs_group *w = g->s->group;

	for (size_t i = 0; w->together && i < g->avoid.n; i++)
		ofs_group_set_lost(w, g->avoid.rank[i], g->err);
	return -1;
}

/* Does each file have an owner that has not failed? */
static bool may_retry(const struct gathering *g, const struct ofs_segment *segs,
    size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (avoided(g, choose(g, segs[i].object, segs[i].src)))
			return false;
	return true;
}

int ofs_remote_ask(const struct ofs_manifest *s, const struct ofs_segment *segs,
    size_t n, uint8_t *buf, struct optimfs_error *err)
{
	struct gathering g = { .s = s, .buf = buf, .err = OFS_SOME_ERROR(err) };
	int ret;

	do
		ret = try(&g, segs, n);
	while (ret == 1 && may_retry(&g, segs, n));
	return ret == 0 ? 0 : fail_shared(&g);
}

int ofs_remote_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf,
    struct optimfs_error *err)
{
	if (s->group->gather != NULL &&
	    s->group->gather->fetch(s, segs, n, buf))
		return 0;
	return ofs_remote_ask(s, segs, n, buf, err);
}

/* Reading ahead: a round without a waiting reader. */
struct ofs_remote_ahead {
	struct gathering g;
	struct ofs_ask ask[ROUND_ASKS];
	struct optimfs_error err;
};

static void ahead_free(struct ofs_remote_ahead *a)
{
	forget(&a->g);
	free(a);
}

struct ofs_remote_ahead *ofs_remote_ahead(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n)
{
	struct ofs_remote_ahead *a = calloc(1, sizeof(*a));
	const struct optimfs_group *w = s->group;
	int ret = 0;

	if (a == NULL)
		return NULL;
	a->g = (struct gathering){ .s = s, .one_round = true, .err = &a->err };
	for (size_t i = 0; i < n && ret == 0; i++)
		ret = add(&a->g, &segs[i]);
	if (ret == -1 || put_asks(&a->g, a->ask) == -1) {
		ahead_free(a);
		return NULL;
	}
	w->ops->start(w->w, a->ask, a->g.n);
	return a;
}

int ofs_remote_arrived(struct ofs_remote_ahead *a, uint8_t *buf)
{
	const struct optimfs_group *w = a->g.s->group;
	int ret;

	w->ops->wait(w->w, a->ask, a->g.n);
	a->g.buf = buf;
	ret = finish(&a->g, a->ask);
	ofs_remote_drop(a);
	return ret == 0 ? 0 : -1;
}

void ofs_remote_drop(struct ofs_remote_ahead *a)
{
	const struct optimfs_group *w = a->g.s->group;

	w->ops->release(w->w, a->ask, a->g.n);
	ahead_free(a);
}

/* 1: this owner has failed and is in g->avoid; another may succeed. */
static int ask_length(struct gathering *g, const struct ofs_extent *at,
    uint64_t max, uint64_t *len)
{
	const struct optimfs_group *w = g->s->group;
	const struct ofs_owner *o = choose(g, at->object, at->off);
	struct ofs_buf b = { 0 };
	struct ofs_ask ask;
	int ret = 0;

	ofs_wire_u8(&b, OFS_WIRE_LENGTH);
	ofs_wire_u32(&b, g->s->number);
	ofs_wire_u32(&b, o->index);
	ofs_wire_u8(&b, at->codec);
	ofs_wire_u64(&b, at->off);
	ofs_wire_u64(&b, at->len);
	ofs_wire_u64(&b, max);
	if (b.bad)
		return ofs_no_memory(g->err);
	ask = (struct ofs_ask){
		.to = o->rank, .request = b.data, .nrequest = b.len, .want = 8
	};
	w->ops->ask(w->w, &ask, 1);
	if (ask.err.code == 0)
		*len = ofs_le64(ask.answer);
	else
		ret = owner_failed(g, &ask);
	w->ops->release(w->w, &ask, 1);
	ofs_buf_fini(&b);
	return ret;
}

int ofs_remote_length(const struct ofs_manifest *s, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct gathering g = { .s = s, .err = OFS_SOME_ERROR(err) };
	int ret;

	do
		ret = ask_length(&g, at, max, len);
	while (ret == 1 && !avoided(&g, choose(&g, at->object, at->off)));
	return ret == 0 ? 0 : fail_shared(&g);
}

/* For another rank. */

static int no_such_file(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request for a file that was not offered");
}

int ofs_manifest_fetch(struct ofs_request *q, struct optimfs_error *err)
{
	const struct ofs_manifest *s = q->manifest;
	uint32_t n = ofs_cursor_le32(&q->c);
	struct ofs_segment *seg =
	    ofs_wire_take_segments(&q->c, n, q->want, err);
	int ret = 0;

	if (seg == NULL)
		return -1;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		if (seg[i].object >= s->files->nobjects)
			ret = no_such_file(err);
	if (ret == 0)
		ret = ofs_transport_fetch(s->transport, seg, n, q->out, err);
	free(seg);
	return ret;
}

int ofs_manifest_length(struct ofs_request *q, struct optimfs_error *err)
{
	const struct ofs_manifest *s = q->manifest;
	struct ofs_cursor *c = &q->c;
	struct ofs_extent at = { .object = ofs_cursor_le32(c),
		.codec = ofs_cursor_u8(c) };
	uint64_t max, len;

	at.off = ofs_cursor_le64(c);
	at.len = ofs_cursor_le64(c);
	max = ofs_cursor_le64(c);
	if (c->bad || ofs_cursor_left(c) != 0 || q->want != 8 ||
	    at.codec == OFS_PLAIN || at.object >= s->files->nobjects)
		return no_such_file(err);
	if (s->transport->ops->length(s->transport, &at, max, &len, err) == -1)
		return -1;
	ofs_put_le(q->out, len, 8);
	return 0;
}
