/* task.c - a task that all ranks of a job share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cluster/task_impl.h"
#include "cluster/wire.h"

/* How often those who wait are told of it, and how often it is asked. */
#define TICK_NS (200 * 1000 * 1000)
enum { ASK_MS = 1000 };

/* Saying. */

static struct ofs_buf message(enum ofs_task_say what)
{
	struct ofs_buf b = { 0 };

	ofs_wire_u8(&b, OFS_WIRE_TASK);
	ofs_wire_u8(&b, (uint8_t)what);
	return b;
}

static void put_error(struct ofs_buf *b, const struct optimfs_error *e)
{
	ofs_wire_u32(b, (uint32_t)e->code);
	ofs_wire_str(b, e->code == 0 ? "" : e->text);
}

int ofs_task_report(struct optimfs_group *w, const struct ofs_buf *note,
    struct optimfs_error *err)
{
	struct ofs_task *task = w->task;
	struct ofs_cursor c = ofs_cursor_of(note->data, note->len);
	struct ofs_buf b = message(OFS_TASK_REPORT);
	int ret;

	ofs_buf_put(&b, note->data, note->len);
	b.bad |= note->bad;
	if (w->rank != 0) {
		ret = ofs_group_ask(w, 0, &b, NULL, 0, err);
	} else {
		pthread_mutex_lock(&task->lock);
		ret = note->bad ? optimfs_fail(err, ENOMEM, "a note")
				: task->take(task->ctx, 0, &c, err);
		pthread_mutex_unlock(&task->lock);
	}
	ofs_buf_fini(&b);
	return ret;
}

void ofs_task_did(struct optimfs_group *w, uint64_t bytes)
{
	atomic_fetch_add(&w->task->files, 1);
	atomic_fetch_add(&w->task->bytes, bytes);
}

/* Beginning and end. */

