/* faultrun.c - victims run with faults, and the list of possible faults */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "faultrun.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

static char self[4096], lib[4200];

void faultrun_find(void)
{
	const char *dir = getenv("TOP_BUILDDIR");
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		skip_all("no /proc");
	self[n] = '\0';
	snprintf(lib, sizeof(lib), "%s/.libs/faultlib.so",
	    dir == NULL ? "." : dir);
	if (access(lib, R_OK) == -1)
		skip_all("%s: %s", lib, strerror(errno));
	/* The preloaded library comes before those of the sanitizers. */
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
}

void faultrun_init(struct faultrun *r, const char *scratch, const char *ck,
    const char *to)
{
	*r = (struct faultrun){ .scratch = scratch, .ck = ck, .to = to };
	snprintf(r->trace, sizeof(r->trace), "%s/trace", scratch);
}

static int open_new(const struct faultrun *r, const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", r->scratch, name);
	return open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

static void say_env(const char *name, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	setenv(name, text, 1);
}

static void become_victim(const struct faultrun *r, const char *verb,
    const struct fault_point *p, bool trace)
{
	int marks = open_new(r, "marks"), said = open_new(r, "said");

	if (marks == -1 || said == -1 || dup2(marks, FAULT_MARK_FD) == -1 ||
	    dup2(said, STDERR_FILENO) == -1)
		_exit(99);
	close(marks);
	close(said);
	if (trace)
		setenv("FAULT_TRACE", r->trace, 1);
	say_env("FAULT_AT", p->at);
	say_env("FAULT_HOW", p->how);
	say_env("FAULT_CODE", p->code);
	setenv("LD_PRELOAD", lib, 1);
	execl(self, self, verb, r->ck, r->to, (char *)NULL);
	_exit(99);
}

static pid_t start(const struct faultrun *r, const char *verb,
    const struct fault_point *p, bool trace)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become_victim(r, verb, p, trace);
	if (pid == -1)
		bail_out("fork: %s", strerror(errno));
	return pid;
}

static void read_all(const struct faultrun *r, const char *name, char *out,
    size_t size)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", r->scratch, name);
	f = fopen(path, "r");
	if (f == NULL)
		bail_out("%s: %s", path, strerror(errno));
	out[fread(out, 1, size - 1, f)] = '\0';
	fclose(f);
}

static struct outcome ended(const struct faultrun *r, int status)
{
	char marks[200], said[4096];
	struct outcome o = { .status = -1 };

	if (WIFEXITED(status))
		o.status = WEXITSTATUS(status);
	else if (WTERMSIG(status) != SIGKILL)
		o.status = 128 + WTERMSIG(status);
	read_all(r, "marks", marks, sizeof(marks));
	read_all(r, "said", said, sizeof(said));
	o.staged = strstr(marks, "staged") != NULL;
	o.done = strstr(marks, FAULT_DONE) != NULL;
	o.said_unsynced = strstr(said, "OFS803") != NULL;
	return o;
}

static struct outcome go(struct faultrun *r, const char *verb,
    const struct fault_point *p, bool trace)
{
	pid_t pid = start(r, verb, p, trace);
	int status;

	if (waitpid(pid, &status, 0) != pid)
		bail_out("victim: %s", strerror(errno));
	return ended(r, status);
}

struct outcome faultrun_go(struct faultrun *r, const char *verb,
    struct fault_point p)
{
	return go(r, verb, &p, false);
}

struct outcome faultrun_trace(struct faultrun *r, const char *verb)
{
	unlink(r->trace);
	return go(r, verb, &(struct fault_point){ 0 }, true);
}

struct outcome faultrun_still(struct faultrun *r, const char *verb,
    void (*look)(void *ctx), void *ctx)
{
	const struct fault_point p = { .at = 1, .how = FAULT_STOP };
	pid_t pid = start(r, verb, &p, false);
	int status;

	for (;;) {
		if (waitpid(pid, &status, WUNTRACED) != pid)
			bail_out("victim: %s", strerror(errno));
		if (!WIFSTOPPED(status))
			return ended(r, status);
		look(ctx);
		kill(pid, SIGCONT);
	}
}

static const char *describe(const struct fault_point *p)
{
	switch (p->how) {
	case FAULT_KILL:
		return "killed";
	case FAULT_TORN:
		return "killed in the middle";
	case FAULT_SHORT:
		return "half written";
	default:
		return p->code == 0 ? "no fault" : strerror(p->code);
	}
}

void faultrun_tell(const struct faultrun *r, const char *scene,
    const struct fault_point *p, const struct outcome *o)
{
	char said[4096];

	diag("%s: call %ld, %s %s: %s%s: exit status %d", scene, p->at,
	    p->call == NULL ? "-" : p->call->name,
	    p->call == NULL ? "-" : p->call->object, describe(p),
	    p->how == FAULT_FROM ? " from now on" : "", o->status);
	read_all(r, "said", said, sizeof(said));
	if (said[0] != '\0')
		diag("its output: %s", said);
}

