/* simtime.c - time that passes only while all threads wait */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/simtime.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/checked.h"
#include "tap.h"

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **ret);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __real_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg);
int __wrap_pthread_join(pthread_t t, void **ret);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m,
    clockid_t id, const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

enum { BUCKETS = 1024, MAX_WAITERS = 1 << 20 };

/* A thread that waits for what (a condition, a thread; NULL: nothing), at most
 * until. */
struct waiter {
	struct waiter *next; /* of the bucket */
	const void *what;
	int64_t until; /* INT64_MAX: no limit */
	size_t place;  /* in the heap */
	bool woken, in_time;
	pthread_cond_t own;
};

struct thread {
	struct thread *next;
	pthread_t id;
	void *(*fn)(void *);
	void *arg;
	bool ended;
};

static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static int64_t now = 1000000000;
static unsigned running = 1;
static struct waiter *bucket[BUCKETS];
static struct waiter *heap[MAX_WAITERS]; /* the first in time at 1 */
static size_t nheap;
static struct thread *threads;

/* The heap. */

static void put_at(size_t i, struct waiter *w)
{
	heap[i] = w;
	w->place = i;
}

static void sift(size_t i, struct waiter *w)
{
	size_t k;

	for (; i > 1 && heap[i / 2]->until > w->until; i /= 2)
		put_at(i, heap[i / 2]);
	for (; (k = 2 * i) <= nheap; i = k) {
		k += k < nheap && heap[k + 1]->until < heap[k]->until;
		if (heap[k]->until >= w->until)
			break;
		put_at(i, heap[k]);
	}
	put_at(i, w);
}

static struct waiter **bucket_of(const void *what)
{
	return &bucket[(uintptr_t)what / 8 % BUCKETS];
}

static void add(struct waiter *w)
{
	struct waiter **b = bucket_of(w->what);

	if (nheap + 1 == MAX_WAITERS)
		bail_out("too many threads");
	w->next = *b;
	*b = w;
	nheap++;
	sift(nheap, w);
}

static void wake(struct waiter *w, bool in_time)
{
	struct waiter **p = bucket_of(w->what), *last = heap[nheap--];

	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	if (last != w)
		sift(w->place, last);
	w->woken = true;
	w->in_time = in_time;
	running++;
	__real_pthread_cond_signal(&w->own);
}

static void wake_all(const void *what, bool all)
{
	struct waiter *w, *next, *oldest = NULL;

	for (w = *bucket_of(what); w != NULL; w = next) {
		next = w->next;
		if (w->what == what && all)
			wake(w, true);
		else if (w->what == what)
			oldest = w;
	}
	if (oldest != NULL)
		wake(oldest, true);
}

/* This thread stops. */
static void stop(void)
{
	if (--running > 0)
		return;
	if (nheap == 0 || heap[1]->until == INT64_MAX)
		bail_out("%zu threads wait forever", nheap);
	now = heap[1]->until;
	wake(heap[1], false);
}

/* The lock is held. */
static bool wait_for(const void *what, int64_t until)
{
	struct waiter w = {
		.what = what, .until = until, .own = PTHREAD_COND_INITIALIZER
	};

	add(&w);
	stop();
	while (!w.woken)
		__real_pthread_cond_wait(&w.own, &big);
	return w.in_time;
}

static int wait_on(pthread_cond_t *c, pthread_mutex_t *m, int64_t until)
{
	bool in_time = false;

	pthread_mutex_lock(&big);
	pthread_mutex_unlock(m);
	if (until > now)
		in_time = wait_for(c, until);
	pthread_mutex_unlock(&big);
	pthread_mutex_lock(m);
	return in_time ? 0 : ETIMEDOUT;
}

/* What the program calls. */

int64_t simtime_now(void)
{
	int64_t ns;

	pthread_mutex_lock(&big);
	ns = now;
	pthread_mutex_unlock(&big);
	return ns;
}

void simtime_sleep_until(int64_t ns)
{
	pthread_mutex_lock(&big);
	if (ns > now)
		(void)wait_for(NULL, ns);
	pthread_mutex_unlock(&big);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	int64_t ns;

	if (id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, t);
	ns = simtime_now();
	*t = (struct timespec){ ns / 1000000000, ns % 1000000000 };
	return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	return wait_on(c, m, INT64_MAX);
}

int __wrap_pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m,
    clockid_t id, const struct timespec *until)
{
	if (id != CLOCK_MONOTONIC)
		bail_out("a wait by another clock");
	return wait_on(c, m, ofs_time_ns(until));
}

int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
	pthread_mutex_lock(&big);
	wake_all(c, false);
	pthread_mutex_unlock(&big);
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
	pthread_mutex_lock(&big);
	wake_all(c, true);
	pthread_mutex_unlock(&big);
	return 0;
}

static void *be_thread(void *arg)
{
	struct thread *t = arg;
	void *ret = t->fn(t->arg);

	pthread_mutex_lock(&big);
	t->ended = true;
	wake_all(t, true);
	stop();
	pthread_mutex_unlock(&big);
	return ret;
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *a,
    void *(*fn)(void *), void *arg)
{
	struct thread *t = malloc(sizeof(*t));
	pthread_attr_t small;
	int code;

	if (t == NULL)
		return ENOMEM;
	*t = (struct thread){ .fn = fn, .arg = arg };
	pthread_attr_init(&small); /* many of these are kept for the next */
	pthread_attr_setstacksize(&small, 512 << 10);
	pthread_mutex_lock(&big);
	code = __real_pthread_create(id, a == NULL ? &small : a, be_thread, t);
	pthread_attr_destroy(&small);
	t->id = *id;
	t->next = threads;
	if (code == 0) {
		threads = t;
		running++;
	}
	pthread_mutex_unlock(&big);
	if (code != 0)
		free(t);
	return code;
}

int __wrap_pthread_join(pthread_t id, void **ret)
{
	struct thread **p = &threads, *t;

	pthread_mutex_lock(&big);
	while (!pthread_equal((*p)->id, id))
		p = &(*p)->next;
	t = *p;
	*p = t->next;
	if (!t->ended)
		(void)wait_for(t, INT64_MAX);
	pthread_mutex_unlock(&big);
	free(t);
	return __real_pthread_join(id, ret);
}
