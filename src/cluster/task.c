/* task.c - a task that all ranks of a job share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/task.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/allgather.h"
#include "cluster/mail.h"
#include "cluster/wire.h"

/* Interval of asking whether neighbours are alive. */
enum { ASK_MS = 1000 };

/* Messages about a task. */
enum message {
	REPORT, /* to rank 0: a report, defined by the task */
	FAILED, /* to all: the task has failed */
};

/* What a rank did. */
struct work {
	uint64_t files, bytes;
};

struct ofs_task {
	_Atomic uint64_t files, bytes; /* done by this rank */
	pthread_mutex_t
	    lock; /* protects the members below; held while take is called */
	ofs_task_take_fn *take; /* NULL: no task */
	void *ctx;
	bool failed;       /* failed on another rank */
	int64_t asked;     /* time of the last check of others, ms */
	struct work *work; /* by rank, at the last barrier */
};

struct ofs_task *ofs_task_new(int size)
{
	struct ofs_task *task = calloc(1, sizeof(*task));

	if (task == NULL)
		return NULL;
	pthread_mutex_init(&task->lock, NULL);
	task->work = calloc((size_t)size, sizeof(*task->work));
	if (task->work != NULL)
		return task;
	ofs_task_free(task);
	return NULL;
}

void ofs_task_free(struct ofs_task *task)
{
	if (task == NULL)
		return;
	pthread_mutex_destroy(&task->lock);
	free(task->work);
	free(task);
}

/* Reports, and failures. */

static int take_report(struct ofs_task *task, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&task->lock);
	ret = task->take == NULL ? optimfs_fail(err, ECANCELED, "given up")
				 : task->take(task->ctx, from, c, err);
	pthread_mutex_unlock(&task->lock);
	return ret;
}

int ofs_task_answer(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_task *task = q->group->task;

	switch (ofs_cursor_u8(&q->c)) {
	case REPORT:
		return q->c.bad ? ofs_wire_malformed(err)
				: take_report(task, q->from, &q->c, err);
	case FAILED:
		pthread_mutex_lock(&task->lock);
		task->failed = true;
		pthread_mutex_unlock(&task->lock);
		return 0;
	default:
		return ofs_wire_malformed(err);
	}
}

static int ask_first(struct optimfs_group *w, const struct ofs_buf *b,
    struct optimfs_error *err)
{
	struct optimfs_error own;

	if (ofs_group_ask(w, 0, b, NULL, 0, &own) == 0)
		return 0;
	ofs_group_set_lost(w, 0, &own);
	return optimfs_fail_with(err, &own);
}

int ofs_task_report(struct optimfs_group *w, const struct ofs_buf *note,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(note->data, note->len);
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u8(&b, OFS_WIRE_TASK);
	ofs_wire_u8(&b, REPORT);
	ofs_buf_put(&b, note->data, note->len);
	b.bad |= note->bad;
	if (w->rank != 0)
		ret = ask_first(w, &b, err);
	else if (note->bad)
		ret = ofs_no_memory(err);
	else
		ret = take_report(w->task, 0, &c, err);
	ofs_buf_fini(&b);
	return ret;
}

static int check_beside(struct optimfs_group *w, struct optimfs_error *err)
{
	struct ofs_awaited a[3] = { 0 };
	int beside[3], ret = 0;
	size_t n = 0;

	ofs_allgather_beside(w, beside);
	for (int i = 0; i < 3; i++)
		if (beside[i] != -1)
			a[n++] = (struct ofs_awaited){
				.from = beside[i],
				.tag = ofs_mail_tag(OFS_MAIL_UP, 0),
			};
	ofs_mail_alive(w, a, n);
	for (size_t i = 0; i < n; i++) {
		ofs_group_set_lost(w, a[i].from, &a[i].err);
		if (a[i].err.code != 0 && ret == 0)
			ret = optimfs_fail_with(err, &a[i].err);
	}
	return ret;
}

int ofs_task_check(struct optimfs_group *w, struct optimfs_error *err)
{
	struct ofs_task *task = w->task;
	bool failed, due;

	pthread_mutex_lock(&task->lock);
	failed = task->failed;
	due = ofs_clock_ms() - task->asked >= ASK_MS;
	if (due)
		task->asked = ofs_clock_ms();
	pthread_mutex_unlock(&task->lock);
	if (failed)
		return optimfs_fail(err, ECANCELED,
		    "given up because another rank failed");
	ofs_group_tell_dead(w);
	for (int r = 0; r < w->size; r++)
		if (w->ops->dead(w->w, r) && ofs_group_is_lost(w, r, err))
			return -1;
	return due ? check_beside(w, err) : 0;
}