/* The errors that each call can return. */
static const struct {
	const char *call;
	int code[6];
} errors[] = {
	{ "open", { EMFILE, EIO } },
	{ "create", { ENOSPC, EDQUOT, EMFILE, EIO } },
	{ "write", { ENOSPC, EIO, EDQUOT, EINTR } },
	{ "pwrite", { ENOSPC, EIO, EDQUOT, EINTR } },
	{ "pread", { EIO, EINTR } },
	{ "ftruncate", { EIO, ENOSPC, EINTR } },
	{ "copy_file_range", { ENOSPC, EIO, EDQUOT, EINTR, EXDEV } },
	{ "ficlone", { EIO, EOPNOTSUPP } },
	{ "fallocate", { ENOSPC, EOPNOTSUPP } },
	{ "fsync", { EIO, ENOSPC, EDQUOT } },
	{ "rename", { EIO, ENOSPC, EACCES } },
	{ "unlink", { EIO, EACCES } },
	{ "mkdir", { ENOSPC, EROFS, EDQUOT } },
	{ "link", { EIO, ENOSPC, EPERM } },
	{ "symlink", { EIO, ENOSPC } },
	{ "fchmod", { EIO } },
	{ "fchown", { EIO } },
	{ "fsetxattr", { ENOSPC, EOPNOTSUPP } },
	{ "futimens", { EIO } },
};

static void add_point(struct fault_points *p, const struct fault_call *call,
    enum fault how, int code)
{
	if (p->n == p->cap) {
		p->cap = p->cap == 0 ? 4096 : p->cap * 2;
		p->v = reallocarray(p->v, p->cap, sizeof(*p->v));
		if (p->v == NULL)
			bail_out("memory");
	}
	p->v[p->n++] = (struct fault_point){ call->at, how, code, call };
}

static bool writes(const char *call)
{
	return strstr(call, "write") != NULL ||
	    strcmp(call, "copy_file_range") == 0;
}

/* A kill at a call that changes nothing leaves the same state as a kill at the
 * call before. */
static void add_points(struct fault_points *p, const struct fault_call *c)
{
	if (c->class != 'l')
		add_point(p, c, FAULT_KILL, 0);
	if (writes(c->name)) {
		add_point(p, c, FAULT_TORN, 0);
		add_point(p, c, FAULT_SHORT, 0);
	}
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		for (size_t k = 0; k < 6; k++)
			if (strcmp(errors[i].call, c->name) == 0 &&
			    errors[i].code[k] != 0)
				add_point(p, c, FAULT_ERROR, errors[i].code[k]);
	if (c->class == 'w')
		add_point(p, c, FAULT_FROM, ENOSPC);
	if (c->class == 'w' || c->class == 'c')
		add_point(p, c, FAULT_FROM, EROFS);
	if (c->class != 'l')
		add_point(p, c, FAULT_FROM, EIO);
}

/* Points of one kind have similar results. */
static bool alike(const struct fault_point *a, const struct fault_point *b)
{
	return (a->how == FAULT_KILL) == (b->how == FAULT_KILL) &&
	    strcmp(a->call->name, b->call->name) == 0 &&
	    strcmp(a->call->object, b->call->object) == 0;
}

/* Chooses one point of each kind, in the order of the first of each: the last
 * kill, which is nearest to the rename, and another error for each kind. */
static size_t one_of_each(const struct fault_points *p,
    struct fault_point *chosen)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		size_t like = 0, want;

		for (size_t k = 0; k < i && like == 0; k++)
			like = alike(&p->v[k], &p->v[i]);
		if (like != 0)
			continue;
		for (size_t k = i; k < p->n; k++)
			like += alike(&p->v[k], &p->v[i]);
		want = p->v[i].how == FAULT_KILL ? like : n * 7 % like + 1;
		for (size_t k = i; want > 0; k++)
			if (alike(&p->v[k], &p->v[i]) && --want == 0)
				chosen[n] = p->v[k];
		n++;
	}
	return n;
}

static void choose(struct fault_points *p, size_t most)
{
	struct fault_point *chosen = calloc(p->n, sizeof(*chosen));
	size_t n;

	if (chosen == NULL)
		bail_out("memory");
	n = one_of_each(p, chosen);
	most = n < most ? n : most;
	for (size_t i = 0; i < most; i++)
		p->v[i] = chosen[i * n / most];
	p->n = most;
	free(chosen);
}

void faultrun_points(const struct fault_calls *calls, size_t most,
    struct fault_points *p)
{
	*p = (struct fault_points){ 0 };
	for (size_t i = 0; i < calls->n; i++)
		add_points(p, &calls->v[i]);
	if (p->n <= most)
		return;
	choose(p, most);
	for (size_t i = calls->n, syncs = 0; i-- > 0 && syncs < 8;) {
		/* one that publishes; others stay in the stage */
		if (strcmp(calls->v[i].name, "rename") == 0 &&
		    strstr(calls->v[i].object, ".optimfs/") == NULL)
			return;
		if (strcmp(calls->v[i].name, "fsync") == 0 && ++syncs != 0)
			add_point(p, &calls->v[i], FAULT_ERROR, EIO);
	}
}
