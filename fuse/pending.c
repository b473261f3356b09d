/* pending.c - early replies to requests that take long */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/pending.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "fuse/passthrough.h"

/* Lock order: libfuse calls interrupted() with the lock of the request held;
 * then ours; then, in a reply, that of the session. */
struct ofs_watch {
	struct ofs_watch_config config;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t wake;
	bool stop, asleep;
	struct ofs_pending *first;
};

/* Interval of the watching thread. */
#define TICK_MS 250
/* While threads are blocked: more may follow at once. */
#define TICK_STUCK_MS 25
/* Time after which a thread counts as blocked. */
#define STUCK_MS 100

/* The lock is held: the working thread needs it before it can leave and close
 * its device. */
static void answer(struct ofs_pending *p, int code)
{
	int mine = ofs_passthrough_device_now();

	p->answered = true;
	ofs_passthrough_device(p->device);
	fuse_reply_err(p->req, code);
	ofs_passthrough_device(mine);
}

/* Answers one request that is too late; false: there is none. One that begins
 * is still used by its thread. */
static bool answer_late(struct ofs_watch *w, uint64_t *node)
{
	int64_t now = ofs_clock_ms();

	for (struct ofs_pending *p = w->first; p != NULL; p = p->next)
		if (!p->answered && !p->beginning && p->deadline < now) {
			*node = p->node;
			answer(p, ETIMEDOUT);
			return true;
		}
	return false;
}

static unsigned count_stuck(const struct ofs_watch *w)
{
	int64_t before = ofs_clock_ms() - STUCK_MS;
	unsigned n = 0;

	for (const struct ofs_pending *p = w->first; p != NULL; p = p->next)
		n += p->began < before;
	return n;
}

/* Sleeps for a tick, or until woken after some ticks without requests. A
 * request that finds the thread awake does not wake it. */
static void doze(struct ofs_watch *w, unsigned *quiet, unsigned stuck)
{
	int64_t ms = stuck > 0 ? TICK_STUCK_MS : TICK_MS;

	*quiet = w->first == NULL ? *quiet + 1 : 0;
	if (*quiet > 8) {
		w->asleep = true;
		pthread_cond_wait(&w->wake, &w->lock);
		w->asleep = false;
		*quiet = 0;
		return;
	}
	ofs_clock_wait(&w->wake, &w->lock, ms * INT64_C(1000000));
}

static void *watch(void *arg)
{
	struct ofs_watch *w = arg;
	const struct ofs_watch_config *c = &w->config;
	unsigned quiet = 0, told = 0;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		unsigned n = count_stuck(w);
		uint64_t node;
		bool late = answer_late(w, &node);

		if (!late && n == told) {
			doze(w, &quiet, n);
			continue;
		}
		pthread_mutex_unlock(&w->lock);
		if (late)
			c->late(c->ctx, node);
		if (n != told)
			c->stuck(c->ctx, n);
		told = n;
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

struct ofs_watch *ofs_watch_new(const struct ofs_watch_config *config,
    struct optimfs_error *err)
{
	struct ofs_watch *w = ofs_alloc(1, sizeof(*w), err);
	int code;

	if (w == NULL)
		return NULL;
	w->config = *config;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->wake, NULL);
	code = pthread_create(&w->thread, NULL, watch, w);
	if (code == 0)
		return w;
	optimfs_fail(err, code, "cannot start a thread");
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return NULL;
}

void ofs_watch_free(struct ofs_watch *w)
{
	if (w == NULL)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* The kernel reports that req was interrupted. The request is looked up by req,
 * because its thread may just have ended it. */
static void interrupted(fuse_req_t req, void *data)
{
	struct ofs_watch *w = data;
	struct ofs_pending *p;

	pthread_mutex_lock(&w->lock);
	for (p = w->first; p != NULL; p = p->next)
		if (p->req == req && !p->answered && !p->patient)
			break;
	if (p != NULL && p->beginning &&
	    pthread_equal(p->owner, pthread_self()))
		p->early =
		    true; /* req must stay valid for the callers of this function */
	else if (p != NULL)
		answer(p, EINTR);
	pthread_mutex_unlock(&w->lock);
}

static void unlink_pending(struct ofs_pending *p)
{
	*p->back = p->next;
	if (p->next != NULL)
		p->next->back = p->back;
}

static void link_pending(struct ofs_pending *p)
{
	struct ofs_watch *w = p->watch;

	p->back = &w->first;
	p->next = w->first;
	if (p->next != NULL)
		p->next->back = &p->next;
	w->first = p;
	if (w->asleep)
		pthread_cond_signal(&w->wake);
}

void ofs_pending_hold(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node)
{
	*p = (struct ofs_pending){
		.watch = w,
		.req = req,
		.node = node,
		.began = ofs_clock_ms(),
		.deadline = INT64_MAX,
		.patient = true,
	};
	pthread_mutex_lock(&w->lock);
	link_pending(p);
	pthread_mutex_unlock(&w->lock);
}

bool ofs_pending_begin(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node)
{
	bool early;

	*p = (struct ofs_pending){
		.watch = w,
		.req = req,
		.node = node,
		.began = ofs_clock_ms(),
		.deadline = INT64_MAX,
		.device = ofs_passthrough_device_now(),
		.owner = pthread_self(),
		.beginning = true,
	};
	if (w->config.seconds != 0)
		p->deadline = p->began + (int64_t)w->config.seconds * 1000;
	pthread_mutex_lock(&w->lock);
	link_pending(p);
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
