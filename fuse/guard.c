/* guard.c - a process that unmounts when the daemon dies */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "fuse/child.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"

/* The kernel needs time to end a process with many threads. */
enum { TRIES_BEFORE_WORD = 200 };
static const struct timespec pause_between = { .tv_nsec = 50 * 1000 * 1000 };
static const struct timespec long_pause = { .tv_sec = 5 };

/* Finds the file system that is mounted at point; false: none of ours. */
static bool find_ours(const char *point, unsigned *minor)
{
	struct ofs_mountinfo m;
	bool ours;

	if (!ofs_mountinfo_find(point, &m))
		return false;
	ours = strcmp(m.type, "fuse.optimfs") == 0;
	*minor = m.minor;
	ofs_mountinfo_fini(&m);
	return ours;
}

/* A mount that answers is alive: not ours, or not dead yet. */
static bool try_to_detach(const char *point, struct optimfs_error *err)
{
	struct statfs st;

	if (statfs(point, &st) == 0)
		return optimfs_fail(err, EBUSY, "it still answers") == 0;
	if (errno != ENOTCONN && errno != ECONNABORTED)
		return optimfs_fail(err, errno, "%m") == 0;
	return ofs_unmount(point, true, err) == 0;
}

/* Standard error may belong to nobody any more. */
static void tell(const char *point, const struct optimfs_error *err)
{
	openlog("optimfs", LOG_PID, LOG_DAEMON);
	syslog(LOG_WARNING,
	    "%s: the daemon of the mount has died, and it cannot be detached: "
	    "%s; trying on (optimfs umount --force %s)",
	    point, err->text, point);
	closelog();
}

/* Until the mount is gone, or another is in its place. */
static void detach(const char *point)
{
	struct optimfs_error err = { 0 };
	unsigned dead, now;

	if (!find_ours(point, &dead))
		return;
	for (unsigned i = 0; find_ours(point, &now) && now == dead; i++) {
		if (try_to_detach(point, &err))
			return;
		if (i == TRIES_BEFORE_WORD)
			tell(point, &err);
		nanosleep(i < TRIES_BEFORE_WORD ? &pause_between : &long_pause,
		    NULL);
	}
}

/* Closes everything else: the launcher waits for open descriptors of the
 * job. */
static void let_go(int keep)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	long max = sysconf(_SC_OPEN_MAX);

	(void)setsid();
	(void)chdir("/");
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	for (int fd = 0; fd <= STDERR_FILENO && null != -1; fd++)
		dup2(null, fd);
	for (int fd = STDERR_FILENO + 1; fd < max && fd < 1024; fd++)
		if (fd != keep)
			close(fd);
}

static _Noreturn void guard(int fd)
{
	char point[PATH_MAX];
	size_t n = 0;
	ssize_t got;

	let_go(fd);
	while (n < sizeof(point) - 1) {
		got = read(fd, point + n, sizeof(point) - 1 - n);
		if (got == -1 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	point[n] = '\0';
	if (n > 0)
		detach(point);
	_exit(0);
}

int ofs_guard_start(struct ofs_guard *g, struct optimfs_error *err)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == -1)
		return optimfs_fail(err, errno, "socketpair: %m");
	fflush(NULL);
	g->pid = fork();
	if (g->pid == 0) {
		close(fd[1]);
		guard(fd[0]);
	}
	close(fd[0]);
	if (g->pid == -1) {
		close(fd[1]);
		return optimfs_fail(err, errno, "fork: %m");
	}
	g->fd = fd[1];
	return 0;
}

void ofs_guard_watch(struct ofs_guard *g, const char *point)
{
	(void)send(g->fd, point, strlen(point), MSG_NOSIGNAL);
}

void ofs_guard_end(struct ofs_guard *g)
{
	close(g->fd);
	(void)ofs_child_wait(g->pid, "guard", NULL, NULL);
}
