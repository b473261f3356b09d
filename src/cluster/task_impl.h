/* task_impl.h - what task*.c have in common */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_TASK_IMPL_H
#define OFS_CLUSTER_TASK_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cluster/task.h"

/* What a rank says to rank 0, and rank 0 to all. */
enum ofs_task_say {
	OFS_TASK_REPORT, /* what the task makes of it */
	OFS_TASK_VOTE, /* meeting (4), jobs and bytes (8 each), code (4), text */
	OFS_TASK_VERDICT, /* meeting (4), code (4), text */
	OFS_TASK_ASK, /* has somebody failed? (1) An answer says that one lives */
};

struct ofs_task_vote {
	uint32_t meeting; /* of which this is */
	struct optimfs_work work;
	struct optimfs_error err; /* code 0: well */
};

struct ofs_task {
	_Atomic uint64_t files, bytes; /* that this rank did */
	pthread_mutex_t lock; /* guards what follows; take is called with it */
	pthread_cond_t changed;
	ofs_task_take_fn *take; /* NULL: no task */
	void *ctx;
	int size;
	uint32_t meeting;  /* the last that this rank came to */
	int64_t asked;     /* ms, when others were */
	bool failed, lost; /* somebody; the way to rank 0 */
	struct optimfs_error why;
	/* Rank 0's: what each said last. Others: the verdict, first. */
	struct ofs_task_vote *vote;
};

/* Somebody has failed; with the lock held. */
void ofs_task_failed(struct ofs_task *task, const struct optimfs_error *why);

#endif
