/* bulk_impl.h - what the files of bulk.h share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_BULK_IMPL_H
#define OFS_CLUSTER_GPU_BULK_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/gpu/blocks.h"
#include "cluster/gpu/bulk.h"
#include "cluster/gpu/module.h"
#include "cluster/group.h"

/* Without gpu_cache=: what two windows, the most that is under way, need. */
enum { ROUND_BLOCKS = 8, MIN_BLOCKS = OFS_GPU_WINDOWS * ROUND_BLOCKS };

/* Pinned memory with bytes for another rank, until it is told to send them. */
struct stage {
	uint64_t token; /* 0: free */
	uint64_t len;
	int to;
	int64_t since; /* ms */
	bool going;    /* the module has it */
};

struct ofs_bulk {
	const struct ofs_gpu_ops *ops;
	struct ofs_gpu *gpu;
	struct optimfs_group *world;
	struct optimfs_gather how;
	struct ofs_blocks *blocks;
	atomic_bool off; /* it failed: all goes the other way */
	_Atomic uint64_t rounds, bytes, sent, refused;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t freed;
	bool window[OFS_GPU_WINDOWS]; /* in use */
	struct stage stage[OFS_GPU_STAGES];
	uint64_t token;
	/* Rank 0: the next turn of each rank. Turns are given out to all that
	 * take part in a transfer at once, so that all ranks do what they have
	 * in common in one order, and none waits for another in a circle. */
	uint64_t *turn;
};

/* It has failed: say so once, and never use it again. */
void ofs_bulk_lost(struct ofs_bulk *b, const struct optimfs_error *err);
/* The same for a failure that is not the module's, which is told. */
void ofs_bulk_hang_up(struct ofs_bulk *b, const struct optimfs_error *err);
/* Turns for the caller, from, and those who send to it. */
int ofs_bulk_draw(struct ofs_bulk *b, int from, const int *owner, uint32_t n,
    uint64_t *turns, struct optimfs_error *err);
/* The stage of a token that was made for rank to; it is going then. -1: there
 * is none. */
int ofs_bulk_take_stage(struct ofs_bulk *b, uint64_t token, int to,
    uint64_t *len);
void ofs_bulk_free_stage(struct ofs_bulk *b, uint32_t i);
/* Give back what will not be sent. */
void ofs_bulk_drop(struct ofs_bulk *b, uint64_t token, int to);

/* A GIVE with this turn only gives tokens back. */
#define OFS_NO_TURN UINT64_MAX

#endif
