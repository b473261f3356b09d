/* call.c - requests to other ranks that may take long */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* How long to wait before asking again whether work is done, ns. */
#define REST_MIN (1000 * 1000)
#define REST_MAX (100 * 1000 * 1000)
/* Of an answer to POLL: done (1), bytes of the result (8). */
enum { POLL_WANT = 9 };

/* Work for another rank. */
struct work {
	LIST_ENTRY(work) next;
	uint32_t id;
	struct optimfs_group *group;
	int from;
	struct ofs_buf request, result;
	pthread_t thread;
	bool done;
	int ret;
	struct optimfs_error err;
};

struct ofs_calls {
	pthread_mutex_t lock;
	LIST_HEAD(, work) list;
	uint32_t last; /* id */
};

static int malformed(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request that makes no sense: are all ranks of one "
	    "version?");
}

/* The rank that is called. */

struct ofs_calls *ofs_calls_new(void)
{
	struct ofs_calls *calls = calloc(1, sizeof(*calls));

	if (calls != NULL)
		pthread_mutex_init(&calls->lock, NULL);
	return calls;
}

static void work_free(struct work *w)
{
	pthread_join(w->thread, NULL);
	ofs_buf_fini(&w->request);
	ofs_buf_fini(&w->result);
	free(w);
}

void ofs_calls_free(struct ofs_calls *calls)
{
	struct work *w;

	if (calls == NULL)
		return;
	while ((w = LIST_FIRST(&calls->list)) != NULL) {
		LIST_REMOVE(w, next);
		work_free(w);
	}
	pthread_mutex_destroy(&calls->lock);
	free(calls);
}

static void *run(void *arg)
{
	struct work *w = arg;
	struct ofs_calls *calls = w->group->calls;
	struct optimfs_error err = { 0 };
	struct ofs_request q = { .from = w->from,
		.c = ofs_cursor_of(w->request.data, w->request.len),
		.result = &w->result };
	int ret = ofs_group_handle(w->group, &q, &err);

	if (ret == 0 && w->result.bad)
		ret = optimfs_fail(&err, ENOMEM, "out of memory for a result");
	pthread_mutex_lock(&calls->lock);
	w->ret = ret;
	w->err = err;
	w->done = true;
	pthread_mutex_unlock(&calls->lock);
	return NULL;
}

int ofs_calls_begin(struct ofs_request *q, struct optimfs_error *err)
{
	struct optimfs_group *g = q->group;
	uint64_t n = ofs_cursor_left(&q->c);
	struct work *w = q->want == 4 ? calloc(1, sizeof(*w)) : NULL;
	int code = ENOMEM;

	if (q->want != 4)
		return malformed(err);
	if (w != NULL) {
		w->group = g;
		w->from = q->from;
		ofs_buf_put(&w->request, ofs_cursor_take(&q->c, n), n);
	}
	pthread_mutex_lock(&g->calls->lock);
	if (w != NULL && !w->request.bad)
		code = pthread_create(&w->thread, NULL, run, w);
	if (code == 0) {
		w->id = ++g->calls->last;
		LIST_INSERT_HEAD(&g->calls->list, w, next);
		ofs_put_le32(q->out, w->id);
	}
	pthread_mutex_unlock(&g->calls->lock);
	if (code == 0)
		return 0;
	if (w != NULL)
		ofs_buf_fini(&w->request);
	free(w);
	return optimfs_fail(err, code, "cannot start a thread for rank %d",
	    q->from);
}

/* With the lock. */
static struct work *find(const struct ofs_calls *calls, uint32_t id, int from)
{
	struct work *w;

	LIST_FOREACH(w, &calls->list, next)
	if (w->id == id && w->from == from)
		return w;
	return NULL;
}

/* Work is forgotten when the caller has all of its result. */
int ofs_calls_poll(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_calls *calls = q->group->calls;
	struct work *w, *over = NULL;
	int ret = 0;

	pthread_mutex_lock(&calls->lock);
	w = find(calls, ofs_cursor_le32(&q->c), q->from);
	if (w == NULL || q->want != POLL_WANT) {
		ret = malformed(err);
	} else if (w->done && w->ret == -1) {
		*err = w->err;
		ret = -1;
	} else {
		q->out[0] = w->done;
		ofs_put_le64(q->out + 1, w->done ? w->result.len : 0);
	}
	if (w != NULL && w->done && (w->ret == -1 || w->result.len == 0)) {
		LIST_REMOVE(w, next);
		over = w;
	}
	pthread_mutex_unlock(&calls->lock);
	if (over != NULL)
		work_free(over);
	return ret;
}

int ofs_calls_result(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_calls *calls = q->group->calls;
	uint32_t id = ofs_cursor_le32(&q->c);
	uint64_t off = ofs_cursor_le64(&q->c);
	struct work *w, *over = NULL;
	int ret = 0;

	pthread_mutex_lock(&calls->lock);
	w = find(calls, id, q->from);
	if (w == NULL || q->c.bad || !w->done || off > w->result.len ||
	    q->want > w->result.len - off) {
		ret = malformed(err);
	} else {
		memcpy(q->out, w->result.data + off, q->want);
		if (off + q->want == w->result.len) {
			LIST_REMOVE(w, next);
			over = w;
		}
	}
	pthread_mutex_unlock(&calls->lock);
	if (over != NULL)
		work_free(over);
	return ret;
}

