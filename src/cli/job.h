/* job.h - commands that run on several ranks under mpirun */
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
	OFS_TRANSPORT_AUTO,  /* mpi, if started by mpirun */
	OFS_TRANSPORT_LOCAL, /* single process */
	OFS_TRANSPORT_MPI,
};

/* Option rows for a struct that contains a struct ofs_job_options at offset
 * base. */
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

/* group is NULL for a single process, which is a worker. */
struct ofs_job {
	struct optimfs_group *group;
	bool *worker; /* for each rank: does it read, or only serve? */
};

/* Receives messages for the user: see optimfs_gather. */
typedef void ofs_job_say_fn(void *ctx, const char *text);

/* Should this process be one of several ranks? */
bool ofs_job_wanted(const struct ofs_job_options *o);
/* Joins the other ranks, and sets up gathering as in o. workers: NULL for rank
 * 0 only, "nodes" for the lowest rank of each machine, "all", or a list of
 * ranks such as "0:4-7". timeout: seconds to wait for an answer. */
int ofs_job_join(struct ofs_job *job, const struct ofs_job_options *o,
    const char *workers, unsigned timeout, ofs_job_say_fn *say,
    struct optimfs_error *err);
/* Says so, if the launcher has bound rank 0 to one of several CPUs, and what helps:
 * also is a further way, behind a comma, or "". */
void ofs_job_say_bound(const struct ofs_job *job, const char *also,
    ofs_job_say_fn *say);
/* Offers path to the group. Fails on all ranks alike; one should print the
 * error. */
int ofs_job_offer(struct ofs_job *job, const struct ofs_job_options *o,
    const char *path, const struct optimfs_options *open,
    struct optimfs_error *err);
/* Prints an error known to all ranks once; returns the exit status. */
int ofs_job_fail(const struct ofs_job *job, const struct optimfs_error *err);
/* Is this the rank that prints? */
bool ofs_job_is_first(const struct ofs_job *job);
bool ofs_job_works(const struct ofs_job *job);
/* Serves the others until no worker is left, then leaves. */
void ofs_job_leave(struct ofs_job *job);

#endif
