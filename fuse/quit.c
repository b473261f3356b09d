/* quit.c - signals that end a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/quit.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/memory.h"
#include "fuse/log.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"

/* Ticks of 50 ms. */
enum {
	TICKS_SECOND = 20,
	TICKS_ABORT = TICKS_SECOND,
	TICKS_GIVE_UP = 5 * TICKS_SECOND,
	/* requests of a mount that is gone: nobody waits for them */
	TICKS_REQUESTS = 60 * TICKS_SECOND,
	TICKS_WORD = 60 * TICKS_SECOND,
};
/* Sent to our thread when the session has ended, and to end it. */
#define SIG_DONE SIGUSR1

struct ofs_quit {
	struct ofs_quit_config config;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the members below */
	const char *step;     /* NULL: the loop runs */
	unsigned ticks;       /* of this step */
	unsigned idle,
	    limit; /* ticks in which nothing moved; the most of them */
	uint64_t moves;
	bool came; /* a signal was received */
	bool finished;
};

static void the_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIG_DONE);
}

void ofs_quit_block(void)
{
	sigset_t set;

	the_set(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Waiting requests get an error; new ones find no mount. */
static void abort_mount(const struct ofs_quit *q)
{
	const char *point = q->config.point;
	struct ofs_mountinfo m;
	struct optimfs_error err;

	if (point == NULL || !ofs_mountinfo_find(point, &m))
		return;
	if (strcmp(m.type, "fuse.optimfs") == 0) {
		ofs_log("%s: requests are still in flight: aborting them",
		    point);
		if (ofs_connection_abort(&m, &err) == -1)
			ofs_log("%s", err.text);
		(void)ofs_unmount(point, true, NULL);
	}
	ofs_mountinfo_fini(&m);
}

static _Noreturn void give_up(const struct ofs_quit *q, int status)
{
	const struct ofs_quit_config *c = &q->config;

	ofs_log("%s: ends without waiting for %s%s", c->source,
	    q->step == NULL ? "requests in flight" : q->step,
	    c->rw ? ": changes that are not committed stay for the next mount, "
		    "but what was not synced may be lost"
		  : "");
	if (c->point != NULL && q->step == NULL)
		fuse_session_unmount(c->se);
	_exit(status);
}

/* While the loop runs. A thread may miss the first stop. */
static void end_loop(struct ofs_quit *q)
{
	unsigned limit = q->came ? TICKS_GIVE_UP : TICKS_REQUESTS;

	ofs_loop_stop(q->config.loop);
	if (q->came && q->ticks == TICKS_ABORT)
		abort_mount(q);
	if (q->ticks >= limit)
		give_up(q, q->config.rw ? 3 : 0);
}

static void watch_step(struct ofs_quit *q)
{
	uint64_t moves = optimfs_moves();

	q->idle = moves == q->moves ? q->idle + 1 : 0;
	q->moves = moves;
	if (q->idle >= q->limit)
		give_up(q, 3);
	if (q->ticks % TICKS_WORD == 0)
		ofs_log("%s: is unmounted, and still busy with %s",
		    q->config.source, q->step);
}

/* False: the process is ready to end. */
static bool take(struct ofs_quit *q, int sig)
{
	bool go_on;

	pthread_mutex_lock(&q->lock);
	q->ticks++;
	if (sig > 0 && sig != SIG_DONE && q->step == NULL) {
		if (q->came)
			give_up(q, 128 + sig);
		q->came = true;
		q->ticks = 0;
	}
	go_on = !q->finished;
	if (go_on && q->step == NULL)
		end_loop(q);
	else if (go_on)
		watch_step(q);
	pthread_mutex_unlock(&q->lock);
	return go_on;
}

static void *wait_signals(void *arg)
{
	struct ofs_quit *q = arg;
	const struct timespec tick = { .tv_nsec = 50 * 1000 * 1000 };
	sigset_t set;
	int sig;

	the_set(&set);
	while (sigwait(&set, &sig) != 0)
		continue;
	while (take(q, sig))
		sig = sigtimedwait(&set, NULL, &tick);
	return NULL;
}

struct ofs_quit *ofs_quit_new(const struct ofs_quit_config *config,
    struct optimfs_error *err)
{
	struct ofs_quit *q = ofs_alloc(1, sizeof(*q), err);
	int code;

	if (q == NULL)
		return NULL;
	q->config = *config;
	pthread_mutex_init(&q->lock, NULL);
	code = pthread_create(&q->thread, NULL, wait_signals, q);
	if (code == 0)
		return q;
	optimfs_fail(err, code, "cannot start a thread");
	pthread_mutex_destroy(&q->lock);
	free(q);
	return NULL;
}

void ofs_quit_ended(struct ofs_quit *q)
{
	pthread_kill(q->thread, SIG_DONE);
}

bool ofs_quit_step(struct ofs_quit *q, const char *step, unsigned seconds)
{
	bool came;

	if (q == NULL)
		return false;
	pthread_mutex_lock(&q->lock);
	q->step = step;
	q->ticks = q->idle = 0;
	q->limit = seconds * TICKS_SECOND;
	came = q->came;
	pthread_mutex_unlock(&q->lock);
	ofs_quit_ended(q);
	return came;
}

void ofs_quit_free(struct ofs_quit *q)
{
	if (q == NULL)
		return;
	pthread_mutex_lock(&q->lock);
	q->finished = true;
	pthread_mutex_unlock(&q->lock);
	ofs_quit_ended(q);
	pthread_join(q->thread, NULL);
	pthread_mutex_destroy(&q->lock);
	free(q);
}
