/* cmd_umount.c - optimfs umount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_umount.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/clock.h"
#include "cli/args.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"
#include "tools/cmd_commit.h"
#include "tools/control.h"
#include "tools/verbs.h"

/* The time that the daemon has to end after the unmount, and that others have
 * to leave the mount before; the time after which a commit is waited for in
 * words, and no longer waited for, if it does not go on. */
enum {
	WAIT_TICKS = 200,
	BUSY_TICKS = 40,
	TELL_TICKS = 20,
	STUCK_TICKS = 2400,
	TICK_MS = 50,
	FIRST_MS = 2, /* most daemons end within a few */
};

/* The control file system drops a connection when its daemon closes it; a
 * writer holds its lock until everything is done. */
static bool is_gone(const struct ofs_mountinfo *m, int lock)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", m->minor);
	return !ofs_mountinfo_still(m) && stat(path, &st) == -1 &&
	    (lock == -1 || !optimfs_lock_busy(lock));
}

static int wait_gone(const struct ofs_mountinfo *m, int lock,
    struct optimfs_error *err)
{
	struct timespec tick = { .tv_nsec = FIRST_MS * 1000000L };

	for (int i = 0; i < WAIT_TICKS; i++) {
		if (is_gone(m, lock))
			return 0;
		nanosleep(&tick, NULL);
		if (i == TICK_MS / FIRST_MS)
			tick.tv_nsec = TICK_MS * 1000000L;
	}
	return optimfs_fail(err, ETIMEDOUT,
	    "%s is unmounted, but its daemon has not ended: it is busy, or another mount namespace (a container) also has the mount",
	    m->point);
}

static bool goes_on(const struct ofs_control *a, const struct ofs_control *b)
{
	return a->done != b->done || a->percent != b->percent ||
	    strcmp(a->doing, b->doing) != 0;
}

/* Waits for a commit that someone else has started, while it goes on. */
static int wait_commit(const struct ofs_mountinfo *m, struct ofs_control *c,
    struct optimfs_error *err)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };
	struct ofs_control was = { 0 };
	int ret, still = 0;

	while ((ret = ofs_control_read(m->point, c, err)) == 0 &&
	    c->committing) {
		still = goes_on(c, &was) ? 0 : still + 1;
		was = *c;
		if (still == TELL_TICKS)
			ofs_tool_say("%s: waiting for a commit that somebody "
				     "else has started",
			    m->point);
		if (still == STUCK_TICKS)
			return optimfs_fail(err, ETIMEDOUT,
			    "a commit that somebody else has started does not "
			    "go on: the daemon of %s is busy, or its disk does "
			    "not answer",
			    m->point);
		nanosleep(&tick, NULL);
	}
	return ret;
}

static bool is_dead(const struct optimfs_error *err)
{
	return err->code == ENOTCONN || err->code == ECONNABORTED;
}

/* What to do with a mount. */
struct how {
	bool force, keep;
	bool lazy;    /* even if it is in use */
	bool bare;    /* without a word of optimfs: commit=explicit keeps */
	bool dead;    /* a writer whose daemon has ended */
	bool refused; /* the commit has failed */
};

/* Commits the changes, or keeps them if asked to. 1: committed, but may not
 * survive a power failure. If the state of the changes is unknown, refuses:
 * unmounting would commit them, and nobody would see the result. */
static int settle(struct ofs_mountinfo *m, struct how *how,
    struct ofs_progress *progress, struct optimfs_error *err)
{
	struct ofs_control c;
	int ret;

	if (wait_commit(m, &c, err) == -1) {
		how->dead = m->rw && is_dead(err);
		/* without a control file there are no changes */
		if (!m->rw || how->dead || err->code == ENOENT)
			return 0;
		return optimfs_fail_in(err,
		    "%s may have changes that are not committed: unmount it as "
		    "the user who mounted it, or with --force",
		    m->point);
	}
	m->rw &= !c.scratch; /* which has no lock */
	if (c.dirty[0] == '\0' || c.scratch || (c.explicit_commit && how->bare))
		return 0;
	if (how->keep)
		return ofs_control_write(m->point, "keep", err);
	if (c.explicit_commit)
		return optimfs_fail(err, EBUSY,
		    "OFS808 %s has %s that %s not committed: optimfs commit or "
		    "optimfs abort it, or unmount it with --keep",
		    m->point, c.dirty,
		    strncmp(c.dirty, "1 ", 2) == 0 ? "is" : "are");
	ret = ofs_control_commit(m->point, progress, err);
	how->refused = ret == -1;
	if (ret == 0)
		ofs_tool_done("committed: %s", c.dirty);
	return ret;
}

/* df, lsof and monitors use a mount for a moment. */
static int unmount_unused(const char *point, struct optimfs_error *err)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };
	int ret, n = 0;

	while ((ret = ofs_unmount(point, false, err)) == -1 &&
	    err->code == EBUSY && n++ < BUSY_TICKS)
		nanosleep(&tick, NULL);
	return ret;
}

static void *ask_to_keep(void *arg)
{
	const struct ofs_mountinfo *m = arg;
	struct optimfs_error err;

	if (ofs_control_write(m->point, "keep", &err) == -1 && !is_dead(&err) &&
	    err.code != EACCES)
		ofs_tool_say("%s", err.text);
	return NULL;
}

/* A daemon that still answers keeps its changes first. One that does not gets no
 * more time: the end of the connection ends the question, too. */
static int abort_connection(struct ofs_mountinfo *m, struct optimfs_error *err)
{
	struct timespec until = ofs_clock_after(INT64_C(3000000000));
	pthread_t thread;
	bool asked =
	    m->rw && pthread_create(&thread, NULL, ask_to_keep, m) == 0;
	int ret;

	if (asked &&
	    pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0)
		asked = false;
	ret = ofs_connection_abort(m, err);
	if (asked && ret == 0)
		pthread_join(thread, NULL);
	return ret;
}

