/* call.c - requests to other ranks that may take long */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/call.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/memory.h"
#include "cluster/mail.h"
#include "cluster/wire.h"

/* Work for another rank. */
struct work {
	LIST_ENTRY(work) next;
	uint32_t id; /* of the caller */
	struct optimfs_group *group;
	int from;
	struct ofs_buf request;
	pthread_t thread;
	bool done;
};

struct ofs_calls {
	pthread_mutex_t lock;
	LIST_HEAD(, work) list;
	bool stopped;
	uint32_t last; /* id of the last call of this rank */
};

/* The called rank. */

struct ofs_calls *ofs_calls_new(void)
{
	struct ofs_calls *calls = calloc(1, sizeof(*calls));

	if (calls != NULL)
		pthread_mutex_init(&calls->lock, NULL);
	return calls;
}

static void work_free(struct work *w)
{
	if (w != NULL)
		ofs_buf_fini(&w->request);
	free(w);
}

/* Frees ended work, or all. The lock is held; the threads take it. */
static void reap(struct ofs_calls *calls, bool all)
{
	struct work *w, *next;

	for (w = LIST_FIRST(&calls->list); w != NULL; w = next) {
		next = LIST_NEXT(w, next);
		if (!w->done && !all)
			continue;
		LIST_REMOVE(w, next);
		pthread_mutex_unlock(&calls->lock);
		pthread_join(w->thread, NULL);
		work_free(w);
		pthread_mutex_lock(&calls->lock);
		next = LIST_FIRST(&calls->list);
	}
}

void ofs_calls_stop(struct ofs_calls *calls)
{
	pthread_mutex_lock(&calls->lock);
	calls->stopped = true;
	reap(calls, true);
	pthread_mutex_unlock(&calls->lock);
}

void ofs_calls_free(struct ofs_calls *calls)
{
	if (calls == NULL)
		return;
	ofs_calls_stop(calls);
	pthread_mutex_destroy(&calls->lock);
	free(calls);
}

static void *run(void *arg)
{
	struct work *w = arg;
	struct ofs_calls *calls = w->group->calls;
	struct optimfs_error err = { 0 };
	struct ofs_buf result = { 0 }, letter = { 0 };
	struct ofs_request q = { .from = w->from,
		.c = ofs_cursor_of(w->request.data, w->request.len),
		.result = &result };
	int ret = ofs_group_handle(w->group, &q, &err);

	if (ret == 0 && result.bad)
		ret = ofs_no_memory(&err);
	if (ret == 0)
		err.code = 0;
	ofs_wire_error(&letter, &err);
	if (ret == 0)
		ofs_buf_put(&letter, result.data, result.len);
	/* a lost caller does not get it */
	(void)ofs_mail_send(w->group, w->from,
	    ofs_mail_tag(OFS_MAIL_RESULT, w->id), &letter, NULL);
	ofs_buf_fini(&letter);
	ofs_buf_fini(&result);
	pthread_mutex_lock(&calls->lock);
	w->done = true;
	pthread_mutex_unlock(&calls->lock);
	return NULL;
}

int ofs_calls_begin(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_calls *calls = q->group->calls;
	uint32_t id = ofs_cursor_le32(&q->c);
	struct work *w;
	int code = ENOMEM;

	if (q->c.bad)
		return ofs_wire_malformed(err);
	w = calloc(1, sizeof(*w));
	if (w != NULL) {
		w->group = q->group;
		w->from = q->from;
		w->id = id;
		ofs_buf_put(&w->request, q->c.p, ofs_cursor_left(&q->c));
	}
	pthread_mutex_lock(&calls->lock);
	reap(calls, false);
	if (calls->stopped)
		code = ECANCELED;
	else if (w != NULL && !w->request.bad)
		code = pthread_create(&w->thread, NULL, run, w);
	if (code == 0)
		LIST_INSERT_HEAD(&calls->list, w, next);
	pthread_mutex_unlock(&calls->lock);
	if (code == 0)
		return 0;
	work_free(w);
	return optimfs_fail(err, code, "cannot start a thread for rank %d",
	    q->from);
}