/* The caller. */

static void fail(const struct optimfs_group *g, struct ofs_call *c,
    const struct optimfs_error *why)
{
	c->err = *why;
	c->open = false;
	ofs_group_blame(g, c->to, &c->err);
}

static void call_here(struct optimfs_group *g, struct ofs_call *c)
{
	struct optimfs_error err = { 0 };
	struct ofs_request q = { .from = g->rank,
		.c = ofs_cursor_of(c->request->data, c->request->len),
		.result = &c->result };

	if (ofs_group_handle(g, &q, &err) == -1)
		fail(g, c, &err);
}

/* Send the same to all calls that are open; take gets each good answer. */
static void ask_open(struct optimfs_group *g, struct ofs_call *call, size_t n,
    void (*put)(const struct ofs_call *c, struct ofs_buf *b), uint64_t want,
    void (*take)(struct ofs_call *c, const uint8_t *answer))
{
	struct ofs_ask *ask = calloc(n + 1, sizeof(*ask));
	struct ofs_buf *b = calloc(n + 1, sizeof(*b));
	struct optimfs_error err;
	size_t m = 0;

	optimfs_fail(&err, ENOMEM, "out of memory for a request");
	for (size_t i = 0; i < n; i++) {
		if (!call[i].open)
			continue;
		if (b != NULL)
			put(&call[i], &b[i]);
		if (ask == NULL || b == NULL || b[i].bad) {
			fail(g, &call[i], &err);
			continue;
		}
		ask[m++] = (struct ofs_ask){ .to = call[i].to,
			.request = b[i].data,
			.nrequest = b[i].len,
			.want = want };
	}
	if (m > 0)
		g->ops->ask(g->w, ask, m);
	for (size_t i = 0, k = 0; i < n && k < m; i++) {
		if (!call[i].open)
			continue;
		if (ask[k].err.code == 0)
			take(&call[i], ask[k].answer);
		else
			fail(g, &call[i], &ask[k].err);
		k++;
	}
	if (m > 0)
		g->ops->release(g->w, ask, m);
	for (size_t i = 0; b != NULL && i < n; i++)
		ofs_buf_fini(&b[i]);
	free(b);
	free(ask);
}

static void put_call(const struct ofs_call *c, struct ofs_buf *b)
{
	ofs_wire_u8(b, OFS_WIRE_CALL);
	ofs_buf_put(b, c->request->data, c->request->len);
	b->bad |= c->request->bad;
}

static void take_id(struct ofs_call *c, const uint8_t *answer)
{
	c->id = ofs_le32(answer);
}

static void put_poll(const struct ofs_call *c, struct ofs_buf *b)
{
	ofs_wire_u8(b, OFS_WIRE_POLL);
	ofs_wire_u32(b, c->id);
}

/* Its result is fetched later: result.len says how long it is. */
static void take_poll(struct ofs_call *c, const uint8_t *answer)
{
	if (answer[0] == 0)
		return;
	c->open = false;
	c->result.len = ofs_le64(answer + 1);
}

static void fetch(struct optimfs_group *g, struct ofs_call *c)
{
	uint64_t total = c->result.len, len;
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	uint8_t *piece = malloc(OFS_GROUP_ANSWER_MAX);

	c->result.len = 0;
	if (piece == NULL)
		optimfs_fail(&c->err, ENOMEM, "out of memory for a result");
	for (uint64_t off = 0; off < total && c->err.code == 0; off += len) {
		len = total - off < OFS_GROUP_ANSWER_MAX ? total - off
							 : OFS_GROUP_ANSWER_MAX;
		b.len = 0;
		ofs_wire_u8(&b, OFS_WIRE_RESULT);
		ofs_wire_u32(&b, c->id);
		ofs_wire_u64(&b, off);
		if (ofs_group_ask(g, c->to, &b, piece, len, &err) == -1)
			c->err = err;
		else
			ofs_buf_put(&c->result, piece, len);
	}
	if (c->result.bad)
		optimfs_fail(&c->err, ENOMEM, "out of memory for a result");
	ofs_buf_fini(&b);
	free(piece);
}

static bool any_open(const struct ofs_call *call, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (call[i].open)
			return true;
	return false;
}

void ofs_group_call(struct optimfs_group *g, struct ofs_call *call, size_t n)
{
	struct timespec t = { .tv_nsec = REST_MIN };

	for (size_t i = 0; i < n; i++) {
		call[i].err.code = 0;
		call[i].open = call[i].to != g->rank;
	}
	ask_open(g, call, n, put_call, 4, take_id);
	for (size_t i = 0; i < n; i++)
		if (call[i].to == g->rank)
			call_here(g, &call[i]);
	while (any_open(call, n)) {
		ask_open(g, call, n, put_poll, POLL_WANT, take_poll);
		if (!any_open(call, n))
			break;
		nanosleep(&t, NULL);
		t.tv_nsec = t.tv_nsec * 2 < REST_MAX ? t.tv_nsec * 2 : REST_MAX;
	}
	for (size_t i = 0; i < n; i++)
		if (call[i].to != g->rank && call[i].err.code == 0 &&
		    call[i].result.len > 0)
			fetch(g, &call[i]);
}
