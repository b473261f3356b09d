/* job.h - commands that run as several ranks, started by mpirun */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOB_H
#define OFS_JOB_H

#include <stdbool.h>

#include "optimfs/optimfs.h"

#include "cli/options.h"

struct ofs_job_options {
	int transport; /* enum ofs_job_transport */
	bool rank0_only;
	int gather; /* enum optimfs_gather_how */
	uint64_t gpu_cache;
};
enum ofs_job_transport {
	OFS_TRANSPORT_AUTO,  /* mpi, when mpirun started us */
	OFS_TRANSPORT_LOCAL, /* alone */
	OFS_TRANSPORT_MPI,
};

/* Rows of a table whose struct has a struct ofs_job_options at base. */
extern const char *const ofs_transport_names[];
extern const char *const ofs_gather_names[];
#define OFS_JOB_OPTIONS(base)                                               \
 { .name = "transport",                                                     \
	 .kind = OFS_OPTION_CHOICE,                                         \
	 .choices = ofs_transport_names,                                    \
	 .offset = (base) + offsetof(struct ofs_job_options, transport) },  \
     { .name = "gather",                                                    \
	     .kind = OFS_OPTION_CHOICE,                                     \
	     .choices = ofs_gather_names,                                   \
	     .offset = (base) + offsetof(struct ofs_job_options, gather) }, \
     OFS_OPTION_ROW("gpu_cache", OFS_OPTION_SIZE,                           \
	 (base) + offsetof(struct ofs_job_options, gpu_cache)),             \
     OFS_OPTION_ROW("rank0_only", OFS_OPTION_FLAG,                          \
	 (base) + offsetof(struct ofs_job_options, rank0_only))

/* world is NULL for a process that is on its own; it works. */
struct ofs_job {
	struct optimfs_group *world;
	bool *worker; /* of each rank: does it read, or only serve? */
};

/* Told what a person should know: see optimfs_gather. */
typedef void ofs_job_say_fn(void *ctx, const char *text);

/* Is this to be one rank of several? */
bool ofs_job_wanted(const struct ofs_job_options *o);
/* Join the others, and gather from them as o says. workers: NULL for rank 0
 * alone, "nodes" for the lowest rank of each machine, "all", or ranks:
 * "0:4-7". timeout: seconds for an answer. */
int ofs_job_join(struct ofs_job *job, const struct ofs_job_options *o,
    const char *workers, unsigned timeout, ofs_job_say_fn *say,
    struct optimfs_error *err);
/* Offer path; fails on all ranks alike, of which one should print it. */
int ofs_job_offer(struct ofs_job *job, const struct ofs_job_options *o,
    const char *path, const struct optimfs_options *open,
    struct optimfs_error *err);
/* Print what all ranks know, once; the status for it. */
int ofs_job_fail(const struct ofs_job *job, const struct optimfs_error *err);
/* Is it this process that prints, of several ranks? */
bool ofs_job_is_first(const struct ofs_job *job);
/* Rank 0: print how much each rank did of a task that they shared (cluster/task.h). */
void ofs_job_tell(const struct ofs_job *job);
bool ofs_job_works(const struct ofs_job *job);
/* Serve the others until no worker is left, and leave. */
void ofs_job_leave(struct ofs_job *job);

#endif
