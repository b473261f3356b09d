/* serve.c - serve a mounted checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/json_write.h"
#include "base/memory.h"
#include "base/replace.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/sandbox.h"
#include "cli/tools.h"
#include "fuse/log.h"
#include "fuse/loop.h"
#include "fuse/mountinfo.h"
#include "fuse/ops.h"
#include "fuse/quit.h"

/* The share of cache= for gathered files; the rest is for decoded data in the
 * library. */
#define ASSEMBLE_SHARE(cache) ((cache) / 4 * 3)
#define FUSE_SUPER_MAGIC      0x65735546UL

struct server {
	struct ofs_session session;
	const struct ofs_serve *v;
	struct fuse_session *se;
	struct ofs_loop *loop;
	struct ofs_quit *quit;
	struct ofs_sandbox *sandbox; /* NULL: none */
	bool confined;               /* it restricts files, too */
	unsigned threads;            /* that serve requests */
	pthread_t publisher;
	bool publishing;
	bool served;                     /* requests were answered */
	struct optimfs_error unanswered; /* error of the publisher */
	bool ready;                      /* the ready file is there */
	struct ofs_mountinfo mount;      /* if found */
	atomic_bool found;
	bool ended; /* by a signal or by force: nothing is committed */
	char *news; /* message about the mounted checkpoint, or NULL */
	bool watched;
};

static unsigned processors(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 1 ? (unsigned)n : 1;
}

/* One more than processors, so that a thread waits for the next request while
 * the others end theirs. The kernel wakes idle threads in turn, and many of them
 * make small requests slower. */
static unsigned nthreads(const struct ofs_mount_options *m)
{
	unsigned n = processors();

	if (m->single)
		return 1;
	if (m->threads != 0)
		return m->threads;
	return n < 8 ? n + 1 : 8;
}

static uint64_t cache_budget(const struct ofs_mount_options *m)
{
	return m->open.cache != 0 ? m->open.cache : ofs_default_cache();
}

/* Gathered files are memory that the kernel cannot take back: whatever cache= is,
 * they leave half of what there is. */
static uint64_t assemble_budget(const struct ofs_mount_options *m)
{
	uint64_t share = ASSEMBLE_SHARE(cache_budget(m));
	uint64_t half = ofs_memory_limit() / 2;

	if (share <= half)
		return share;
	ofs_log("cache=: gathered files (assemble=) take at most %" PRIu64
		" MiB, half of the memory that the machine or the control "
		"group has",
	    half >> 20);
	return half;
}

static struct ofs_assemble *make_assemble(struct server *s)
{
	const struct ofs_mount_options *m = s->v->options;
	struct ofs_assemble_config config = {
		.policy = (enum ofs_assemble_policy)m->assemble,
		.max = m->assemble_max,
		.budget =
		    m->assemble == OFS_ASSEMBLE_OFF ? 0 : assemble_budget(m),
		.threads = processors() < 2 ? 2 : processors(),
	};
	struct ofs_assemble *a;
	struct optimfs_error err;

	if (m->assemble == OFS_ASSEMBLE_OFF)
		return NULL;
	a = ofs_assemble_new(&config, &s->session.pt, &err);
	if (a == NULL && m->assemble == OFS_ASSEMBLE_ALWAYS)
		ofs_log("assemble=always: not possible here (%s); files are "
			"read on demand",
		    err.text);
	return a;
}

/* MPI and CUDA open devices, sockets and shared memory at any time, in threads
 * that read too: no sandbox for ranks. */
static int make_sandbox(struct server *s, struct optimfs_error *err)
{
	const struct ofs_mount_options *m = s->v->options;
	const struct ofs_sandbox_config config = {
		.source = { s->v->source },
		.join = { m->open.join },
		.base = { m->open.base },
		.write = m->open.rw,
		.temporary = m->open.scratch,
		.upper = m->open.upper,
		.file = { m->open.units, m->open.ids, m->open.names },
		.open = &m->open,
		.memory = ofs_assemble_dir(s->session.assemble),
		.passthrough = s->session.assemble != NULL,
	};
	bool required = m->sandbox == OFS_SANDBOX_REQUIRE;

	if (required && m->open.group != NULL)
		return optimfs_fail(err, EINVAL,
		    "option 'sandbox=require': mounts by several ranks have no "
		    "sandbox");
	if (m->sandbox == OFS_SANDBOX_OFF || m->open.group != NULL)
		return 0;
	s->confined = ofs_sandbox_new(&config, &s->sandbox, err) == 0;
	if (s->confined)
		return 0;
	if (required)
		return optimfs_fail_in(err, "sandbox=require");
	ofs_log("sandbox: %s", err->text);
	return 0;
}

