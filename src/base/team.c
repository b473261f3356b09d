/* team.c - threads that share a piece of work */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

#define TICK_NS 200000000
#define USUAL   16

struct team {
	unsigned n;
	_Atomic unsigned next;
	void (*work)(void *ctx, unsigned i);
	void *ctx;
	pthread_mutex_t lock; /* of the members below */
	pthread_cond_t ended;
	unsigned running;
};

unsigned ofs_team_size(unsigned jobs)
{
	cpu_set_t own;
	unsigned n = jobs;

	if (n == 0 && sched_getaffinity(0, sizeof(own), &own) == 0) {
		n = (unsigned)CPU_COUNT(&own);
		n = n < USUAL ? n : USUAL;
	}
	return n == 0 ? 1 : n < OFS_TEAM_MAX ? n : OFS_TEAM_MAX;
}

static void take_part(struct team *t)
{
	unsigned i;

	while ((i = atomic_fetch_add(&t->next, 1)) < t->n)
		t->work(t->ctx, i);
}

static void *member(void *arg)
{
	struct team *t = arg;

	take_part(t);
	pthread_mutex_lock(&t->lock);
	t->running--;
	pthread_cond_signal(&t->ended);
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void watch(struct team *t, void (*tick)(void *ctx))
{
	pthread_mutex_lock(&t->lock);
	while (t->running > 0) {
		if (ofs_clock_wait(&t->ended, &t->lock, TICK_NS) == 0)
			continue;
		pthread_mutex_unlock(&t->lock);
		tick(t->ctx);
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
}

void ofs_team_run(unsigned n, void (*work)(void *ctx, unsigned i),
    void (*tick)(void *ctx), void *ctx)
{
	struct team t = { .n = n,
		.work = work,
		.ctx = ctx,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.ended = PTHREAD_COND_INITIALIZER };
	/* without tick, this thread is one of them */
	unsigned want = tick == NULL && n > 0 ? n - 1 : n, made = 0;
	pthread_t id[OFS_TEAM_MAX];

	if (tick != NULL)
		tick(ctx);
	pthread_mutex_lock(&t.lock);
	while (made < want && pthread_create(&id[made], NULL, member, &t) == 0)
		made++;
	t.running = made;
	pthread_mutex_unlock(&t.lock);
	if (tick == NULL || made == 0)
		take_part(&t);
	if (tick != NULL)
		watch(&t, tick);
	for (unsigned i = 0; i < made; i++)
		pthread_join(id[i], NULL);
	if (tick != NULL)
		tick(ctx);
	pthread_cond_destroy(&t.ended);
	pthread_mutex_destroy(&t.lock);
}
