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
#include <time.h>
#include <unistd.h>

#include "fuse/child.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"

/* The kernel needs time to end a process with many threads. */
enum { TRIES = 200 };
static const struct timespec pause_between = { .tv_nsec = 50 * 1000 * 1000 };

static bool is_ours(const char *point)
{
	struct ofs_mountinfo m;
	bool ours;

	if (!ofs_mountinfo_find(point, &m))
		return false;
	ours = strcmp(m.type, "fuse.optimfs") == 0;
	ofs_mountinfo_fini(&m);
	return ours;
}

static void detach(const char *point)
{
	struct statfs st;

	for (int i = 0; i < TRIES && is_ours(point); i++) {
		/* a mount that answers is alive, and so not ours */
		if (statfs(point, &st) == -1 &&
		    (errno == ENOTCONN || errno == ECONNABORTED) &&
		    ofs_unmount(point, true, NULL) == 0)
			return;
		nanosleep(&pause_between, NULL);
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
