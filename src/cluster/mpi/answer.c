/* answer.c - threads that compute answers, and buffers of messages */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster/mpi/mpi.h"

/* Blocks of this size are kept for reuse; smaller ones are cheap to allocate,
 * and there are no larger ones. */
#define LARGE ((size_t)64 << 10)
#define KEPT  (ANSWER_SIZE(OFS_GROUP_ANSWER_MAX))
enum { MAX_SPARE = 32 };

struct mpi_block *mpi_pool_get(struct mpi_pool *pool, size_t size)
{
	struct mpi_block *b = NULL;

	if (size >= LARGE) {
		pthread_mutex_lock(&pool->lock);
		b = LIST_FIRST(&pool->spare);
		if (b != NULL) {
			LIST_REMOVE(b, next);
			pool->nspare--;
		}
		pthread_mutex_unlock(&pool->lock);
		if (size < KEPT)
			size = KEPT;
	}
	if (b == NULL &&
	    posix_memalign((void **)&b, 64, sizeof(*b) + size) != 0)
		return NULL;
	b->size = size;
	return b;
}

static void pool_put(struct mpi_pool *pool, struct mpi_block *b)
{
	if (b == NULL)
		return;
	if (b->size == KEPT) {
		pthread_mutex_lock(&pool->lock);
		if (pool->nspare < MAX_SPARE) {
			LIST_INSERT_HEAD(&pool->spare, b, next);
			pool->nspare++;
			b = NULL;
		}
		pthread_mutex_unlock(&pool->lock);
	}
	free(b);
}

void mpi_pool_fini(struct mpi_pool *pool)
{
	struct mpi_block *b;

	while ((b = LIST_FIRST(&pool->spare)) != NULL) {
		LIST_REMOVE(b, next);
		free(b);
	}
	pthread_mutex_destroy(&pool->lock);
}

void mpi_job_free(struct ofs_group *w, struct mpi_job *job)
{
	pool_put(&w->pool, job->request);
	pool_put(&w->pool, job->answer);
	free(job);
}

void mpi_question_free(struct ofs_group *w, struct mpi_question *q)
{
	pool_put(&w->pool, q->request);
	pool_put(&w->pool, q->answer);
	free(q);
}

/* False: no memory, not even for an error; there will be no answer. */
static bool make_answer(struct ofs_group *w, struct mpi_job *job)
{
	struct optimfs_error err = { 0 };
	struct mpi_tail tail = { 0 };
	size_t n = (size_t)job->want;

	job->answer = mpi_pool_get(&w->pool, ANSWER_SIZE(job->want));
	if (job->answer == NULL)
		return false;
	if (w->config.answer(w->config.ctx, job->from,
		job->request->bytes + sizeof(struct mpi_head), job->nrequest,
		job->answer->bytes, job->want, &err) == -1) {
		tail = (struct mpi_tail){ err.code > 0 ? (uint32_t)err.code
						       : EIO,
			(uint32_t)err.number, err.how, err.lost, err.nlost };
		n = strnlen(err.text, MPI_TEXT - 1);
		memcpy(job->answer->bytes, err.text, n);
	}
	memcpy(job->answer->bytes + n, &tail, sizeof(tail));
	job->nanswer = n + sizeof(tail);
	return true;
}

/* Sends it, or whoever makes MPI calls now does. */
static void give_answer(struct ofs_group *w, struct mpi_job *job)
{
	pthread_mutex_lock(&w->lock);
	TAILQ_INSERT_TAIL(&w->ready, job, next);
	pthread_mutex_unlock(&w->lock);
	if (mpi_turn(w))
		return;
	pthread_mutex_lock(&w->lock);
	mpi_wake(w);
	pthread_mutex_unlock(&w->lock);
}

static void *work(void *arg)
{
	struct ofs_group *w = arg;
	struct mpi_job *job;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->stopping && TAILQ_EMPTY(&w->asked))
			pthread_cond_wait(&w->more, &w->lock);
		job = TAILQ_FIRST(&w->asked);
		if (job == NULL)
			break;
		TAILQ_REMOVE(&w->asked, job, next);
		pthread_mutex_unlock(&w->lock);
		if (make_answer(w, job))
			give_answer(w, job);
		else
			mpi_job_free(w, job);
		pthread_mutex_lock(&w->lock);
		if (!w->stopping && TAILQ_EMPTY(&w->asked))
			mpi_help(w, NULL); /* the next one is likely */
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int mpi_answer_start(struct ofs_group *w, struct optimfs_error *err)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	int code = 0;

	if (n < 2)
		n = 2;
	if (n > NTHREADS)
		n = NTHREADS;
	while (w->nanswerers < (unsigned)n && code == 0) {
		code =
		    pthread_create(&w->answerer[w->nanswerers], NULL, work, w);
		w->nanswerers += code == 0;
	}
	if (w->nanswerers > 0)
		return 0;
	return optimfs_fail(err, code, "cannot start a thread: %s",
	    strerror(code));
}

void mpi_answer_stop(struct ofs_group *w)
{
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->more);
	pthread_mutex_unlock(&w->lock);
	while (w->nanswerers > 0)
		pthread_join(w->answerer[--w->nanswerers], NULL);
}