static int sandbox_failed(const struct server *s, struct optimfs_error *err)
{
	if (s->v->options->sandbox == OFS_SANDBOX_REQUIRE)
		return optimfs_fail_in(err, "sandbox=require");
	ofs_log("no sandbox for a thread: %s", err->text);
	return 0;
}

/* Called by each thread before it parses the checkpoint. */
static int enter_sandbox(void *ctx, struct optimfs_error *err)
{
	struct server *s = ctx;

	if (s->sandbox == NULL || ofs_sandbox_enter(s->sandbox, err) == 0)
		return 0;
	return sandbox_failed(s, err);
}

struct task {
	struct server *s;
	int (*run)(struct server *s, struct optimfs_error *err);
	struct optimfs_error *err;
	int ret;
};

static void *run_task(void *arg)
{
	struct task *t = arg;

	t->ret = enter_sandbox(t->s, t->err);
	if (t->ret == 0)
		t->ret = t->run(t->s, t->err);
	return NULL;
}

/* Runs a function in a sandboxed thread, because this one has to unmount. */
static int in_sandbox(struct server *s,
    int (*run)(struct server *s, struct optimfs_error *err),
    struct optimfs_error *err)
{
	struct task t = { .s = s, .run = run, .err = err };
	pthread_t thread;
	int code;

	if (s->sandbox == NULL)
		return run(s, err);
	code = pthread_create(&thread, NULL, run_task, &t);
	if (code != 0)
		return optimfs_fail(err, code, "cannot start a thread");
	pthread_join(thread, NULL);
	return t.ret;
}

static void say_recovered(const struct server *s)
{
	const struct ofs_mount_options *m = s->v->options;
	char *text = optimfs_recovered(s->session.fs), *rest = NULL;

	for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &rest);
	     line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		if (!m->quiet)
			ofs_tool_say("%s: %s", s->v->source, line);
		if (!m->foreground)
			ofs_log("%s: %s", s->v->source, line);
	}
	free(text);
}

/* Prepares the message about what was mounted. Damage is reported without a
 * terminal too, but not with -q. With several ranks, one reports. */
static void make_news(struct server *s)
{
	const struct ofs_mount_options *m = s->v->options;

	say_recovered(s);
	if (m->quiet ||
	    (m->open.group != NULL && optimfs_group_rank(m->open.group) != 0))
		return;
	s->watched = isatty(STDERR_FILENO) == 1;
	s->news = optimfs_summary(s->session.fs, "",
	    s->watched ? OPTIMFS_SUMMARY_LINE : OPTIMFS_SUMMARY_PROBLEMS, NULL);
}

static int open_checkpoint(struct server *s, struct optimfs_error *err)
{
	const struct ofs_mount_options *m = s->v->options;
	struct optimfs_options o = m->open;
	bool shared = s->session.assemble != NULL;
	struct ofs_progress progress;
	const struct optimfs_watch watch = { .progress = ofs_progress_step,
		.stop = ofs_interrupted,
		.ctx = &progress };

	ofs_progress_init(&progress, "mount", m->quiet, m->progress);
	o.cache = cache_budget(m);
	if (shared)
		o.cache -= ASSEMBLE_SHARE(o.cache);
	if (o.group == NULL)
		o.watch = &watch;
	/* Large blocks that reading needed go back to the system when they are
	 * freed. Those of requests are kept, as if malloc had learned so. */
	mallopt(M_MMAP_THRESHOLD, 1 << 20);
	mallopt(M_TRIM_THRESHOLD, 8 << 20);
	s->session.fs =
	    optimfs_open(o.group != NULL ? m->offered : s->v->source, &o, err);
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	ofs_progress_clear(&progress);
	if (s->session.fs == NULL)
		return -1;
	make_news(s);
	return m->opened == NULL ? 0 : m->opened(m->ctx, s->session.fs, err);
}

