/* task.h - a task that ranks of a job share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_TASK_H
#define OFS_CLUSTER_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/group.h"
#include "cluster/manifest.h"

/* Every rank builds the same list of jobs and computes the same assignment
 * (ofs_task_assign). Each rank does its own jobs and reports results to rank 0.
 * A barrier ends the task: either every rank has succeeded, or all fail alike.
 * A group has one task at a time, with all ranks that have opened the checkpoint
 * together; here they are "all ranks". Others only answer requests.
 *
 * A rank that fails reports it at once, and working ranks check regularly
 * whether one has failed or is lost (ofs_task_check). So a task that cannot
 * succeed ends soon on all ranks. */

/* A job, and the nmay ranks that can do it. */
struct ofs_task_job {
	uint64_t size;
	const struct ofs_owner *may;
	uint32_t nmay;
	int rank; /* out: assigned rank; rank 0 if no rank can */
};
/* Assigns jobs, largest first, each to the least loaded rank. No rank exceeds
 * the optimum by more than the largest job. worker (NULL: each works) is by rank:
 * who does jobs for it. ENOMEM. */
int ofs_task_assign(struct ofs_task_job *job, size_t n, const int *worker,
    int nranks, struct optimfs_error *err);

/* By rank, malloc'ed: the rank that works for it. It is the rank itself, if that
 * works; else one on its machine; else rank 0. */
int *ofs_task_workers(const struct optimfs_group *w, struct optimfs_error *err);
/* How many threads this rank works with: ranks that work on one machine share its
 * processors. w NULL: a single process. */
unsigned ofs_task_threads(const struct optimfs_group *w);

/* Takes a report of rank from; in any thread, one at a time. An error is sent
 * to that rank. */
typedef int ofs_task_take_fn(void *ctx, int from, struct ofs_cursor *c,
    struct optimfs_error *err);

/* Begins a task: rank 0 accepts reports. own: status of this rank so far; fails
 * on all alike. */
int ofs_task_begin(struct optimfs_group *w, ofs_task_take_fn *take, void *ctx,
    const struct optimfs_error *own, struct optimfs_error *err);
/* Ends the task: reports are no longer accepted. */
void ofs_task_end(struct optimfs_group *w);

/* Sends the bytes of rank 0 to all; got is owned by the caller. ret is the result
 * of this rank so far; -1: because of *err, and all fail. */
int ofs_task_broadcast(struct optimfs_group *w, int ret,
    const struct ofs_buf *mine, struct ofs_buf *got, struct optimfs_error *err);
/* As above, exchanges one bool of each rank; all has room for all ranks. */
int ofs_task_who(struct optimfs_group *w, int ret, bool mine, bool *all,
    struct optimfs_error *err);

/* Sends a report to rank 0; works on rank 0 too. */
int ofs_task_report(struct optimfs_group *w, const struct ofs_buf *note,
    struct optimfs_error *err);
/* Waits for all ranks; own: status of this rank (NULL: success). tick (may be NULL) is
 * called regularly meanwhile. 0 if all succeeded, else -1 on all, with the error of the
 * lowest rank that failed by itself. */
int ofs_task_barrier(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *err);

/* As above without tick. ret is the result of this rank so far; -1: because of
 * *err. */
int ofs_task_agree(struct optimfs_group *w, int ret, struct optimfs_error *err);
/* Counts a finished job of this rank. */
void ofs_task_did(struct optimfs_group *w, uint64_t bytes);
/* After the last barrier: on rank 0 how->did gets what each rank did. */
void ofs_task_tell(struct optimfs_group *w, const struct optimfs_watch *how);
/* -1: the task cannot succeed. EHOSTDOWN (OFS911) or ETIMEDOUT (OFS912): a rank
 * is lost; ECANCELED: another rank has failed. To be called a few times a
 * second. */
int ofs_task_check(struct optimfs_group *w, struct optimfs_error *err);

/* Finds which ranks see the directory *dir of rank 0, by a file that rank 0
 * creates and removes there. Other ranks get its path, malloc'ed; sees has room
 * for all ranks. ret as above. */
int ofs_task_sees(struct optimfs_group *w, int ret, char **dir, bool *sees,
    struct optimfs_error *err);
/* Assigns *n jobs of these sizes to the ranks that can do them, with the data
 * of rank 0: *who (malloc'ed) and *n are the same on all ranks. */
int ofs_task_assign_all(struct optimfs_group *w, const uint64_t *size,
    const bool *may, int **who, size_t *n, struct optimfs_error *err);

/* For group.c: the task of a group, and the handler of TASK. */
struct ofs_task;
struct ofs_task *ofs_task_new(int size);
void ofs_task_free(struct ofs_task *task);
ofs_handler_fn ofs_task_answer;

#endif
