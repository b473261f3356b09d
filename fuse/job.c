/* job.c - a mount by several ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/job.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "cli/job.h"
#include "cli/tools.h"
#include "fuse/guard.h"
#include "fuse/log.h"
#include "fuse/mount.h"
#include "fuse/mountinfo.h"

/* Leaves time to ask another owner before the kernel's request times out. */
static unsigned answer_time(unsigned timeout)
{
	return timeout - timeout / 3;
}

/* Reports an error that only this rank has. */
static int fail_here(const struct ofs_job *job, struct optimfs_error *err)
{
	optimfs_fail_in(err, "rank %d", optimfs_group_rank(job->group));
	return ofs_tool_fail(err);
}

/* All ranks take part in two steps, each once. The comparison: a rank that mounts,
 * when it has opened the checkpoint; others with no tree. The vote: a rank that
 * mounts, when its mount is there and before it answers; others, and a rank that
 * could not mount, at once. A rank that fails in the first step ends all in the
 * second. */
struct agreement {
	struct optimfs_group *group;
	bool keep_going; /* without the ranks that cannot mount */
	bool compared, voted;
	int ret; /* the same on all ranks */
};

static int compare(void *ctx, struct optimfs *fs, struct optimfs_error *err)
{
	struct agreement *a = ctx;

	a->compared = true;
	a->ret = optimfs_group_compare(a->group, fs, err);
	return a->ret;
}

/* own: why this rank has not mounted; NULL: it has, or need not. */
static int vote(struct agreement *a, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	a->voted = true;
	a->ret = optimfs_group_agree(a->group, a->keep_going ? NULL : own, err);
	if (a->keep_going)
		a->ret = 0;
	return a->ret;
}

static int vote_mounted(void *ctx, struct optimfs_error *err)
{
	return vote(ctx, NULL, err);
}

/* The steps that this rank has not taken in mount_here, which has failed with own
 * if it is not NULL. */
static int agree(struct agreement *a, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	if (!a->compared)
		(void)compare(a, NULL, err);
	if (a->ret == 0 && !a->voted)
		(void)vote(a, own, err);
	return a->ret;
}

static int mount_here(struct ofs_job *job, struct ofs_guard *guard,
    const char *source, const char *point, struct ofs_mount_options *m,
    struct optimfs_error *err)
{
	char *from = optimfs_group_expand(job->group, source, err), *to, *real;
	int ret = -1;

	if (from == NULL)
		return -1;
	to = optimfs_group_expand(job->group, point, err);
	if (to != NULL) {
		real = ofs_mount_point_path(to, NULL);
		if (real != NULL)
			ofs_guard_watch(guard, real);
		free(real);
		m->open.group = job->group;
		m->offered = source;
		ret = ofs_mount(from, to, m, err);
	}
	free(to);
	free(from);
	return ret;
}

/* Serving a mount blocked the signals; waiting for other ranks must end at
 * one. */
static void unblock_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void say(void *ctx, const char *text)
{
	(void)ctx;
	ofs_log("%s", text);
}

static bool writes(const struct ofs_mount_options *m)
{
	return m->open.rw && !m->open.scratch;
}

/* Only rank 0 may write. */
static int check_ranks(const struct ofs_job *job,
    const struct ofs_mount_options *m, struct optimfs_error *err)
{
	if (!writes(m) || job->worker[0])
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS842 option 'mount_ranks=%s': only rank 0 can write, so it must "
	    "be among the ranks that mount",
	    m->mount_ranks);
}

/* The other ranks show the current state, read-only. */
static void only_read(const struct ofs_job *job, struct ofs_mount_options *m)
{
	int n = 0;

	if (!writes(m))
		return;
	for (int r = 1; r < optimfs_group_size(job->group); r++)
		n += job->worker[r];
	if (!ofs_job_is_first(job))
		m->open.rw = false;
	else if (n > 0)
		ofs_log("rank 0 writes, the mounts of %d other ranks are "
			"read-only: mount again to see what it has committed",
		    n);
}

static int mount_together(struct ofs_job *job, struct ofs_guard *guard,
    const char *source, const char *point, struct ofs_mount_options *m)
{
	struct agreement a = { .keep_going = m->keep_going };
	struct optimfs_error err, own = { 0 };
	bool failed;

	if (ofs_job_join(job, &m->job,
		m->mount_ranks != NULL ? m->mount_ranks : "nodes",
		answer_time(m->timeout), say, &err) == -1)
		return ofs_job_fail(job, &err);
	if (check_ranks(job, m, &err) == -1 ||
	    ofs_job_offer(job, &m->job, source, &m->open, &err) == -1)
		return ofs_job_fail(job, &err);
	ofs_job_say_bound(job, "", say);
	only_read(job, m);
	a.group = job->group;
	m->opened = compare;
	m->mounted = vote_mounted;
	m->ctx = &a;
	failed = ofs_job_works(job) &&
	    mount_here(job, guard, source, point, m, &own) == -1;
	unblock_signals();
	err = own;
	if (agree(&a, failed ? &own : NULL, &err) == -1)
		return ofs_job_fail(job, &err);
	return failed ? fail_here(job, &own) : OFS_EXIT_OK;
}

int ofs_mount_job(const char *source, const char *point,
    struct ofs_mount_options *m)
{
	struct ofs_guard guard;
	struct optimfs_error err;
	struct ofs_job job;
	int status;

	m->foreground = true; /* the launcher ends a job that daemonises */
	if (ofs_guard_start(&guard, &err) == -1)
		return ofs_tool_fail(&err);
	status = mount_together(&job, &guard, source, point, m);
	ofs_job_leave(&job);
	ofs_guard_end(&guard);
	return status;
}
