/* world.h - the ranks of a job, and what they share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GROUP_H
#define OFS_CLUSTER_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "cluster/module.h"

struct ofs_bulk;
struct ofs_task;
struct ofs_renewal;
struct ofs_manifest;

#define OFS_MAX_SHARES 16

struct optimfs_group {
	const struct ofs_group_ops *ops;
	struct ofs_group *w; /* the module's */
	int rank, size;
	unsigned timeout;
	struct ofs_bulk *bulk; /* through GPUs; NULL: not */
	struct ofs_task *crew; /* a task that all share: task.h */
	pthread_mutex_t lock;  /* guards what follows */
	pthread_cond_t changed;
	/* In the order in which they were offered, which is the same on all
	 * ranks: the newest of each, with those that were before behind it. */
	struct ofs_manifest *share[OFS_MAX_SHARES];
	struct ofs_renewal *renewal[OFS_MAX_SHARES]; /* of those written */
	uint32_t nshares;
	bool *done; /* rank i asks no more */
};

/* The symbol of optimfs-NAME.so, which stays loaded: libraries of MPI and CUDA
 * do not bear to go. flags of dlopen. NULL: why says why. */
void *ofs_group_load(const char *name, const char *symbol, int flags,
    char why[256]);
/* optimfs_group_join, with a module that has been loaded. */
struct optimfs_group *ofs_group_new(const struct ofs_group_ops *ops,
    unsigned timeout, struct optimfs_error *err);
/* What was offered as path; ENOENT. */
struct ofs_manifest *ofs_group_share(struct optimfs_group *w, const char *path,
    struct optimfs_error *err);
/* By which it follows commits; NULL: it is not written. */
struct ofs_renewal *ofs_group_renewal(struct optimfs_group *w,
    const char *path);
/* The number of a share is its place among those offered, and how often that
 * was committed since: requests about what is no more so find nothing. */
#define OFS_MANIFEST_PLACE(number) ((number)&0xff)
#define OFS_MANIFEST_COMMIT        0x100
/* Put another generation in front of what has its place; take one away again,
 * which goes when nobody is answered about it any more. */
void ofs_group_put(struct optimfs_group *w, struct ofs_manifest *s);
void ofs_group_drop(struct optimfs_group *w, struct ofs_manifest *s);
/* One question, and its answer of want bytes in out. What fails is said with
 * the rank's name. */
int ofs_group_ask(const struct optimfs_group *w, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err);
/* Each rank says how it fares, code 0 for well: fails on all alike, with what
 * the first says that is not, and who that is when blame. All ranks call it. */
int ofs_group_vote(struct optimfs_group *w, const struct optimfs_error *own,
    bool blame, struct optimfs_error *err);
/* Put "rank 2 (host)" before the text of what that rank answered; -1. */
int ofs_group_blame(const struct optimfs_group *w, int rank,
    struct optimfs_error *err);

#endif