static int add_options(const struct server *s, struct fuse_args *args)
{
	const struct ofs_mount_options *m = s->v->options;
	char *list = NULL, name[PATH_MAX + 8], words[200];
	char *real = realpath(s->v->source, NULL);
	int ret;

	/* shown by findmnt and df, absolute as with mount(8) */
	snprintf(name, sizeof(name), "fsname=%s",
	    real != NULL ? real : s->v->source);
	free(real);
	snprintf(words, sizeof(words),
	    "subtype=optimfs,%s,nosuid,nodev,noexec,max_read=%u%s%s%s",
	    m->open.rw ? "rw" : "ro", OFS_MAX_READ,
	    m->allow_other ? ",allow_other" : "",
	    m->default_permissions ? ",default_permissions" : "",
	    m->auto_unmount ? ",auto_unmount" : "");
	ret = fuse_opt_add_opt_escaped(&list, name);
	if (ret == 0)
		ret = fuse_opt_add_opt(&list, words);
	if (ret == 0)
		ret = fuse_opt_add_arg(args, "optimfs");
	if (ret == 0)
		ret = fuse_opt_add_arg(args, "-o");
	if (ret == 0)
		ret = fuse_opt_add_arg(args, list);
	if (ret == 0 && m->debug)
		ret = fuse_opt_add_arg(args, "-d");
	free(list);
	return ret;
}

/* Is there what mounts without root? libfuse looks below /usr/bin, too. */
static bool has_fusermount(void)
{
	const char *path = getenv("PATH");
	char *dirs = strdup(path != NULL ? path : ""), *next = dirs, *dir;
	char name[PATH_MAX];
	bool found = access("/usr/bin/fusermount3", X_OK) == 0;

	while (!found && (dir = strsep(&next, ":")) != NULL) {
		snprintf(name, sizeof(name), "%s/fusermount3", dir);
		found = access(name, X_OK) == 0;
	}
	free(dirs);
	return found;
}

static int mount_failed(const struct server *s, struct optimfs_error *err)
{
	char text[OFS_LOG_KEPT];
	const char *why = ofs_log_kept(text);

	if (geteuid() != 0 && !has_fusermount())
		return optimfs_fail(err, EIO,
		    "OFS758 cannot mount on %s: without root, that takes "
		    "fusermount3: install the package fuse3 (ls, cat, cp and "
		    "diff work without a mount)", s->v->point);
	return optimfs_fail(err, EIO, "OFS758 cannot mount on %s%s%s",
	    s->v->point, why[0] != '\0' ? ": " : "", why);
}

static int mount_session(struct server *s, struct optimfs_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int ret = -1;

	ofs_log_keep(true);
	if (add_options(s, &args) == -1)
		ofs_no_memory(err);
	else if ((s->se = fuse_session_new(&args, &ofs_fuse_ops,
		      sizeof(ofs_fuse_ops), &s->session)) == NULL ||
	    fuse_session_mount(s->se, s->v->point) != 0)
		mount_failed(s, err);
	else
		ret = ofs_passthrough_attach(&s->session.pt, s->se,
		    s->session.assemble != NULL, err);
	fuse_opt_free_args(&args);
	if (ret == 0)
		ofs_ahead_session(s->session.ahead, s->se);
	s->session.se = s->se;
	return ret;
}

/* The kernel's default read-ahead of 128 KiB costs two thirds of the speed.
 * Changing it takes root. */
static void set_readahead(const struct server *s, dev_t dev)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb",
	    major(dev), minor(dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd == -1)
		return;
	dprintf(fd, "%" PRIu64 "\n", s->v->options->readahead >> 10);
	close(fd);
}

