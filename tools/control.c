/* control.c - the control file of a mounted checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

#define CONTROL "/.optimfs/control"
/* The interval of asking for the progress of a commit. */
#define TICK_NS 500000000

int ofs_control_find(const char *point, struct ofs_mountinfo *m,
    struct optimfs_error *err)
{
	char *real = ofs_mount_point_path(point, err);
	bool found;

	if (real == NULL)
		return -1;
	found = ofs_mountinfo_find(real, m);
	free(real);
	if (!found)
		return optimfs_fail(err, ENOENT,
		    "OFS758 %s: nothing is mounted there (findmnt -t "
		    "fuse.optimfs lists mounts)",
		    point);
	if (strcmp(m->type, "fuse.optimfs") == 0)
		return 0;
	optimfs_fail(err, EINVAL, "%s: %s, not a checkpoint", point, m->type);
	ofs_mountinfo_fini(m);
	return -1;
}

static int open_control(const char *point, int flags, struct optimfs_error *err)
{
	char *path;
	int fd;

	if (asprintf(&path, "%s" CONTROL, point) == -1)
		return ofs_no_memory(err);
	fd = open(path, flags | O_CLOEXEC);
	if (fd == -1 && errno == EROFS)
		optimfs_fail(err, EROFS,
		    "OFS819 %s: mounted read-only: there is nothing to commit or "
		    "to abort",
		    point);
	else if (fd == -1)
		optimfs_fail(err, errno, "%s: %m", path);
	free(path);
	return fd;
}

static void parse_line(struct ofs_control *c, const char *line)
{
	if (strncmp(line, "dirty ", 6) == 0)
		snprintf(c->dirty, sizeof(c->dirty), "%s", line + 6);
	if (sscanf(line, "committing %u%% %" SCNu64 " %" SCNu64 " %79[^\n]",
		&c->percent, &c->done, &c->total, c->doing) >= 1)
		c->committing = true;
	c->explicit_commit |= strcmp(line, "explicit") == 0;
	c->scratch |= strcmp(line, "scratch") == 0;
	if (strncmp(line, "unsynced ", 9) == 0) {
		c->unsynced = true;
		line +=
		    2; /* the message starts at the same offset as after "failed " */
	} else if (strncmp(line, "failed ", 7) != 0) {
		return;
	}
	snprintf(c->words, sizeof(c->words), "%s", line + 7);
}

int ofs_control_read(const char *point, struct ofs_control *c,
    struct optimfs_error *err)
{
	char text[1024], *rest = NULL;
	int fd = open_control(point, O_RDONLY, err);
	ssize_t n;

	if (fd == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	if (n == -1)
		optimfs_fail(err, errno, "%s" CONTROL ": %m", point);
	close(fd);
	if (n == -1)
		return -1;
	text[n] = '\0';
	*c = (struct ofs_control){ 0 };
	for (char *line = strtok_r(text, "\n", &rest); line != NULL;
	     line = strtok_r(NULL, "\n", &rest))
		parse_line(c, line);
	return 0;
}

/* Replaces the errno of the daemon by its message. */
static int explain(const char *point, int code, struct optimfs_error *err)
{
	struct ofs_control c;
	struct optimfs_error none;

	if (code == ENOTCONN || code == ECONNABORTED)
		return optimfs_fail(err, code,
		    "OFS845 %s: the daemon of the mount ended before it answered: the next "
		    "mount for writing finishes or undoes a commit",
		    point);
	if (ofs_control_read(point, &c, &none) == -1 || c.words[0] == '\0') {
		errno = code;
		return optimfs_fail(err, code, "%s: %m", point);
	}
	optimfs_fail_as(err, code, "%s", c.words);
	return c.unsynced ? 1 : -1;
}

int ofs_control_write(const char *point, const char *order,
    struct optimfs_error *err)
{
	int fd = open_control(point, O_WRONLY, err);
	int code = 0;

	if (fd == -1)
		return -1;
	if (write(fd, order, strlen(order)) == -1)
		code = errno;
	close(fd);
	return code == 0 ? 0 : explain(point, code, err);
}

/* A thread that follows a commit while the main thread waits in the kernel. */
struct follow {
	const char *point;
	struct ofs_progress *progress;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool over;
};

static void show(struct follow *f)
{
	struct ofs_control c;
	struct optimfs_error none;

	if (ofs_control_read(f->point, &c, &none) == 0 && c.committing &&
	    c.total > 0)
		ofs_progress_percent(f->progress, c.percent, c.done, c.total,
		    c.doing);
}

static void *follow(void *arg)
{
	struct follow *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->over) {
		pthread_mutex_unlock(&f->lock);
		show(f);
		pthread_mutex_lock(&f->lock);
		if (!f->over)
			ofs_clock_wait(&f->ended, &f->lock, TICK_NS);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static void end_follow(struct follow *f, pthread_t thread)
{
	pthread_mutex_lock(&f->lock);
	f->over = true;
	pthread_cond_signal(&f->ended);
	pthread_mutex_unlock(&f->lock);
	pthread_join(thread, NULL);
}

/* Only interrupts the wait: the kernel informs the daemon. */
static void on_interrupt(int sig)
{
	(void)sig;
}

int ofs_control_commit(const char *point, struct ofs_progress *progress,
    struct optimfs_error *err)
{
	struct sigaction catch = { .sa_handler = on_interrupt }, old;
	struct follow f = { .point = point,
		.progress = progress,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.ended = PTHREAD_COND_INITIALIZER };
	sigset_t interrupt, before;
	pthread_t thread;
	bool following;
	int ret;

	sigemptyset(&catch.sa_mask);
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigaction(SIGINT, &catch, &old);
	pthread_sigmask(SIG_BLOCK, &interrupt, &before);
	following = progress->out != NULL &&
	    pthread_create(&thread, NULL, follow, &f) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ret = ofs_control_write(point, "commit", err);
	if (following)
		end_follow(&f, thread);
	progress->done = progress->total;
	ofs_progress_end(progress, ret == 0);
	sigaction(SIGINT, &old, NULL);
	return ret;
}
