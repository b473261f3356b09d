/* task_take.c - what other ranks say of a task that all share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/task_impl.h"
#include "cluster/wire.h"

struct ofs_task *ofs_task_new(int size)
{
	struct ofs_task *crew = calloc(1, sizeof(*crew));

	if (crew == NULL)
		return NULL;
	crew->size = size;
	crew->vote = calloc((size_t)size, sizeof(*crew->vote));
	if (crew->vote == NULL) {
		free(crew);
		return NULL;
	}
	pthread_mutex_init(&crew->lock, NULL);
	pthread_cond_init(&crew->changed, NULL);
	return crew;
}

void ofs_task_free(struct ofs_task *crew)
{
	if (crew == NULL)
		return;
	pthread_cond_destroy(&crew->changed);
	pthread_mutex_destroy(&crew->lock);
	free(crew->vote);
	free(crew);
}

/* With the lock held, from here on. */

void ofs_task_failed(struct ofs_task *crew, const struct optimfs_error *why)
{
	if (!crew->failed)
		crew->why = *why;
	crew->failed = true;
	pthread_cond_broadcast(&crew->changed);
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

static int take_vote(struct ofs_task *crew, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_task_vote v = { .meeting = ofs_cursor_le32(c) };

	v.work.files = ofs_cursor_le64(c);
	v.work.bytes = ofs_cursor_le64(c);
	take_error(c, &v.err);
	if (c->bad || from < 0 || from >= crew->size)
		return garbled(err);
	crew->vote[from] = v;
	if (v.err.code != 0)
		ofs_task_failed(crew, &v.err);
	pthread_cond_broadcast(&crew->changed);
	return 0;
}

static int take_verdict(struct ofs_task *crew, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_task_vote v = { .meeting = ofs_cursor_le32(c) };

	take_error(c, &v.err);
	if (c->bad)
		return garbled(err);
	crew->vote[0] = v;
	pthread_cond_broadcast(&crew->changed);
	return 0;
}

static int take_ask(struct ofs_task *crew, struct ofs_cursor *c)
{
	struct optimfs_error why;

	if (ofs_cursor_u8(c) == 0)
		return 0;
	optimfs_fail(&why, ECANCELED, "given up, since another rank failed");
	ofs_task_failed(crew, &why);
	return 0;
}

static int take_one(struct ofs_task *crew, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	switch (ofs_cursor_u8(c)) {
	case OFS_TASK_NOTE:
		if (crew->take == NULL)
			return optimfs_fail(err, ECANCELED, "given up");
		return crew->take(crew->ctx, from, c, err);
	case OFS_TASK_VOTE:
		return take_vote(crew, from, c, err);
	case OFS_TASK_VERDICT:
		return take_verdict(crew, c, err);
	case OFS_TASK_ASK:
		return take_ask(crew, c);
	default:
		return garbled(err);
	}
}

int ofs_task_answer(struct ofs_task *crew, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&crew->lock);
	ret = take_one(crew, from, c, err);
	pthread_mutex_unlock(&crew->lock);
	return ret;
}