/* Does not end as long as it has the lock. */
static bool wait_free(int lock)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };

	for (int i = 0; lock != -1 && i < BUSY_TICKS; i++) {
		if (!optimfs_lock_busy(lock))
			return true;
		nanosleep(&tick, NULL);
	}
	return lock == -1;
}

/* The daemon sees that the connection has ended while the mount is there, and
 * does not commit: so the mount is removed after that. */
static int unmount_by_force(struct ofs_mountinfo *m, struct optimfs_error *err)
{
	int lock = m->rw ? optimfs_lock_watch(m->source) : -1;
	int ret = abort_connection(m, err);

	if (ret == 0 && !wait_free(lock))
		ofs_tool_say("%s: the daemon has not ended yet: it syncs "
			     "changes, or waits for a disk",
		    m->point);
	if (lock != -1)
		close(lock);
	/* forcing may have unmounted it */
	return ret == 0 && ofs_mountinfo_still(m)
	    ? ofs_unmount(m->point, true, err)
	    : ret;
}

static int unmount(struct ofs_mountinfo *m, const struct how *how,
    struct optimfs_error *err)
{
	int ret, lock;

	if (how->force)
		return unmount_by_force(m, err);
	if (how->lazy)
		return ofs_unmount(m->point, true, err);
	lock = m->rw ? optimfs_lock_watch(m->source) : -1;
	ret = unmount_unused(m->point, err);
	/* the guard of a rank, or another umount, may have been faster */
	if (ret == -1 && !ofs_mountinfo_still(m))
		ret = 0;
	if (ret == -1 && err->code == EBUSY)
		optimfs_fail(err, EBUSY,
		    "%s is in use: fuser -vm %s lists what uses it", m->point,
		    m->point);
	else if (ret == 0)
		ret = wait_gone(m, lock, err);
	if (lock != -1)
		close(lock);
	return ret;
}

/* Returns the exit status. */
static int umount_point(const char *point, struct how *how,
    struct ofs_progress *progress)
{
	struct optimfs_error err;
	struct ofs_mountinfo m;
	int status = OFS_EXIT_OK, ret = 0;

	if (ofs_control_find(point, &m, &err) == -1)
		return ofs_tool_fail(&err);
	if (!how->force)
		ret = settle(&m, how, progress, &err);
	if (ret != 0)
		status = ofs_commit_status(ret, &err);
	if (how->refused)
		ofs_tool_say("%s stays mounted: optimfs umount --keep leaves "
			     "the changes for the next mount; --force does so "
			     "even if the daemon or another rank does not "
			     "answer",
		    m.point);
	if (ret == -1 && err.number == 808)
		status = OFS_EXIT_NO;
	if (ret != -1 && unmount(&m, how, &err) == -1)
		status = ofs_tool_fail(&err);
	else if (how->dead && !how->keep && optimfs_left(m.source, &err) == -1)
		status = ofs_tool_fail(&err);
	ofs_mountinfo_fini(&m);
	return status;
}

static int run_umount(const struct ofs_verb *self, int argc, char **argv)
{
	static const struct ofs_flag flags[] = {
		{ OFS_ORDER_FORCE, "force", false },
		{ OFS_ORDER_KEEP, "keep", false },
		{ 0, NULL, false },
	};
	struct ofs_commit_order o;
	int status = ofs_commit_order_take(self, argc, argv, flags, &o);
	struct how how = { .force = o.force, .keep = o.keep };
	struct ofs_progress p;

	if (status != -1)
		return status;
	ofs_progress_init(&p, "commit", o.quiet, o.progress);
	return umount_point(o.point, &how, &p);
}

const struct ofs_verb ofs_verb_umount = {
	.name = "umount",
	.synopsis = "[--force] [--keep] MOUNTPOINT",
	.summary = "commit changes and unmount",
	.options =
	    "  --force  abort requests in progress, and detach a mount that is in use\n"
	    "  --keep   do not commit; keep the changes for the next mount\n",
	.run = run_umount,
};

/* The exit codes of umount(8) that we use. */
enum {
	UMOUNT_OK = 0,
	UMOUNT_USAGE = 1,
	UMOUNT_FAILED = 32,
};

int ofs_umount_helper(int argc, char **argv)
{
	static const struct ofs_verb self = {
		.name = "umount",
		.synopsis = "[-flnrv] MOUNTPOINT",
		.summary = "commit changes and unmount, for umount(8)",
	};
	static const struct ofs_flag flags[] = {
		{ 'f', "force", false },
		{ 'l', "lazy", false },
		{ 'n', "no-mtab", false },
		{ 'r', "read-only", false },
		{ 'v', "verbose", false },
		{ 't', "types", true },
		{ 0, NULL, false },
	};
	struct how how = { .bare = true };
	const char *value, *point = NULL;
	struct ofs_progress p;
	struct ofs_args a;
	bool verbose = false;
	int id, status;

	ofs_args_init(&a, &self, argc, argv, flags, NULL);
	while ((id = ofs_args_next(&a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status == 0 ? UMOUNT_OK : UMOUNT_USAGE;
		if (id == OFS_ARGS_OPERAND)
			point = value;
		how.force |= id == 'f';
		how.lazy |= id == 'l';
		verbose |= id == 'v';
	}
	if (point == NULL) {
		ofs_tool_usage(&self, "unmount what?");
		return UMOUNT_USAGE;
	}
	ofs_progress_init(&p, "commit", !verbose, false);
	return umount_point(point, &how, &p) == OFS_EXIT_OK ? UMOUNT_OK
							    : UMOUNT_FAILED;
}
