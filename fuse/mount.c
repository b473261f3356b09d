/* mount.c - check a mount and start its daemon */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/tools.h"
#include "fuse/log.h"
#include "fuse/mountinfo.h"
#include "fuse/serve.h"
#include "fuse/unmount.h"

/* Removes the mount of a dead daemon, which answers ENOTCONN to everything that
 * the kernel has not cached, as stat(2) may be. */
static int clear_dead(const char *point, struct optimfs_error *err)
{
	struct statfs st;

	if (statfs(point, &st) == 0 ||
	    (errno != ENOTCONN && errno != ECONNABORTED))
		return 0;
	if (ofs_unmount(point, true, err) == -1)
		return optimfs_fail_in(err, "a dead mount is there");
	ofs_log("%s: detached a dead mount, whose daemon was gone", point);
	return 0;
}

static bool is_empty(const char *point)
{
	DIR *d = opendir(point);
	struct dirent *e;
	int n = 0;

	if (d == NULL)
		return true; /* cannot be checked */
	while ((e = readdir(d)) != NULL)
		n +=
		    strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n == 0;
}

static int check_point(const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err)
{
	struct ofs_mountinfo m;
	struct stat st;
	bool ours;

	if (stat(point, &st) == -1)
		return optimfs_fail(err, errno == ENOENT ? ENOENT : EINVAL,
		    "OFS758 mount point %s: %m", point);
	if (!S_ISDIR(st.st_mode))
		return optimfs_fail(err, EINVAL,
		    "OFS758 mount point %s: not a directory: give an empty one",
		    point);
	ours = ofs_mountinfo_find(point, &m) &&
	    strcmp(m.type, "fuse.optimfs") == 0;
	ofs_mountinfo_fini(&m);
	if (ours)
		return optimfs_fail(err, EBUSY,
		    "OFS758 mount point %s: a checkpoint is mounted there; "
		    "optimfs umount it first",
		    point);
	if (!options->nonempty && !is_empty(point))
		return optimfs_fail(err, EINVAL,
		    "OFS758 mount point %s: not empty; the mount point comes "
		    "after the checkpoint (-o nonempty hides what is there)",
		    point);
	if (geteuid() != 0 && access(point, W_OK) == -1)
		return optimfs_fail(err, errno,
		    "OFS758 mount point %s: %m: without root, it must be "
		    "writable",
		    point);
	return 0;
}

/* Refuses a source inside the mount point: the daemon would wait for itself. */
static int check_source(const char *source, const char *point,
    struct optimfs_error *err)
{
	char *real = realpath(source, NULL);
	size_t n = strlen(point);
	bool inside = real != NULL && strncmp(real, point, n) == 0 &&
	    (real[n] == '/' || real[n] == '\0' || strcmp(point, "/") == 0);

	free(real);
	if (inside)
		return optimfs_fail(err, ELOOP,
		    "OFS757 checkpoint %s lies inside the mount point %s",
		    source, point);
	return 0;
}

static int check_device(struct optimfs_error *err)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd == -1)
		return optimfs_fail(err, EIO, "OFS761 /dev/fuse: %m");
	close(fd);
	return 0;
}

static bool on_descriptor(const char *point)
{
	return strncmp(point, "/dev/fd/", 8) == 0;
}

/* The path to mount on, malloc'ed; NULL: err. */
static char *prepare(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err)
{
	char *real;

	if (on_descriptor(point)) {
		real = strdup(point);
		if (real == NULL)
			ofs_no_memory(err);
		return real;
	}
	real = ofs_mount_point_path(point, err);
	if (real == NULL) {
		optimfs_fail(err, err->code == ENOENT ? ENOENT : EINVAL,
		    "OFS758 mount point %s: %s%s", point, strerror(err->code),
		    err->code == ENOENT ? ": make it first (mkdir -p)" : "");
		return NULL;
	}
	if (clear_dead(real, err) == 0 &&
	    check_point(real, options, err) == 0 &&
	    check_source(source, real, err) == 0 && check_device(err) == 0)
		return real;
	free(real);
	return NULL;
}

int ofs_mount_check(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err)
{
	char *real = prepare(source, point, options, err);

	if (real == NULL)
		return -1;
	free(real);
	return 0;
}

