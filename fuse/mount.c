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
#include "fuse/child.h"
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

/* The path to mount on, malloc'ed; NULL: err. */
static char *prepare(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err)
{
	char *real;

	if (ofs_is_descriptor(point)) {
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

/* In the background, the daemon is a child process. A socket pair connects it
 * with its parent until the mount answers:
 *
 *     daemon to parent    a struct optimfs_error: why the mount failed, or
 *                         code 0 when it answers
 *     parent to daemon    then one byte, and the parent reports success
 *
 * Either may end at any time. A parent that reads the end of the socket reports
 * that the daemon has died. A daemon that reads it unmounts: its parent was
 * interrupted or killed, and has reported no mount. */

/* Called when the mount answers. ctx: the descriptor of the parent. */
static void become_daemon(void *ctx)
{
	int *parent = ctx;
	struct optimfs_error none = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char byte;

	ofs_log_begin();
	(void)setsid();
	(void)chdir("/");
	if (null != -1) {
		for (int fd = 0; fd <= STDERR_FILENO; fd++)
			dup2(null, fd);
		close(null);
	}
	if (send(*parent, &none, sizeof(none), MSG_NOSIGNAL) == -1 ||
	    read(*parent, &byte, 1) != 1)
		kill(getpid(), SIGTERM);
	close(*parent);
	*parent = -1;
}

static _Noreturn void daemon_main(struct ofs_serve *v, int parent)
{
	struct optimfs_error err = { 0 };
	int ret;

	v->ready = become_daemon;
	v->ctx = &parent;
	ret = ofs_serve(v, &err);
	if (ret == -1 &&
	    (parent == -1 ||
		send(parent, &err, sizeof(err), MSG_NOSIGNAL) == -1))
		ofs_log("%s", err.text);
	ofs_log_close();
	exit(ret == 0 ? 0 : 3);
}

/* Waits for the result of the daemon. */
static int read_result(int daemon, pid_t child, struct optimfs_error *err)
{
	struct optimfs_error result;
	ssize_t n;
	int status;

	do
		n = read(daemon, &result, sizeof(result));
	while (n == -1 && errno == EINTR);
	if (n == (ssize_t)sizeof(result)) {
		if (result.code == 0)
			return 0;
		(void)ofs_child_wait(child, "the daemon", NULL, NULL);
		if (err != NULL)
			*err = result;
		return -1;
	}
	if (ofs_child_wait(child, "the daemon", &status, err) == -1)
		return -1;
	if (WIFSIGNALED(status))
		return optimfs_fail(err, EIO,
		    "the daemon was killed by signal %d", WTERMSIG(status));
	return optimfs_fail(err, EIO, "the daemon ended early");
}

/* Lets the daemon continue, unless this process was interrupted. A signal after
 * that has no effect: the mount is there. Closes the descriptor. */
static int release_daemon(int daemon, pid_t child, struct optimfs_error *err)
{
	ofs_interrupt_catch();
	if (!ofs_interrupted(NULL)) {
		(void)send(daemon, "", 1, MSG_NOSIGNAL);
		close(daemon);
		return 0;
	}
	close(daemon);
	(void)ofs_child_wait(child, "the daemon", NULL, NULL);
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
	ret = read_result(fd[0], child, err);
	if (ret == 0)
		return release_daemon(fd[0], child, err);
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
	/* before the sandbox, which hides it */
	if (ofs_tool_await(source, err) == -1) {
		free(real);
		return -1;
	}
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
