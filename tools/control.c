/* control.c - what a mounted checkpoint says of its changes, and is told */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/control.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"

#define CONTROL "/.optimfs/control"

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
		return optimfs_fail(err, ENOENT, "%s: nothing is mounted there",
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
		optimfs_fail(err, EROFS, "%s: mounted read-only", point);
	else if (fd == -1)
		optimfs_fail(err, errno, "%s: %m", path);
	free(path);
	return fd;
}

static void parse_line(struct ofs_control *c, const char *line)
{
	if (c->state[0] == '\0')
		snprintf(c->state, sizeof(c->state), "%s", line);
	c->dirty |= strncmp(line, "dirty ", 6) == 0;
	c->committing |= strncmp(line, "committing ", 11) == 0;
	c->explicit_commit |= strcmp(line, "explicit") == 0;
	c->scratch |= strcmp(line, "scratch") == 0;
	if (strncmp(line, "unsynced ", 9) == 0) {
		c->unsynced = true;
		line += 2; /* the words are as far on as behind "failed " */
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

/* The errno is the daemon's; it has more words for it. */
static int explain(const char *point, int code, struct optimfs_error *err)
{
	struct ofs_control c;
	struct optimfs_error none;

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

/* Behind a commit that takes long, on a terminal. */
struct follow {
	const char *point;
	atomic_bool over;
	bool said;
};

static void say_state(struct follow *f)
{
	struct ofs_control c;
	struct optimfs_error none;

	if (ofs_control_read(f->point, &c, &none) == -1 || !c.committing)
		return;
	fprintf(stderr, "\r%s  ", c.state);
	f->said = true;
}

static void *follow(void *arg)
{
	const struct timespec tick = { .tv_nsec = 100 * 1000 * 1000 };
	struct follow *f = arg;

	for (unsigned i = 1; !atomic_load(&f->over); i++) {
		nanosleep(&tick, NULL);
		if (i > 20 && i % 5 == 0)
			say_state(f);
	}
	if (f->said)
		fputc('\n', stderr);
	return NULL;
}

/* Only to end the wait: it is the kernel that tells the daemon. */
static void on_interrupt(int sig)
{
	(void)sig;
}

int ofs_control_commit(const char *point, struct optimfs_error *err)
{
	struct sigaction catch = { .sa_handler = on_interrupt }, old;
	struct follow f = { .point = point };
	sigset_t interrupt, before;
	pthread_t thread;
	bool following;
	int ret;

	sigemptyset(&catch.sa_mask);
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	sigaction(SIGINT, &catch, &old);
	pthread_sigmask(SIG_BLOCK, &interrupt, &before);
	following = isatty(STDERR_FILENO) == 1 &&
	    pthread_create(&thread, NULL, follow, &f) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ret = ofs_control_write(point, "commit", err);
	atomic_store(&f.over, true);
	if (following)
		pthread_join(thread, NULL);
	sigaction(SIGINT, &old, NULL);
	return ret;
}
