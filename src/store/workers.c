/* workers.c - threads that decode extents ahead of their use */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "optimfs/error.h"

#include "base/memory.h"

struct job {
	struct ofs_extent at;
	enum { NOTHING, WAITS, RUNS } state;
};

struct ofs_workers {
	ofs_workers_fn *run;
	void *ctx;
	_Atomic bool stop;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t more;
	struct job job[OFS_WORKERS_MOST];
	pthread_t thread[OFS_WORKERS_MOST];
	unsigned most, started;
};

struct ofs_workers *ofs_workers_new(ofs_workers_fn *run, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_workers *w = ofs_alloc(1, sizeof(*w), err);
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	if (w == NULL)
		return NULL;
	w->run = run;
	w->ctx = ctx;
	w->most = n < 1                  ? 1
	    : n > (long)OFS_WORKERS_MOST ? OFS_WORKERS_MOST
					 : (unsigned)n;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	return w;
}

void ofs_workers_free(struct ofs_workers *w)
{
	if (w == NULL)
		return;
	atomic_store(&w->stop, true);
	pthread_mutex_lock(&w->lock);
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->started; i++)
		pthread_join(w->thread[i], NULL);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

unsigned ofs_workers_most(const struct ofs_workers *w)
{
	return w->most;
}

static struct job *next_job(struct ofs_workers *w)
{
	for (unsigned i = 0; i < w->most; i++)
		if (w->job[i].state == WAITS)
			return &w->job[i];
	return NULL;
}

static void *work(void *arg)
{
	struct ofs_workers *w = arg;
	struct job *job;

	pthread_mutex_lock(&w->lock);
	while (!atomic_load(&w->stop)) {
		job = next_job(w);
		if (job == NULL) {
			pthread_cond_wait(&w->more, &w->lock);
			continue;
		}
		job->state = RUNS;
		pthread_mutex_unlock(&w->lock);
		w->run(w->ctx, &job->at, &w->stop);
		pthread_mutex_lock(&w->lock);
		job->state = NOTHING;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* The lock is held. */
static void start(struct ofs_workers *w)
{
	while (w->started < w->most &&
	    pthread_create(&w->thread[w->started], NULL, work, w) == 0)
		w->started++;
}

static bool same(const struct ofs_extent *a, const struct ofs_extent *b)
{
	return a->object == b->object && a->off == b->off && a->len == b->len;
}

void ofs_workers_add(struct ofs_workers *w, const struct ofs_extent *at)
{
	struct job *room = NULL;

	pthread_mutex_lock(&w->lock);
	for (unsigned i = 0; i < w->most; i++) {
		struct job *job = &w->job[i];

		if (job->state == NOTHING) {
			room = room == NULL ? job : room;
		} else if (same(&job->at, at)) {
			room = NULL;
			break;
		}
	}
	if (room != NULL && !atomic_load(&w->stop)) {
		*room = (struct job){ *at, WAITS };
		start(w);
		pthread_cond_signal(&w->more);
	}
	pthread_mutex_unlock(&w->lock);
}