/* The caller. */

static void call_here(struct optimfs_group *g, struct ofs_call *c)
{
	struct ofs_request q = { .from = g->rank,
		.c = ofs_cursor_of(c->request->data, c->request->len),
		.result = &c->result };

	if (ofs_group_handle(g, &q, &c->err) == -1)
		ofs_group_error_in(g, c->to, &c->err);
	else
		c->err.code = 0;
}

/* Begins those on other ranks, all at once. */
static void begin_all(struct optimfs_group *g, struct ofs_call *call, size_t n)
{
	struct ofs_ask *ask = calloc(n + 1, sizeof(*ask));
	struct ofs_buf *b = calloc(n + 1, sizeof(*b));
	size_t m = 0;

	for (size_t i = 0; i < n; i++) {
		call[i].err.code = 0;
		if (call[i].to == g->rank)
			continue;
		pthread_mutex_lock(&g->calls->lock);
		call[i].id = ++g->calls->last;
		pthread_mutex_unlock(&g->calls->lock);
		if (ask == NULL || b == NULL) {
			ofs_no_memory(&call[i].err);
			continue;
		}
		ofs_wire_u8(&b[i], OFS_WIRE_CALL);
		ofs_wire_u32(&b[i], call[i].id);
		ofs_buf_put(&b[i], call[i].request->data, call[i].request->len);
		if (b[i].bad || call[i].request->bad)
			ofs_no_memory(&call[i].err);
		else
			ask[m++] = (struct ofs_ask){ .to = call[i].to,
				.request = b[i].data,
				.nrequest = b[i].len };
	}
	(void)ofs_group_ask_all(g, ask, m, NULL);
	m = 0;
	for (size_t i = 0; i < n; i++)
		if (call[i].to != g->rank && call[i].err.code == 0)
			call[i].err = ask[m++].err;
	g->ops->release(g->w, ask, m);
	for (size_t i = 0; b != NULL && i < n; i++)
		ofs_buf_fini(&b[i]);
	free(b);
	free(ask);
}

/* Evaluates a result. */
static void finish(struct optimfs_group *g, struct ofs_call *c,
    struct ofs_awaited *a)
{
	struct ofs_cursor cur = ofs_cursor_of(a->letter.data, a->letter.len);

	if (!a->came) {
		c->err = a->err;
		return;
	}
	ofs_wire_take_error(&cur, &c->err);
	c->answered = true;
	if (cur.bad)
		ofs_wire_malformed(&c->err);
	if (c->err.code != 0)
		ofs_group_error_in(g, c->to, &c->err);
	else
		ofs_buf_put(&c->result, cur.p, ofs_cursor_left(&cur));
	ofs_buf_fini(&a->letter);
	if (c->result.bad)
		ofs_no_memory(&c->err);
}

static bool is_begun(const struct optimfs_group *g, const struct ofs_call *c)
{
	return c->to != g->rank && c->err.code == 0;
}

void ofs_group_call(struct optimfs_group *g, struct ofs_call *call, size_t n)
{
	struct ofs_awaited *a = calloc(n + 1, sizeof(*a));
	size_t m = 0;

	for (size_t i = 0; a == NULL && i < n; i++)
		ofs_no_memory(&call[i].err);
	if (a == NULL)
		return;
	begin_all(g, call, n);
	for (size_t i = 0; i < n; i++)
		if (is_begun(g, &call[i]))
			a[m++] = (struct ofs_awaited){ .from = call[i].to,
				.tag =
				    ofs_mail_tag(OFS_MAIL_RESULT, call[i].id) };
	for (size_t i = 0; i < n; i++)
		if (call[i].to == g->rank)
			call_here(g, &call[i]);
	ofs_mail_await(g, a, m, false, NULL);
	m = 0;
	for (size_t i = 0; i < n; i++)
		if (is_begun(g, &call[i]))
			finish(g, &call[i], &a[m++]);
	free(a);
}
