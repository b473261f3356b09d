/* pending.c - requests that may take long: answered early when they must */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Locks: libfuse calls interrupted() with the request's lock held, which then
 * takes ours. So we call nothing of libfuse with ours held. */
struct ofs_watch {
	unsigned seconds;
	void (*late)(void *ctx, uint64_t node);
	void *ctx;
	pthread_t thread;
	pthread_mutex_t lock; /* guards the following */
	pthread_cond_t wake;
	bool stop, asleep;
	struct ofs_pending *first;
};

/* How often the watching thread looks. */
#define TICK_MS 250

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* One request that is too late, marked as answered; NULL: there is none. */
static fuse_req_t take_late(struct ofs_watch *w, uint64_t *node)
{
	int64_t now = now_ms();

	for (struct ofs_pending *p = w->first; p != NULL; p = p->next)
		if (!p->answered && p->deadline < now) {
			p->answered = true;
			*node = p->node;
			return p->req;
		}
	return NULL;
}

/* Until something may be late: a tick, or for good after some without
 * requests. A request that finds us awake need not wake us. */
static void doze(struct ofs_watch *w, unsigned *quiet)
{
	struct timespec ts;

	*quiet = w->first == NULL ? *quiet + 1 : 0;
	if (*quiet > 8) {
		w->asleep = true;
		pthread_cond_wait(&w->wake, &w->lock);
		w->asleep = false;
		*quiet = 0;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += TICK_MS * 1000000L;
	if (ts.tv_nsec >= 1000000000L) {
		ts.tv_nsec -= 1000000000L;
		ts.tv_sec++;
	}
	pthread_cond_timedwait(&w->wake, &w->lock, &ts);
}

static void *watch(void *arg)
{
	struct ofs_watch *w = arg;
	unsigned quiet = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		uint64_t node;
		fuse_req_t req = take_late(w, &node);

		if (req == NULL) {
			doze(w, &quiet);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		fuse_reply_err(req, ETIMEDOUT);
		w->late(w->ctx, node);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct ofs_watch *ofs_watch_new(unsigned seconds,
    void (*late)(void *ctx, uint64_t node), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_watch *w = calloc(1, sizeof(*w));
	pthread_condattr_t attr;
	int code;

	if (w == NULL) {
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	w->seconds = seconds;
	w->late = late;
	w->ctx = ctx;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	if (seconds == 0)
		return w;
	code = pthread_create(&w->thread, NULL, watch, w);
	if (code == 0)
		return w;
	optimfs_fail(err, code, "cannot start a thread");
	w->seconds = 0;
	ofs_watch_free(w);
	return NULL;
}

void ofs_watch_free(struct ofs_watch *w)
{
	if (w == NULL)
		return;
	if (w->seconds != 0) {
		pthread_mutex_lock(&w->lock);
		w->stop = true;
		pthread_cond_signal(&w->wake);
		pthread_mutex_unlock(&w->lock);
		pthread_join(w->thread, NULL);
	}
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* The kernel says that nobody waits for req. What is pending is looked for by
 * req: the thread that works on it may just have ended it. */
static void interrupted(fuse_req_t req, void *data)
{
	struct ofs_watch *w = data;
	bool mine = false;

	pthread_mutex_lock(&w->lock);
	for (struct ofs_pending *p = w->first; p != NULL; p = p->next) {
		if (p->req != req || p->answered)
			continue;
		p->answered = true;
		/* from within begin the request must outlive this call */
		p->early =
		    p->beginning && pthread_equal(p->owner, pthread_self());
		mine = !p->early;
		break;
	}
	pthread_mutex_unlock(&w->lock);
	if (mine)
		fuse_reply_err(req, EINTR);
}

static void unlink_pending(struct ofs_pending *p)
{
	*p->back = p->next;
	if (p->next != NULL)
		p->next->back = p->back;
}

bool ofs_pending_begin(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node)
{
	bool early;

	*p = (struct ofs_pending){
		.watch = w,
		.req = req,
		.node = node,
		.deadline = now_ms() + (int64_t)w->seconds * 1000,
		.owner = pthread_self(),
		.beginning = true,
	};
	pthread_mutex_lock(&w->lock);
	if (w->asleep)
		pthread_cond_signal(&w->wake);
	p->next = w->first;
	p->back = &w->first;
	if (p->next != NULL)
		p->next->back = &p->next;
	w->first = p;
	pthread_mutex_unlock(&w->lock);

	fuse_req_interrupt_func(req, interrupted, w);

	pthread_mutex_lock(&w->lock);
	p->beginning = false;
	early = p->early;
	if (early)
		unlink_pending(p);
	pthread_mutex_unlock(&w->lock);
	return !early;
}

bool ofs_pending_end(struct ofs_pending *p)
{
	bool mine;

	pthread_mutex_lock(&p->watch->lock);
	unlink_pending(p);
	mine = !p->answered;
	pthread_mutex_unlock(&p->watch->lock);
	return mine;
}

bool ofs_pending_gone(struct ofs_pending *p)
{
	bool gone;

	pthread_mutex_lock(&p->watch->lock);
	gone = p->answered;
	pthread_mutex_unlock(&p->watch->lock);
	return gone;
}
