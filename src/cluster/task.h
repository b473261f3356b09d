/* task.h - a task that all ranks of a job share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_TASK_H
#define OFS_CLUSTER_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/group.h"
#include "cluster/manifest.h"

/* Every rank makes the same list of jobs, and comes to the same answer to who
 * does which (ofs_task_assign). Each does its own. What rank 0 must know of
 * that comes to it as reports. At the end all come to a barrier: either every
 * rank did well, or all fail alike. One task at a time in a group; all its
 * ranks take part.
 *
 * A rank that fails says so at once, and those who work look now and then
 * whether one has, or is lost (ofs_task_check): so a task that cannot succeed
 * ends soon on all. */

/* A job, and who may do it: nmay ranks, of which one gets it. */
struct ofs_task_job {
	uint64_t size;
	const struct ofs_owner *may;
	uint32_t nmay;
	int rank; /* the answer; rank 0 where nobody may */
};
/* The largest first, each to the one that has least so far: none of nranks has
 * more than the largest job above what it could have. ENOMEM. */
int ofs_task_assign(struct ofs_task_job *job, size_t n, int nranks,
    struct optimfs_error *err);
/* The same for one job at a time, in the order in which they come. load: bytes
 * that each rank has, which grows. */
int ofs_task_assign_next(uint64_t *load, const struct ofs_owner *may,
    uint32_t nmay, uint64_t size);

/* A report of rank from, on any thread, one at a time. What fails is the failure
 * of who sent it. */
typedef int ofs_task_take_fn(void *ctx, int from, struct ofs_cursor *c,
    struct optimfs_error *err);

/* Begin: rank 0 takes reports from now on. own: how this rank fared until here;
 * fails on all alike. */
int ofs_task_begin(struct optimfs_group *w, ofs_task_take_fn *take, void *ctx,
    const struct optimfs_error *own, struct optimfs_error *err);
/* No more reports are taken. */
void ofs_task_end(struct optimfs_group *w);

/* What rank 0 says, to all: got is the caller's. */
int ofs_task_broadcast(struct optimfs_group *w, const struct ofs_buf *mine,
    struct ofs_buf *got, struct optimfs_error *err);
/* What each rank says, yes or no: all has room for all ranks. */
int ofs_task_who(struct optimfs_group *w, bool mine, bool *all,
    struct optimfs_error *err);

/* Hand rank 0 a report; by rank 0 itself, too. */
int ofs_task_report(struct optimfs_group *w, const struct ofs_buf *note,
    struct optimfs_error *err);
/* Wait until every rank is here; own: how it fared. tick, which may be NULL, is
 * called now and then meanwhile. 0 when all did well, else -1 on all, with the
 * error of the lowest rank that failed by itself. */
int ofs_task_barrier(struct optimfs_group *w, const struct optimfs_error *own,
    void (*tick)(void *ctx), void *ctx, struct optimfs_error *err);

/* The same without tick. */
int ofs_task_agree(struct optimfs_group *w, const struct optimfs_error *own,
    struct optimfs_error *err);
/* This rank has done a job. */
void ofs_task_did(struct optimfs_group *w, uint64_t bytes);
/* -1: there is no point in going on. EHOSTDOWN (OFS911) or ETIMEDOUT (OFS912)
 * where a rank is gone, ECANCELED where only rank 0 knows what has failed. To
 * be asked a few times a second. */
int ofs_task_check(struct optimfs_group *w, struct optimfs_error *err);

/* Which ranks see the directory *dir of rank 0, where it makes a file for that,
 * and removes it? The others get its name, malloc'ed; sees has room for all. */
int ofs_task_sees(struct optimfs_group *w, char **dir, bool *sees,
    struct optimfs_error *err);
/* Assign *n jobs, of those sizes, to the ranks that may do them, as rank 0 has
 * all that: *who, malloc'ed, and *n are the same on all. */
int ofs_task_assign_all(struct optimfs_group *w, const uint64_t *size,
    const bool *may, int **who, size_t *n, struct optimfs_error *err);

/* For group.c: a group's task, and what other ranks say to it. */
struct ofs_task;
struct ofs_task *ofs_task_new(int size);
void ofs_task_free(struct ofs_task *task);
ofs_handler_fn ofs_task_answer;

#endif
