/* fds.c - a cache of open descriptors, limited by what the process may have */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

/* Descriptors that are reserved for the rest of the process. */
#define RESERVED 128

/* The interval and number of waits for other processes to close descriptors,
 * when this one has none left to close. */
#define NOFILE_WAIT_NS  (10 * 1000 * 1000)
#define NOFILE_WAIT_MAX 3000

struct kept {
	TAILQ_ENTRY(kept) lru; /* linked while open with refs 0 */
	enum { CLOSED, OPENING, OPEN } state;
	uint32_t refs;
	int fd;
};

struct ofs_fds {
	ofs_fds_open_fn *open;
	void *ctx;
	pthread_mutex_t lock;      /* guards all below */
	pthread_cond_t changed;    /* when a descriptor is linked or opened */
	TAILQ_HEAD(, kept) unused; /* oldest first */
	size_t nopen, limit;
	struct kept file[];
};

size_t ofs_fds_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == -1)
		return RESERVED;
	if (r.rlim_cur < r.rlim_max) {
		struct rlimit more = { r.rlim_max, r.rlim_max };

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			r = more;
	}
	if (r.rlim_cur > INT_MAX)
		r.rlim_cur = INT_MAX;
	if (r.rlim_cur >= 2 * RESERVED)
		return (size_t)r.rlim_cur - RESERVED;
	return r.rlim_cur < 4 ? 1 : (size_t)r.rlim_cur / 2;
}

struct ofs_fds *ofs_fds_new(uint32_t n, size_t limit, ofs_fds_open_fn *open,
    void *ctx, struct optimfs_error *err)
{
	struct ofs_fds *fds =
	    ofs_alloc(1, sizeof(*fds) + n * sizeof(fds->file[0]), err);

	if (fds == NULL)
		return NULL;
	fds->open = open;
	fds->ctx = ctx;
	fds->limit = limit == 0 ? 1 : limit;
	TAILQ_INIT(&fds->unused);
	pthread_mutex_init(&fds->lock, NULL);
	pthread_cond_init(&fds->changed, NULL);
	return fds;
}

/* Close the least recently used descriptor; false when all are in use. The lock
 * is held. */
static bool close_unused(struct ofs_fds *fds)
{
	struct kept *k = TAILQ_FIRST(&fds->unused);

	if (k == NULL)
		return false;
	TAILQ_REMOVE(&fds->unused, k, lru);
	close(k->fd);
	k->state = CLOSED;
	fds->nopen--;
	return true;
}

void ofs_fds_free(struct ofs_fds *fds)
{
	if (fds == NULL)
		return;
	while (close_unused(fds))
		;
	pthread_cond_destroy(&fds->changed);
	pthread_mutex_destroy(&fds->lock);
	free(fds);
}

static bool none_left(int code)
{
	return code == EMFILE || code == ENFILE;
}

/* Wait for a descriptor of the process or the machine to be closed. The lock is
 * held. */
static void wait_a_little(struct ofs_fds *fds)
{
	ofs_clock_wait(&fds->changed, &fds->lock, NOFILE_WAIT_NS);
}

/* Open file; when descriptors run out, close others. Called with the lock,
 * which is released during the system call. */
static int open_waiting(struct ofs_fds *fds, uint32_t file,
    struct optimfs_error *err)
{
	int waited = 0, fd;

	for (;;) {
		pthread_mutex_unlock(&fds->lock);
		fd = fds->open(fds->ctx, file, err);
		pthread_mutex_lock(&fds->lock);
		if (fd != -1 || !none_left(err->code))
			return fd;
		if (close_unused(fds))
			continue;
		if (waited++ == NOFILE_WAIT_MAX)
			return -1;
		wait_a_little(fds);
	}
}

/* The lock is held. */
static int get(struct ofs_fds *fds, uint32_t file, struct optimfs_error *err)
{
	struct kept *k = &fds->file[file];

	while (k->state == OPENING ||
	    (k->state == CLOSED && fds->nopen == fds->limit &&
		!close_unused(fds)))
		pthread_cond_wait(&fds->changed, &fds->lock);
	if (k->state == OPEN) {
		if (k->refs++ == 0)
			TAILQ_REMOVE(&fds->unused, k, lru);
		return k->fd;
	}
	k->state = OPENING;
	fds->nopen++;
	k->fd = open_waiting(fds, file, err);
	k->state = k->fd == -1 ? CLOSED : OPEN;
	if (k->fd == -1)
		fds->nopen--;
	else
		k->refs = 1;
	pthread_cond_broadcast(&fds->changed);
	return k->fd;
}

int ofs_fds_get(struct ofs_fds *fds, uint32_t file, struct optimfs_error *err)
{
	struct optimfs_error own;
	int fd;

	pthread_mutex_lock(&fds->lock);
	fd = get(fds, file, err == NULL ? &own : err);
	pthread_mutex_unlock(&fds->lock);
	return fd;
}

void ofs_fds_put(struct ofs_fds *fds, uint32_t file)
{
	struct kept *k = &fds->file[file];

	pthread_mutex_lock(&fds->lock);
	if (--k->refs == 0) {
		TAILQ_INSERT_TAIL(&fds->unused, k, lru);
		pthread_cond_broadcast(&fds->changed);
	}
	pthread_mutex_unlock(&fds->lock);
}

int ofs_fds_openat(int dir, const char *path, int flags, mode_t mode)
{
	static const struct timespec pause = { .tv_nsec = NOFILE_WAIT_NS };
	int fd;

	for (int waited = 0;; waited++) {
		fd = openat(dir, path, flags, mode);
		if (fd != -1 || !none_left(errno) || waited == NOFILE_WAIT_MAX)
			return fd;
		nanosleep(&pause, NULL);
	}
}