int ofs_task_begin(struct optimfs_group *w, ofs_task_take_fn *take, void *ctx,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	struct ofs_task *task = w->task;

	pthread_mutex_lock(&task->lock);
	task->take = take;
	task->ctx = ctx;
	task->failed = task->lost = false;
	atomic_store(&task->files, 0);
	atomic_store(&task->bytes, 0);
	pthread_mutex_unlock(&task->lock);
	if (ofs_task_agree(w, own, err) == 0)
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

static int exchange(struct optimfs_group *w, const struct ofs_buf *mine,
    struct ofs_said **said, struct optimfs_error *err)
{
	*said = calloc((size_t)w->size, sizeof(**said));
	if (*said == NULL || (mine != NULL && mine->bad))
		return optimfs_fail(err, ENOMEM, "out of memory");
	return w->ops->exchange(w->w, mine == NULL ? NULL : mine->data,
	    mine == NULL ? 0 : mine->len, *said, err);
}

static void free_said(const struct optimfs_group *w, struct ofs_said *said)
{
	for (int r = 0; said != NULL && r < w->size; r++)
		free(said[r].p);
	free(said);
}

int ofs_task_tell(struct optimfs_group *w, const struct ofs_buf *mine,
    struct ofs_said *got, struct optimfs_error *err)
{
	struct ofs_said *said;
	int ret = exchange(w, w->rank == 0 ? mine : NULL, &said, err);

	if (ret == 0) {
		*got = said[0];
		said[0].p = NULL;
	}
	free_said(w, said);
	return ret;
}

int ofs_task_who(struct optimfs_group *w, bool mine, bool *all,
    struct optimfs_error *err)
{
	struct ofs_said *said;
	struct ofs_buf b = { 0 };
	int ret;

	ofs_wire_u8(&b, mine);
	ret = exchange(w, &b, &said, err);
	for (int r = 0; ret == 0 && r < w->size; r++) {
		struct ofs_cursor c = ofs_cursor_of(said[r].p, said[r].n);

		all[r] = ofs_cursor_u8(&c) == 1;
	}
	free_said(w, said);
	ofs_buf_fini(&b);
	return ret;
}

/* Are the others there? */

/* Rank 0 has not heard the vote of this one, and goes without it. */
static void count_out(struct optimfs_group *w, int rank, uint32_t meeting,
    const struct optimfs_error *why)
{
	struct ofs_task *task = w->task;

	pthread_mutex_lock(&task->lock);
	if (w->rank != 0) {
		task->lost = true;
		ofs_task_failed(task, why);
	} else if (task->vote[rank].meeting != meeting) {
		task->vote[rank] =
		    (struct ofs_task_vote){ meeting, { 0, 0 }, *why };
		ofs_task_failed(task, why);
	}
	pthread_mutex_unlock(&task->lock);
}

/* Rank 0 asks those that are not here yet, all others ask rank 0. */
static bool wants_asking(const struct optimfs_group *w, int rank,
    uint32_t meeting)
{
	return w->rank == 0
	    ? rank != 0 && w->task->vote[rank].meeting != meeting
	    : rank == 0;
}

static void ask_others(struct optimfs_group *w, uint32_t meeting, bool failed)
{
	struct ofs_ask *ask = calloc((size_t)w->size, sizeof(*ask));
	struct ofs_buf b = message(OFS_TASK_ASK);
	size_t n = 0;

	ofs_wire_u8(&b, failed);
	pthread_mutex_lock(&w->task->lock);
	for (int r = 0; ask != NULL && !b.bad && r < w->size; r++)
		if (wants_asking(w, r, meeting))
			ask[n++] = (struct ofs_ask){
				.to = r, .request = b.data, .nrequest = b.len
			};
	pthread_mutex_unlock(&w->task->lock);
	if (n > 0)
		w->ops->ask(w->w, ask, n);
	for (size_t i = 0; i < n; i++) {
		if (ask[i].err.code != EHOSTDOWN &&
		    ask[i].err.code != ETIMEDOUT)
			continue;
		ofs_group_blame(w, ask[i].to, &ask[i].err);
		count_out(w, ask[i].to, meeting, &ask[i].err);
	}
	if (n > 0)
		w->ops->release(w->w, ask, n);
	ofs_buf_fini(&b);
	free(ask);
}

/* Not to be heard of again: dead, or gone without a word, for lack of memory. */
static bool is_gone(struct optimfs_group *w, int rank,
    struct optimfs_error *why)
{
	bool left;

	if (w->ops->dead(w->w, rank)) {
		optimfs_fail(why, EHOSTDOWN, "OFS911 it has died");
	} else {
		pthread_mutex_lock(&w->lock);
		left = w->done[rank];
		pthread_mutex_unlock(&w->lock);
		if (!left)
			return false;
		optimfs_fail(why, EPROTO, "OFS913 it has given up");
	}
	ofs_group_blame(w, rank, why);
	return true;
}

static void look_at_others(struct optimfs_group *w, uint32_t meeting)
{
	struct ofs_task *task = w->task;
	struct optimfs_error why;
	bool due, failed;

	for (int r = 0; r < w->size; r++)
		if (r != w->rank && (w->rank == 0 || r == 0) &&
		    is_gone(w, r, &why))
			count_out(w, r, meeting, &why);
	pthread_mutex_lock(&task->lock);
	due = ofs_clock_ms() - task->asked >= ASK_MS;
	failed = task->failed;
	if (due)
		task->asked = ofs_clock_ms();
	pthread_mutex_unlock(&task->lock);
	if (due)
		ask_others(w, meeting, failed);
}

int ofs_task_check(struct optimfs_group *w, struct optimfs_error *err)
{
	struct ofs_task *task = w->task;
	int ret = 0;

	look_at_others(w, task->meeting + 1);
	pthread_mutex_lock(&task->lock);
	if (task->failed)
		ret =
		    optimfs_fail_as(err, task->why.code, "%s", task->why.text);
	pthread_mutex_unlock(&task->lock);
	return ret;
}

/* Meeting. */

static bool all_here(const struct optimfs_group *w)
{
	const struct ofs_task *task = w->task;

	if (w->rank != 0)
		return task->lost || task->vote[0].meeting == task->meeting;
	for (int r = 0; r < w->size; r++)
		if (task->vote[r].meeting != task->meeting)
			return false;
	return true;
}

static void wait_for_all(struct optimfs_group *w, void (*tick)(void *ctx),
    void *ctx)
{
	struct ofs_task *task = w->task;
	struct timespec until;

	pthread_mutex_lock(&task->lock);
	while (!all_here(w)) {
		until = ofs_clock_after(CLOCK_REALTIME, TICK_NS);
		pthread_cond_timedwait(&task->changed, &task->lock, &until);
		pthread_mutex_unlock(&task->lock);
		look_at_others(w, task->meeting);
		if (tick != NULL)
			tick(ctx);
		pthread_mutex_lock(&task->lock);
	}
	pthread_mutex_unlock(&task->lock);
}

/* Of those who failed, one who did so by itself. */
static void judge(struct optimfs_group *w, struct optimfs_error *verdict)
{
	const struct ofs_task_vote *worst = NULL;

	*verdict = (struct optimfs_error){ 0 };
	for (int r = 0; r < w->size; r++) {
		const struct ofs_task_vote *v = &w->task->vote[r];

		if (v->err.code == 0)
			continue;
		if (worst == NULL || worst->err.code == ECANCELED)
			worst = v;
	}
	if (worst != NULL)
		*verdict = worst->err;
}

static void send_verdict(struct optimfs_group *w,
    const struct optimfs_error *verdict)
{
	struct ofs_ask *ask = calloc((size_t)w->size, sizeof(*ask));
	struct ofs_buf b = message(OFS_TASK_VERDICT);
	size_t n = 0;

	ofs_wire_u32(&b, w->task->meeting);
	put_error(&b, verdict);
	for (int r = 1; ask != NULL && !b.bad && r < w->size; r++)
		if (!w->ops->dead(w->w, r))
			ask[n++] = (struct ofs_ask){
				.to = r, .request = b.data, .nrequest = b.len
			};
	if (n > 0) {
		w->ops->ask(w->w, ask, n);
		w->ops->release(w->w, ask, n);
	}
	ofs_buf_fini(&b);
	free(ask);
}

static void preside(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *verdict)
{
	struct ofs_task *task = w->task;

	pthread_mutex_lock(&task->lock);
	task->meeting++;
	task->vote[0] = (struct ofs_task_vote){ task->meeting,
		{ atomic_load(&task->files), atomic_load(&task->bytes) },
		*own };
	if (own->code != 0)
		ofs_task_failed(task, own);
	pthread_mutex_unlock(&task->lock);
	wait_for_all(w, tick, ctx);
	pthread_mutex_lock(&task->lock);
	judge(w, verdict);
	pthread_mutex_unlock(&task->lock);
	send_verdict(w, verdict);
}

static void attend(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *verdict)
{
	struct ofs_task *task = w->task;
	struct ofs_buf b = message(OFS_TASK_VOTE);
	struct optimfs_error mine = *own;

	if (mine.code != 0 && mine.code != ECANCELED)
		ofs_group_blame(w, w->rank, &mine);
	ofs_wire_u32(&b, ++task->meeting);
	ofs_wire_u64(&b, atomic_load(&task->files));
	ofs_wire_u64(&b, atomic_load(&task->bytes));
	put_error(&b, &mine);
	if (ofs_group_ask(w, 0, &b, NULL, 0, &mine) == -1)
		count_out(w, 0, task->meeting, &mine);
	ofs_buf_fini(&b);
	wait_for_all(w, tick, ctx);
	pthread_mutex_lock(&task->lock);
	*verdict = task->vote[0].meeting == task->meeting ? task->vote[0].err
							  : task->why;
	pthread_mutex_unlock(&task->lock);
}

int ofs_task_barrier(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *err)
{
	struct optimfs_error verdict;

	if (w->rank == 0)
		preside(w, own, tick, ctx, &verdict);
	else
		attend(w, own, tick, ctx, &verdict);
	if (verdict.code == 0)
		return 0;
	return optimfs_fail_as(err, verdict.code, "%s", verdict.text);
}

int ofs_task_agree(struct optimfs_group *w, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	return ofs_task_barrier(w, own, NULL, NULL, err);
}

void optimfs_group_work(struct optimfs_group *w, int rank,
    struct optimfs_work *work)
{
	pthread_mutex_lock(&w->task->lock);
	*work = w->task->vote[rank].work;
	pthread_mutex_unlock(&w->task->lock);
}
