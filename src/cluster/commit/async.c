/* async.c - work that takes longer than an answer to a rank may */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/commit/async.h"

#include <errno.h>

void ofs_async_init(struct ofs_async *e)
{
	*e = (struct ofs_async){ .begun = false };
	pthread_mutex_init(&e->lock, NULL);
}

void ofs_async_fini(struct ofs_async *e)
{
	if (e->begun)
		pthread_join(e->thread, NULL);
	pthread_mutex_destroy(&e->lock);
}

static void *work(void *arg)
{
	struct ofs_async *e = arg;
	struct optimfs_error err = { 0 };
	int ret = e->run(e->arg, &err);

	pthread_mutex_lock(&e->lock);
	e->ret = ret;
	e->err = err;
	e->done = true;
	pthread_mutex_unlock(&e->lock);
	return NULL;
}

int ofs_async_begin(struct ofs_async *e,
    int (*run)(void *arg, struct optimfs_error *err), void *arg,
    struct optimfs_error *err)
{
	int code = 0;

	pthread_mutex_lock(&e->lock);
	if (e->begun && e->done) {
		/* nobody has asked how it ended */
		pthread_join(e->thread, NULL);
		e->begun = false;
	}
	if (e->begun) {
		pthread_mutex_unlock(&e->lock);
		return optimfs_fail(err, EBUSY,
		    "OFS815 a commit is under way already");
	}
	e->run = run;
	e->arg = arg;
	e->done = false;
	code = pthread_create(&e->thread, NULL, work, e);
	e->begun = code == 0;
	pthread_mutex_unlock(&e->lock);
	return code == 0
	    ? 0
	    : optimfs_fail(err, code, "cannot start a thread for a commit");
}

int ofs_async_poll(struct ofs_async *e, bool *done, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&e->lock);
	*done = !e->begun || e->done;
	if (e->begun && e->done) {
		pthread_join(e->thread, NULL);
		e->begun = false;
		ret = e->ret;
		if (ret == -1 && err != NULL)
			*err = e->err;
	}
	pthread_mutex_unlock(&e->lock);
	return ret;
}
