/* task_take.c - what other ranks say of a task that all share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/task_impl.h"
#include "cluster/wire.h"

struct ofs_task *ofs_task_new(int size)
{
	struct ofs_task *task = calloc(1, sizeof(*task));

	if (task == NULL)
		return NULL;
	task->size = size;
	task->vote = calloc((size_t)size, sizeof(*task->vote));
	if (task->vote == NULL) {
		free(task);
		return NULL;
	}
	pthread_mutex_init(&task->lock, NULL);
	pthread_cond_init(&task->changed, NULL);
	return task;
}

void ofs_task_free(struct ofs_task *task)
{
	if (task == NULL)
		return;
	pthread_cond_destroy(&task->changed);
	pthread_mutex_destroy(&task->lock);
	free(task->vote);
	free(task);
}

/* With the lock held, from here on. */

void ofs_task_failed(struct ofs_task *task, const struct optimfs_error *why)
{
	if (!task->failed)
		task->why = *why;
	task->failed = true;
	pthread_cond_broadcast(&task->changed);
}

static void take_error(struct ofs_cursor *c, struct optimfs_error *e)
{
	uint32_t code = ofs_cursor_le32(c);
	const char *text = ofs_wire_take_str(c);

	*e = (struct optimfs_error){ 0 };
	if (code != 0)
		optimfs_fail_as(e, (int)code, "%s", text);
}

static int garbled(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 what it said makes no sense: are all ranks of one "
	    "version?");
}

static int take_vote(struct ofs_task *task, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_task_vote v = { .meeting = ofs_cursor_le32(c) };

	v.work.files = ofs_cursor_le64(c);
	v.work.bytes = ofs_cursor_le64(c);
	take_error(c, &v.err);
	if (c->bad || from < 0 || from >= task->size)
		return garbled(err);
	task->vote[from] = v;
	if (v.err.code != 0)
		ofs_task_failed(task, &v.err);
	pthread_cond_broadcast(&task->changed);
	return 0;
}

static int take_verdict(struct ofs_task *task, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_task_vote v = { .meeting = ofs_cursor_le32(c) };

	take_error(c, &v.err);
	if (c->bad)
		return garbled(err);
	task->vote[0] = v;
	pthread_cond_broadcast(&task->changed);
	return 0;
}

static int take_ask(struct ofs_task *task, struct ofs_cursor *c)
{
	struct optimfs_error why;

	if (ofs_cursor_u8(c) == 0)
		return 0;
	optimfs_fail(&why, ECANCELED, "given up, since another rank failed");
	ofs_task_failed(task, &why);
	return 0;
}

static int take_one(struct ofs_task *task, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	switch (ofs_cursor_u8(c)) {
	case OFS_TASK_REPORT:
		if (task->take == NULL)
			return optimfs_fail(err, ECANCELED, "given up");
		return task->take(task->ctx, from, c, err);
	case OFS_TASK_VOTE:
		return take_vote(task, from, c, err);
	case OFS_TASK_VERDICT:
		return take_verdict(task, c, err);
	case OFS_TASK_ASK:
		return take_ask(task, c);
	default:
		return garbled(err);
	}
}

int ofs_task_answer(struct ofs_task *task, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&task->lock);
	ret = take_one(task, from, c, err);
	pthread_mutex_unlock(&task->lock);
	return ret;
}
