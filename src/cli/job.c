/* job.c - commands that run on several ranks under mpirun */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/job.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/tools.h"

const char *const ofs_transport_names[] = { "auto", "local", "mpi", NULL };
const char *const ofs_gather_names[] = { "mpi", "auto", "nccl", NULL };

bool ofs_job_wanted(const struct ofs_job_options *o)
{
	return o->transport == OFS_TRANSPORT_MPI ||
	    (o->transport == OFS_TRANSPORT_AUTO &&
		(optimfs_group_launched() || o->gather == OPTIMFS_GATHER_NCCL));
}

/* Parses "0:4-7"; a comma is accepted too, where the shell and -o allow it. */
static int choose(struct ofs_job *job, const char *list, int size,
    struct optimfs_error *err)
{
	const char *p = list;
	char *end;

	while (*p != '\0') {
		unsigned long a = strtoul(p, &end, 10), b = a;

		if (end == p || p[0] < '0' || p[0] > '9')
			break;
		p = end;
		if (*p == '-') {
			b = strtoul(p + 1, &end, 10);
			if (end == p + 1 || p[1] < '0' || p[1] > '9')
				break;
			p = end;
		}
		if (a > b || b >= (unsigned long)size)
			return optimfs_fail(err, EINVAL,
			    "option 'mount_ranks=%s': the ranks are 0 to %d",
			    list, size - 1);
		for (; a <= b; a++)
			job->worker[a] = true;
		if (*p == '\0')
			return 0;
		if (*p != ':' && *p != ',')
			break;
		p++;
	}
	return optimfs_fail(err, EINVAL,
	    "option 'mount_ranks=%s': must be nodes, all, or ranks like "
	    "0:4-7",
	    list);
}

static int choose_workers(struct ofs_job *job, const char *workers,
    struct optimfs_error *err)
{
	int size = optimfs_group_size(job->group);

	job->worker = calloc((size_t)size, sizeof(*job->worker));
	if (job->worker == NULL)
		return ofs_no_memory(err);
	if (workers == NULL) {
		job->worker[0] = true;
		return 0;
	}
	if (strcmp(workers, "all") != 0 && strcmp(workers, "nodes") != 0)
		return choose(job, workers, size, err);
	for (int r = 0; r < size; r++)
		job->worker[r] =
		    workers[0] == 'a' || optimfs_group_node(job->group, r) == r;
	return 0;
}

static int gather(struct ofs_job *job, const struct ofs_job_options *o,
    ofs_job_say_fn *say, struct optimfs_error *err)
{
	struct optimfs_gather how = {
		.how = (enum optimfs_gather_how)o->gather,
		.gpu_cache = o->gpu_cache,
		.say = say,
	};

	return optimfs_group_gather(job->group, &how, err);
}

int ofs_job_join(struct ofs_job *job, const struct ofs_job_options *o,
    const char *workers, unsigned timeout, ofs_job_say_fn *say,
    struct optimfs_error *err)
{
	*job = (struct ofs_job){ 0 };
	job->group = optimfs_group_join("mpi", timeout, err);
	if (job->group == NULL)
		return -1;
	if (choose_workers(job, workers, err) == 0 &&
	    optimfs_group_readers(job->group, job->worker, err) == 0 &&
	    gather(job, o, say, err) == 0)
		return 0;
	/* the other ranks fail too: there are no readers */
	if (job->worker != NULL)
		memset(job->worker, 0,
		    (size_t)optimfs_group_size(job->group) *
			sizeof(*job->worker));
	return -1;
}

void ofs_job_say_bound(const struct ofs_job *job, const char *also,
    ofs_job_say_fn *say)
{
	long all = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t own;
	char text[240];

	if (!ofs_job_is_first(job) ||
	    sched_getaffinity(0, sizeof(own), &own) == -1 ||
	    CPU_COUNT(&own) != 1 || all < 2)
		return;
	snprintf(text, sizeof(text),
	    "rank 0 may use one of %ld CPUs: mpirun --bind-to none, or srun "
	    "--cpus-per-task, gives it more%s",
	    all, also);
	say(NULL, text);
}

int ofs_job_offer(struct ofs_job *job, const struct ofs_job_options *o,
    const char *path, const struct optimfs_options *open,
    struct optimfs_error *err)
{
	return optimfs_group_offer(job->group, path, o->rank0_only, open, err);
}

bool ofs_job_is_first(const struct ofs_job *job)
{
	return job->group == NULL || optimfs_group_rank(job->group) == 0;
}

int ofs_job_fail(const struct ofs_job *job, const struct optimfs_error *err)
{
	if (!ofs_job_is_first(job))
		return ofs_tool_status(err->code);
	return ofs_tool_fail(err);
}

bool ofs_job_works(const struct ofs_job *job)
{
	return job->group == NULL ||
	    job->worker[optimfs_group_rank(job->group)];
}

void ofs_job_leave(struct ofs_job *job)
{
	if (job->group != NULL && job->worker != NULL)
		optimfs_group_leave(job->group, job->worker);
	free(job->worker);
	*job = (struct ofs_job){ 0 };
}