void ofs_task_did(struct optimfs_group *w, uint64_t bytes)
{
	atomic_fetch_add(&w->task->files, 1);
	atomic_fetch_add(&w->task->bytes, bytes);
}

void ofs_task_tell(struct optimfs_group *w, const struct optimfs_watch *how)
{
	const struct work *work = w->task->work;

	for (int r = 0; w->rank == 0 && how->did != NULL && r < w->size; r++)
		how->did(how->ctx, r, work[r].files, work[r].bytes);
}

/* Beginning and end. */

int ofs_task_begin(struct optimfs_group *w, ofs_task_take_fn *take, void *ctx,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	struct ofs_task *task = w->task;

	pthread_mutex_lock(&task->lock);
	task->take = take;
	task->ctx = ctx;
	task->failed = false;
	atomic_store(&task->files, 0);
	atomic_store(&task->bytes, 0);
	pthread_mutex_unlock(&task->lock);
	if (ofs_task_barrier(w, own, NULL, NULL, err) == 0)
		return 0;
	ofs_task_end(w);
	return -1;
}

void ofs_task_end(struct optimfs_group *w)
{
	pthread_mutex_lock(&w->task->lock);
	w->task->take = NULL;
	pthread_mutex_unlock(&w->task->lock);
}

/* Collective calls. */

/* own: the status of this rank; NULL: success. */
static int exchange(struct optimfs_group *w, const struct optimfs_error *own,
    struct ofs_allgather *a, struct optimfs_error *err)
{
	struct optimfs_error mine = { 0 };
	int ret;

	if (own != NULL)
		mine = *own;
	if (mine.code != 0 && mine.code != ECANCELED) {
		if (w->rank != 0)
			ofs_group_error_in(w, w->rank, &mine);
		/* working ranks can stop early */
		ofs_group_post(w, (const uint8_t[]){ OFS_WIRE_TASK, FAILED },
		    2);
	}
	a->own = &mine;
	ret = ofs_allgather(w, a, err);
	return ret == 0 ? ofs_allgather_verdict(w, a, false, err) : ret;
}

int ofs_task_broadcast(struct optimfs_group *w, int ret,
    const struct ofs_buf *mine, struct ofs_buf *got, struct optimfs_error *err)
{
	struct ofs_allgather a = { .mine = w->rank == 0 ? mine : NULL };

	*got = (struct ofs_buf){ 0 };
	ret = exchange(w, ret == -1 ? err : NULL, &a, err);
	if (ret == 0)
		ofs_buf_put(got, a.of[0].p, ofs_cursor_left(&a.of[0]));
	ofs_allgather_fini(&a);
	return got->bad ? ofs_no_memory(err) : ret;
}

int ofs_task_who(struct optimfs_group *w, int ret, bool mine, bool *all,
    struct optimfs_error *err)
{
	uint8_t byte = mine;
	const struct ofs_buf b = { .data = &byte, .len = 1 };
	struct ofs_allgather a = { .mine = &b };

	ret = exchange(w, ret == -1 ? err : NULL, &a, err);
	for (int r = 0; ret == 0 && r < w->size; r++)
		all[r] = ofs_cursor_u8(&a.of[r]) == 1;
	ofs_allgather_fini(&a);
	return ret;
}

static void take_work(struct optimfs_group *w, struct ofs_allgather *a)
{
	pthread_mutex_lock(&w->task->lock);
	for (int r = 0; r < w->size; r++) {
		w->task->work[r].files = ofs_cursor_le64(&a->of[r]);
		w->task->work[r].bytes = ofs_cursor_le64(&a->of[r]);
	}
	pthread_mutex_unlock(&w->task->lock);
}

int ofs_task_barrier(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	struct ofs_allgather a = { .mine = &b, .tick = { tick, ctx } };
	int ret;

	ofs_wire_u64(&b, atomic_load(&w->task->files));
	ofs_wire_u64(&b, atomic_load(&w->task->bytes));
	ret = exchange(w, own, &a, err);
	if (ret == 0)
		take_work(w, &a);
	ofs_allgather_fini(&a);
	ofs_buf_fini(&b);
	return ret;
}

int ofs_task_agree(struct optimfs_group *w, int ret, struct optimfs_error *err)
{
	return ofs_task_barrier(w, ret == -1 ? err : NULL, NULL, NULL, err);
}
