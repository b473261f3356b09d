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

#include "base/memory.h"
#include "fuse/log.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"

/* Ticks of 50 ms. */
enum {
	TICKS_ABORT = 20,
	TICKS_GIVE_UP = 100,
};
/* Sent to our thread to end it. */
#define SIG_DONE SIGUSR1

struct ofs_quit {
	struct fuse_session *se;
	struct ofs_loop *loop;
	char *point;
	pthread_t thread;
	bool came; /* a signal was received; owned by the thread until joined */
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
	struct ofs_mountinfo m;
	struct optimfs_error err;

	if (q->point == NULL || !ofs_mountinfo_find(q->point, &m))
		return;
	if (strcmp(m.type, "fuse.optimfs") == 0) {
		ofs_log("%s: requests are still in flight: aborting them",
		    q->point);
		if (ofs_connection_abort(&m, &err) == -1)
			ofs_log("%s", err.text);
		(void)ofs_unmount(q->point, true, NULL);
	}
	ofs_mountinfo_fini(&m);
}

static _Noreturn void give_up(const struct ofs_quit *q, int status)
{
	if (q->point != NULL)
		fuse_session_unmount(q->se);
	_exit(status);
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
	if (sig == SIG_DONE)
		return NULL;
	q->came = true;
	for (int n = 0;; n++) {
		ofs_loop_stop(q->loop);
		sig = sigtimedwait(&set, NULL, &tick);
		if (sig == SIG_DONE)
			return NULL;
		if (sig > 0)
			give_up(q, 128 + sig);
		if (n == TICKS_ABORT)
			abort_mount(q);
		if (n == TICKS_GIVE_UP)
			give_up(q, 0);
	}
}

struct ofs_quit *ofs_quit_new(struct fuse_session *se, struct ofs_loop *loop,
    const char *point, struct optimfs_error *err)
{
	struct ofs_quit *q = calloc(1, sizeof(*q));
	int code;

	if (q == NULL)
		goto no_memory;
	q->se = se;
	q->loop = loop;
	if (point != NULL && (q->point = strdup(point)) == NULL)
		goto no_memory;
	code = pthread_create(&q->thread, NULL, wait_signals, q);
	if (code == 0)
		return q;
	optimfs_fail(err, code, "cannot start a thread");
	free(q->point);
	free(q);
	return NULL;
no_memory:
	ofs_no_memory(err);
	free(q);
	return NULL;
}

bool ofs_quit_free(struct ofs_quit *q)
{
	bool came;

	if (q == NULL)
		return false;
	pthread_kill(q->thread, SIG_DONE);
	pthread_join(q->thread, NULL);
	came = q->came;
	free(q->point);
	free(q);
	return came;
}
