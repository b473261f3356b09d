/* loop.c - the threads that take requests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"
#include "fuse/passthrough.h"

/* Interrupts a thread that waits for a request, so that it checks for the
 * end. */
#define SIG_LOOK  SIGUSR2
#define DEV_CLONE _IOR(229, 0, uint32_t)

struct worker {
	struct ofs_loop *loop;
	struct worker *next;
	pthread_t thread;
};

struct ofs_loop {
	struct fuse_session *se;
	struct ofs_loop_config config;
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t changed;
	struct worker *first; /* serving threads */
	struct worker *left;  /* ended threads, to be joined */
	unsigned n, wanted;
	struct optimfs_error failed; /* first error of any thread */
};

static void look(int sig)
{
	(void)sig;
}

struct ofs_loop *ofs_loop_new(struct fuse_session *se,
    const struct ofs_loop_config *config, struct optimfs_error *err)
{
	struct ofs_loop *l = calloc(1, sizeof(*l));
	struct sigaction sa = { .sa_handler = look };

	if (l == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	sigaction(SIG_LOOK, &sa, NULL);
	l->se = se;
	l->config = *config;
	if (l->config.max < config->threads)
		l->config.max = config->threads;
	l->wanted = config->threads;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	return l;
}

void ofs_loop_free(struct ofs_loop *l)
{
	if (l == NULL)
		return;
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* Opens a device for this thread, which saves contention in the kernel; returns
 * that of the session if not permitted. */
static int own_device(struct ofs_loop *l)
{
	uint32_t session = (uint32_t)fuse_session_fd(l->se);
	int fd = -1;

	if (l->config.devices)
		fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd != -1 && ioctl(fd, DEV_CLONE, &session) == -1) {
		close(fd);
		return -1;
	}
	return fd;
}

static void stop_all(struct ofs_loop *l)
{
	fuse_session_exit(l->se);
	for (struct worker *w = l->first; w != NULL; w = w->next)
		if (!pthread_equal(w->thread, pthread_self()))
			pthread_kill(w->thread, SIG_LOOK);
}

/* Leaves the list of workers; after this the thread gets no signals. The lock
 * is held. */
static void leave(struct ofs_loop *l, struct worker *w)
{
	struct worker **at = &l->first;

	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	l->n--;
	w->next = l->left;
	l->left = w;
	pthread_cond_signal(&l->changed);
}

/* Ends the loop; err: the reason, NULL: the session ended. */
static void end(struct ofs_loop *l, const struct optimfs_error *err)
{
	pthread_mutex_lock(&l->lock);
	if (err != NULL && l->failed.code == 0)
		l->failed = *err;
	stop_all(l);
	pthread_mutex_unlock(&l->lock);
	l->config.ended(l->config.ctx);
}

/* Serves one request. False: the session has ended. */
static bool serve(struct ofs_loop *l, struct fuse_buf *buf)
{
	int n = fuse_session_receive_buf(l->se, buf);
	struct optimfs_error err;

	if (n > 0) {
		fuse_session_process_buf(l->se, buf);
	} else if (n == 0) {
		end(l, NULL);
	} else if (n != -EINTR && n != -EAGAIN) {
		optimfs_fail(&err, -n, "reading /dev/fuse: %s", strerror(-n));
		end(l, &err);
	}
	return !fuse_session_exited(l->se);
}

/* Leave if there are too many threads. The count changes at once; otherwise all
 * would see the same surplus and leave. */
static bool leave_surplus(struct ofs_loop *l, struct worker *w)
{
	bool surplus;

	pthread_mutex_lock(&l->lock);
	surplus = l->n > l->wanted;
	if (surplus)
		leave(l, w);
	pthread_mutex_unlock(&l->lock);
	return surplus;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ofs_loop *l = w->loop;
	struct fuse_buf buf = { .mem = NULL };
	int fd = own_device(l);
	struct optimfs_error err;
	bool left = false;

	ofs_passthrough_device(fd);
	if (l->config.begin(l->config.ctx, &err) == -1)
		end(l, &err);
	else
		while (!left && serve(l, &buf))
			left = leave_surplus(l, w);
	free(buf.mem);
	if (fd != -1)
		close(fd);
	if (left)
		return NULL;
	pthread_mutex_lock(&l->lock);
	leave(l, w);
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* The lock is held. */
static int start(struct ofs_loop *l)
{
	struct worker *w = calloc(1, sizeof(*w));
	int code;

	if (w == NULL)
		return ENOMEM;
	w->loop = l;
	code = pthread_create(&w->thread, NULL, work, w);
	if (code != 0) {
		free(w);
		return code;
	}
	w->next = l->first;
	l->first = w;
	l->n++;
	return 0;
}

/* The lock is held, and released while waiting. */
static void wait_for_one(struct ofs_loop *l)
{
	struct worker *w = l->left;

	if (w == NULL) {
		pthread_cond_wait(&l->changed, &l->lock);
		return;
	}
	l->left = w->next;
	pthread_mutex_unlock(&l->lock);
	pthread_join(w->thread, NULL);
	free(w);
	pthread_mutex_lock(&l->lock);
}

int ofs_loop_run(struct ofs_loop *l, struct optimfs_error *err)
{
	int code = 0;

	pthread_mutex_lock(&l->lock);
	while (l->n < l->config.threads && code == 0)
		code = start(l);
	if (l->n == 0) {
		pthread_mutex_unlock(&l->lock);
		return optimfs_fail(err, code, "cannot start a thread");
	}
	while (l->n > 0 || l->left != NULL)
		wait_for_one(l);
	code = l->failed.code;
	if (code != 0 && err != NULL)
		*err = l->failed;
	pthread_mutex_unlock(&l->lock);
	return code == 0 ? 0 : -1;
}

void ofs_loop_stuck(struct ofs_loop *l, unsigned n)
{
	pthread_mutex_lock(&l->lock);
	/* twice as many: if all others block too, few rounds give many
	 * threads */
	l->wanted = l->config.threads + 2 * n;
	if (l->wanted > l->config.max)
		l->wanted = l->config.max;
	while (!fuse_session_exited(l->se) && l->n > 0 && l->n < l->wanted)
		if (start(l) != 0)
			break;
	pthread_mutex_unlock(&l->lock);
}

void ofs_loop_stop(struct ofs_loop *l)
{
	pthread_mutex_lock(&l->lock);
	stop_all(l);
	pthread_mutex_unlock(&l->lock);
}