/* The options of the mount as JSON, malloc'ed. */
static char *info(void *ctx)
{
	struct server *s = ctx;
	struct ofs_buf b = { 0 };
	struct ofs_json_writer w = { &b, "", false };

	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "point", s->v->point);
	ofs_json_put_bool(&w, "passthrough",
	    ofs_passthrough_available(&s->session.pt));
	ofs_json_put_bool(&w, "sandbox", s->confined);
	ofs_json_put_u64(&w, "threads", s->threads);
	ofs_mount_options_json(s->v->options, &w);
	ofs_json_close(&w, '}');
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		ofs_buf_fini(&b);
	return (char *)b.data;
}

/* Others wait for this file. It has the process ID, and gets its name when it is
 * complete. */
static int make_ready_file(struct server *s, struct optimfs_error *err)
{
	const char *path = s->v->options->ready_file;
	struct ofs_replace to;
	int ret = -1;

	if (path == NULL)
		return 0;
	if (ofs_replace_open(&to, path, err) == -1)
		return -1;
	if (dprintf(to.fd, "%d\n", (int)getpid()) < 0)
		optimfs_fail(err, errno, "%m");
	else
		ret = ofs_replace_finish(&to, err);
	ofs_replace_fini(&to);
	s->ready = ret == 0;
	return ret == 0 ? 0 : optimfs_fail_in(err, "%s", path);
}

/* Has somebody unmounted it already? A thread that did not get the time to look
 * at the mount before that must not report that it does not answer. */
static bool was_unmounted(const struct server *s)
{
	struct ofs_mountinfo m;
	bool there = ofs_mountinfo_find(s->v->point, &m) &&
	    strcmp(m.type, "fuse.optimfs") == 0;

	ofs_mountinfo_fini(&m);
	return !there;
}

/* The mount is ready when it answers: queries it while the other threads
 * serve. */
static void *publish(void *arg)
{
	struct server *s = arg;
	char printed[OFS_LOG_KEPT];
	struct optimfs_error err;
	struct statfs fs;
	struct stat st;

	if (!ofs_is_descriptor(s->v->point)) {
		if (stat(s->v->point, &st) == -1 ||
		    statfs(s->v->point, &fs) == -1) {
			int code = errno;

			/* unless it is ending */
			if (!fuse_session_exited(s->se) && !was_unmounted(s))
				optimfs_fail(&s->unanswered, code,
				    "%s: the mount does not answer: %s %s",
				    s->v->point, strerror(code),
				    ofs_log_kept(printed));
			ofs_loop_stop(s->loop);
			return NULL;
		}
		/* unless it was unmounted */
		if ((unsigned long)fs.f_type == FUSE_SUPER_MAGIC) {
			set_readahead(s, st.st_dev);
			atomic_store(&s->found,
			    ofs_mountinfo_find(s->v->point, &s->mount) &&
				s->mount.minor == minor(st.st_dev));
			if (optimfs_set_mounted(s->session.fs, st.st_dev,
				&err) == -1)
				ofs_log("%s", err.text);
		}
	}
	ofs_log_keep(false);
	if (make_ready_file(s, &s->unanswered) == -1) {
		ofs_loop_stop(s->loop);
		return NULL;
	}
	if (s->news != NULL && s->news[0] != '\0')
		(s->watched ? ofs_tool_note : ofs_tool_say)("%s: %s",
		    s->watched ? "mounted" : s->v->source, s->news);
	if (s->v->ready != NULL)
		s->v->ready(s->v->ctx);
	return NULL;
}

static char *stats(void *ctx)
{
	struct ofs_session *s = ctx;
	struct ofs_op_counters *c = &s->count;
	struct ofs_assemble_stats a;
	char *text;

	ofs_assemble_stats(s->assemble, &a);
	if (asprintf(&text,
		"fuse_lookup %" PRIu64 "\nfuse_getattr %" PRIu64
		"\nfuse_readdir %" PRIu64 "\nfuse_open %" PRIu64
		"\nfuse_read %" PRIu64 "\nfuse_read_bytes %" PRIu64
		"\nfuse_write %" PRIu64 "\nfuse_write_bytes %" PRIu64
		"\nfuse_getxattr %" PRIu64 "\nfuse_failed %" PRIu64
		"\nfuse_late %" PRIu64 "\nassembled_files %" PRIu64
		"\nassembled_bytes %" PRIu64 "\nassembled_hits %" PRIu64
		"\nassembled_evicted %" PRIu64 "\nassembled_failed %" PRIu64
		"\nassembled_refused %" PRIu64 "\nassembled_memory %" PRIu64
		"\n",
		(uint64_t)c->lookup, (uint64_t)c->getattr, (uint64_t)c->readdir,
		(uint64_t)c->open, (uint64_t)c->read, (uint64_t)c->read_bytes,
		(uint64_t)c->write, (uint64_t)c->write_bytes,
		(uint64_t)c->getxattr, (uint64_t)c->failed, (uint64_t)c->late,
		a.gathered, a.gathered_bytes, a.hits, a.evicted, a.failed,
		a.refused, a.memory) == -1)
		return NULL;
	return text;
}

