/* fds.c - the cache of open file descriptors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tap.h"

#define FILES   64
#define LIMIT   8
#define THREADS 4

/* Opens files for the cache, and fails on request. */
struct world {
	_Atomic int opened;
	int fail; /* if not 0, opening fails with this errno value */
	int full; /* how often opening still fails with EMFILE */
};

static int open_one(void *ctx, uint32_t file, struct optimfs_error *err)
{
	struct world *w = ctx;

	(void)file;
	if (w->fail != 0)
		return optimfs_fail(err, w->fail, "no");
	if (w->full > 0) {
		w->full--;
		return optimfs_fail(err, EMFILE, "full");
	}
	atomic_fetch_add(&w->opened, 1);
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) != -1;
}

static void one_thread(void)
{
	struct world w = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_fds *fds = ofs_fds_new(FILES, 2, open_one, &w, &err);
	int a, b, c;

	a = ofs_fds_get(fds, 0, &err);
	ok(is_open(a), "getting a file opens it");
	ok(ofs_fds_get(fds, 0, &err) == a && w.opened == 1,
	    "getting a file again gives the same descriptor");
	ofs_fds_put(fds, 0);
	ofs_fds_put(fds, 0);
	b = ofs_fds_get(fds, 1, &err);
	ofs_fds_put(fds, 1);
	ok(is_open(a) && is_open(b),
	    "two unpinned descriptors stay open under a limit of two");
	ok(ofs_fds_get(fds, 0, &err) == a && w.opened == 2,
	    "getting a kept file does not open it again");
	c = ofs_fds_get(fds, 2, &err);
	ok(c != a && is_open(a) && w.opened == 3,
	    "a third file replaces the one that is not pinned");
	ofs_fds_put(fds, 2);
	ofs_fds_put(fds, 0);
	w.fail = EIO;
	ok(ofs_fds_get(fds, 3, &err) == -1 && err.code == EIO,
	    "a failure to open is returned");
	w.fail = 0;
	ok(ofs_fds_get(fds, 3, NULL) != -1,
	    "a file that failed once can be opened later");
	ofs_fds_put(fds, 3);
	w.full = 1;
	ok(ofs_fds_get(fds, 4, &err) != -1,
	    "EMFILE closes an unused descriptor and tries again");
	w.full = 4;
	ok(ofs_fds_get(fds, 5, &err) != -1 && w.full == 0,
	    "EMFILE is tried again when no unused descriptor is left");
	ofs_fds_put(fds, 5);
	ofs_fds_put(fds, 4);
	ofs_fds_free(fds);
}

struct worker {
	pthread_t thread;
	struct ofs_fds *fds;
	unsigned seed;
	bool good;
};

/* A pinned descriptor must stay valid while other threads use the cache. */
static void *work(void *arg)
{
	struct worker *w = arg;

	w->good = true;
	for (int i = 0; i < 20000; i++) {
		uint32_t file =
		    (w->seed = w->seed * 1103515245 + 12345) >> 16 & 63;
		int fd = ofs_fds_get(w->fds, file, NULL);

		w->good = w->good && fd != -1 && write(fd, "x", 1) == 1;
		ofs_fds_put(w->fds, file);
	}
	return NULL;
}

static void threads(size_t limit)
{
	struct world w = { 0 };
	struct ofs_fds *fds = ofs_fds_new(FILES, limit, open_one, &w, NULL);
	struct worker worker[THREADS];
	bool good = true;

	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){ .fds = fds, .seed = i };
		pthread_create(&worker[i].thread, NULL, work, &worker[i]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(worker[i].thread, NULL);
		good = good && worker[i].good;
	}
	ok(good, "%d threads share %zu descriptors without losing a pinned one",
	    THREADS, limit);
	ofs_fds_free(fds);
}

static void limits(void)
{
	struct rlimit r = { 300, 300 };
	size_t n;

	setrlimit(RLIMIT_NOFILE, &r);
	n = ofs_fds_limit();
	ok(n > 100 && n < 300,
	    "a limit of 300 open files leaves %zu for the cache", n);
	r = (struct rlimit){ 20, 20 };
	setrlimit(RLIMIT_NOFILE, &r);
	n = ofs_fds_limit();
	ok(n > 1 && n < 20, "a limit of 20 open files leaves %zu for the cache",
	    n);
}

int main(void)
{
	one_thread();
	threads(LIMIT);
	threads(1);
	limits();
	return done_testing();
}