/* The mount answers: releases the parent and everything inherited from it. A
 * parent that has ended has not said that it is mounted: then it ends, too. */
static void detach(void *ctx)
{
	int *to_parent = ctx;
	struct optimfs_error none = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char answer;

	ofs_log_begin();
	(void)setsid();
	(void)chdir("/");
	if (null != -1) {
		for (int fd = 0; fd <= STDERR_FILENO; fd++)
			dup2(null, fd);
		close(null);
	}
	if (write(*to_parent, &none, sizeof(none)) == -1 ||
	    read(*to_parent, &answer, 1) != 1)
		kill(getpid(), SIGTERM);
	close(*to_parent);
	*to_parent = -1;
}

static _Noreturn void daemon_main(struct ofs_serve *v, int to_parent)
{
	struct optimfs_error err = { 0 };
	int ret;

	v->ready = detach;
	v->ctx = &to_parent;
	ret = ofs_serve(v, &err);
	/* tell the parent while it waits; afterwards the descriptor is
	 * reused */
	if (ret == -1 &&
	    (to_parent == -1 || write(to_parent, &err, sizeof(err)) == -1))
		ofs_log("%s", err.text);
	ofs_log_close();
	exit(ret == 0 ? 0 : 3);
}

/* Reads the child's first message; silence is an error too. */
static int hear(int from_child, pid_t child, struct optimfs_error *err)
{
	struct optimfs_error said;
	ssize_t n;
	int status;

	do
		n = read(from_child, &said, sizeof(said));
	while (n == -1 && errno == EINTR);
	if (n == (ssize_t)sizeof(said)) {
		if (said.code == 0)
			return 0;
		waitpid(child, NULL, 0);
		if (err != NULL)
			*err = said;
		return -1;
	}
	if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
		return optimfs_fail(err, EIO,
		    "the daemon was killed by signal %d", WTERMSIG(status));
	return optimfs_fail(err, EIO, "the daemon ended early");
}

/* Lets the daemon go on, unless a signal has come. */
static int answer(int to_child, pid_t child, struct optimfs_error *err)
{
	/* one that comes later finds a mount */
	ofs_interrupt_catch();
	if (!ofs_interrupted(NULL)) {
		(void)send(to_child, "", 1, MSG_NOSIGNAL);
		close(to_child);
		return 0;
	}
	close(to_child);
	waitpid(child, NULL, 0);
	return optimfs_fail(err, ECANCELED, "interrupted");
}

static const char not_mounted[] = "nothing was mounted";

static int in_background(struct ofs_serve *v, struct optimfs_error *err)
{
	int fd[2], ret;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) == -1)
		return optimfs_fail(err, errno, "socketpair: %m");
	fflush(NULL);
	/* The child gets the signal, too; a writer has to remove its stage. */
	if (v->options->open.rw)
		ofs_interrupt_catch();
	child = fork();
	if (child == -1) {
		optimfs_fail(err, errno, "fork: %m");
		close(fd[0]);
		close(fd[1]);
		return -1;
	}
	if (child == 0) {
		close(fd[0]);
		daemon_main(v, fd[1]);
	}
	close(fd[1]);
	if (!v->options->open.rw)
		ofs_interrupt_end(not_mounted);
	ret = hear(fd[0], child, err);
	if (ret == 0)
		return answer(fd[0], child, err);
	close(fd[0]);
	return ret;
}

int ofs_mount(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err)
{
	struct ofs_serve v = { .source = source, .options = options };
	const char *log = options->log;
	char *real;
	int ret;

	real = prepare(source, point, options, err);
	if (real == NULL)
		return -1;
	ofs_tool_await(source); /* before the sandbox, which hides it */
	v.point = real;
	if (log == NULL)
		log = options->foreground ? "stderr" : "syslog";
	ret = ofs_log_open(log, err);
	if (ret == 0 && options->foreground) {
		ofs_log_begin();
		if (options->open.rw)
			ofs_interrupt_catch();
		else if (options->open.group == NULL)
			ofs_interrupt_end(not_mounted);
		ret = ofs_serve(&v, err);
	} else if (ret == 0) {
		ret = in_background(&v, err);
	}
	if (ret == -1 && err->code == ECANCELED)
		optimfs_fail(err, ECANCELED, "interrupted: %s", not_mounted);
	ofs_log_close();
	free(real);
	return ret;
}