/* Drops privileges that serving does not need. A user's daemon needs
 * fusermount3 to unmount. */
static int give_up_rights(const struct server *s, struct optimfs_error *err)
{
	const struct ofs_mount_options *m = s->v->options;

	if (geteuid() == 0)
		(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* MPI copies between processes with ptrace privileges */
	if (m->allow_other && m->open.group == NULL)
		(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (s->sandbox == NULL || ofs_sandbox_serve(s->sandbox, err) == 0)
		return 0;
	return sandbox_failed(s, err);
}

static void stuck(void *ctx, unsigned threads)
{
	struct server *s = ctx;

	ofs_loop_stuck(s->loop, threads);
}

static void ended(void *ctx)
{
	struct server *s = ctx;

	ofs_quit_ended(s->quit);
}

static void late(void *ctx, uint64_t node)
{
	struct server *s = ctx;

	ofs_ops_late(&s->session, node);
}

static int start_threads(struct server *s, struct optimfs_error *err)
{
	const struct ofs_mount_options *m = s->v->options;
	const struct ofs_watch_config watch = {
		.seconds = m->timeout,
		.late = late,
		.stuck = stuck,
		.ctx = s,
	};
	const struct ofs_loop_config loop = {
		.threads = s->threads,
		.max = m->single ? 1 : OFS_MAX_THREADS,
		.devices = ofs_passthrough_devices(&s->session.pt),
		.begin = enter_sandbox,
		.ended = ended,
		.ctx = s,
	};
	struct ofs_quit_config quit = {
		.se = s->se,
		.point = ofs_is_descriptor(s->v->point) ? NULL : s->v->point,
		.source = s->v->source,
		.rw = m->open.rw,
	};
	int code;

	s->loop = ofs_loop_new(s->se, &loop, err);
	if (s->loop == NULL)
		return -1;
	s->session.watch = ofs_watch_new(&watch, err);
	if (s->session.watch == NULL)
		return -1;
	quit.loop = s->loop;
	s->quit = ofs_quit_new(&quit, err);
	if (s->quit == NULL)
		return -1;
	code = pthread_create(&s->publisher, NULL, publish, s);
	if (code != 0)
		return optimfs_fail(err, code, "cannot start a thread");
	s->publishing = true;
	return 0;
}

/* What is said to be kept is on the disk. */
static int keep_changes(struct server *s, uint64_t files,
    struct optimfs_error *err)
{
	if (optimfs_sync(s->session.fs, err) == -1)
		return optimfs_fail_in(err,
		    "%s: changes are not committed, and not all of them are "
		    "on the disk",
		    s->v->source);
	ofs_log("%s: %" PRIu64 " changed files are kept beside it, not "
		"committed",
	    s->v->source, files);
	return 0;
}

/* An unmount commits the changes, unless configured otherwise; a signal keeps
 * them, and so does a forced unmount. */
static int publish_changes(struct server *s, struct optimfs_error *err)
{
	struct optimfs_status status;
	int ret;

	optimfs_status(s->session.fs, &status);
	if (status.files == 0 || status.scratch)
		return 0;
	if (status.explicit_commit || s->ended)
		return keep_changes(s, status.files, err);
	ret = optimfs_commit(s->session.fs, NULL, NULL, err);
	if (ret == 1)
		ofs_log("%s: committed, but: %s", s->v->source, err->text);
	if (ret == -1)
		ofs_log("%s: not committed: %s", s->v->source, err->text);
	return ret == -1 ? keep_changes(s, status.files, err) : 0;
}

static int close_checkpoint(struct server *s, struct optimfs_error *err)
{
	int ret = s->served ? publish_changes(s, err) : 0;

	optimfs_close(s->session.fs);
	return ret;
}

/* Did the connection end while the mount was still there? Then it was aborted,
 * and whoever did that does not want a commit. */
static bool was_forced(struct server *s)
{
	return atomic_load(&s->found) && ofs_mountinfo_still(&s->mount);
}

/* Seconds in which a commit, or a sync, has to move. A server that restarts takes
 * less. */
#define CHANGES_SECONDS 600

/* Unmounting closes the device, which at the latest ends the stat of the
 * publisher, who still uses the session. */
static int take_down(struct server *s, struct optimfs_error *err)
{
	int ret = 0;

	s->ended = ofs_quit_step(s->quit, "the unmount", 60) || was_forced(s);
	ofs_watch_free(s->session.watch);
	if (s->se != NULL)
		fuse_session_unmount(s->se);
	if (s->publishing)
		pthread_join(s->publisher, NULL);
	if (s->ready)
		(void)unlink(s->v->options->ready_file);
	if (s->session.fs != NULL)
		(void)optimfs_set_mounted(s->session.fs, 0, NULL);
	ofs_loop_free(s->loop);
	if (s->se != NULL)
		fuse_session_destroy(s->se);
	ofs_ops_close_all(&s->session);
	ofs_assemble_free(s->session.assemble);
	ofs_ahead_free(s->session.ahead);
	ofs_quit_step(s->quit, "its changes", CHANGES_SECONDS);
	if (s->session.fs != NULL)
		ret = in_sandbox(s, close_checkpoint, err);
	ofs_quit_free(s->quit);
	ofs_sandbox_free(s->sandbox);
	ofs_mountinfo_fini(&s->mount);
	free(s->news);
	pthread_mutex_destroy(&s->session.lock);
	return ret;
}

int ofs_serve(const struct ofs_serve *v, struct optimfs_error *err)
{
	struct server *s = calloc(1, sizeof(*s));
	struct optimfs_error lost;
	int ret = -1;

	if (s == NULL)
		return ofs_no_memory(err);
	s->v = v;
	s->session.direct = v->options->direct;
	s->session.rw = v->options->open.rw;
	s->session.others = v->options->allow_other;
	s->session.changes = v->options->open.rw;
	s->session.timeout = v->options->timeout;
	s->threads = nthreads(v->options);
	/* what has been edited is not gathered; the only thread has to serve */
	s->session.ahead_of_opens = !v->options->open.rw && s->threads > 1;
	pthread_mutex_init(&s->session.lock, NULL);
	ofs_passthrough_init(&s->session.pt);
	s->session.assemble = make_assemble(s);
	if (!v->options->open.rw)
		s->session.ahead = ofs_ahead_new(&s->session.count.read_bytes);
	if (make_sandbox(s, err) == -1 ||
	    in_sandbox(s, open_checkpoint, err) == -1)
		goto out;
	optimfs_set_mount_info(s->session.fs, info, s);
	optimfs_set_stats(s->session.fs, stats, &s->session);
	ofs_quit_block();
	if (ofs_interrupted(NULL)) {
		optimfs_fail(err, ECANCELED, "interrupted");
		goto out;
	}
	if (mount_session(s, err) == -1)
		goto out;
	if (give_up_rights(s, err) == 0 && start_threads(s, err) == 0 &&
	    (v->options->mounted == NULL ||
		v->options->mounted(v->options->ctx, err) == 0)) {
		s->served = true;
		ret = ofs_loop_run(s->loop, err);
	}
out:
	if (take_down(s, &lost) == -1 && ret == 0)
		ret = optimfs_fail_with(err, &lost);
	if (ret == 0 && s->unanswered.code != 0)
		ret = optimfs_fail_with(err, &s->unanswered);
	free(s);
	return ret;
}

bool ofs_is_descriptor(const char *point)
{
	return strncmp(point, "/dev/fd/", 8) == 0;
}

const char *ofs_fuse_version(void)
{
	return fuse_pkgversion();
}
