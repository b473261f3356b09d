/* team.c - work shared by threads, as many as can be started */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/team.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tap.h"

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg);

static unsigned may_start; /* so many threads, and no more */

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg)
{
	if (may_start == 0)
		return EAGAIN;
	may_start--;
	return __real_pthread_create(t, a, fn, arg);
}

struct calls {
	_Atomic unsigned of[OFS_TEAM_MAX];
	_Atomic unsigned ended, ticks;
	unsigned n;
	bool seen; /* the last tick saw that all had ended */
	pthread_t caller;
	bool elsewhere; /* a tick was in another thread */
};

static void work(void *ctx, unsigned i)
{
	struct calls *c = ctx;

	atomic_fetch_add(&c->of[i], 1);
	atomic_fetch_add(&c->ended, 1);
}

static void tick(void *ctx)
{
	struct calls *c = ctx;

	atomic_fetch_add(&c->ticks, 1);
	c->seen = atomic_load(&c->ended) == c->n;
	c->elsewhere |= !pthread_equal(c->caller, pthread_self());
}

static void run(unsigned n, unsigned threads, bool with_tick)
{
	struct calls c = { .n = n, .caller = pthread_self() };
	unsigned once = 0;

	may_start = threads;
	ofs_team_run(n, work, with_tick ? tick : NULL, &c);
	for (unsigned i = 0; i < OFS_TEAM_MAX; i++)
		once += c.of[i] == (i < n);
	is_int(once, OFS_TEAM_MAX,
	    "%u calls with up to %u threads%s: each once", n, threads,
	    with_tick ? " and ticks" : "");
	if (!with_tick)
		return;
	ok(c.ticks >= 2 && !c.elsewhere, "ticks come from the caller");
	ok(c.seen, "the last one comes when all have returned");
}

int main(void)
{
	static const unsigned n[] = { 0, 1, 2, 5, OFS_TEAM_MAX };
	static const unsigned threads[] = { 0, 1, 3, OFS_TEAM_MAX };

	for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		for (unsigned k = 0; k < sizeof(threads) / sizeof(threads[0]);
		     k++) {
			run(n[i], threads[k], false);
			run(n[i], threads[k], true);
		}
	is_int(ofs_team_size(3), 3, "a number of threads is taken as it is");
	is_int(ofs_team_size(1000), OFS_TEAM_MAX, "up to the most");
	ok(ofs_team_size(0) >= 1 && ofs_team_size(0) <= 16,
	    "without one it follows from the processors");
	return done_testing();
}
