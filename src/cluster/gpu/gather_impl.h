/* gather_impl.h - what the files of gather.h share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_IMPL_H
#define OFS_CLUSTER_GPU_GATHER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/gpu/blocks.h"
#include "cluster/gpu/gather.h"
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

struct ofs_gpu_gather {
	const struct ofs_gpu_ops *ops;
	struct ofs_gpu *gpu;
	struct optimfs_group *group;
	struct optimfs_gather how;
	struct ofs_blocks *blocks;
	atomic_bool off; /* it failed: all goes the other way */
	/* The module does not come back from a call: what it has is its own. */
	atomic_bool stuck;
	_Atomic uint64_t rounds, bytes, sent, refused;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t freed;
	bool window[OFS_GPU_WINDOWS]; /* in use */
	struct stage stage[OFS_GPU_STAGES];
	uint64_t token;
	/* Rank 0: the next sequence number of each rank. They are given out to
	 * all that take part in a transfer at once, so that all ranks do what
	 * they have in common in one order, and none waits for another in a
	 * circle. */
	uint64_t *sequence;
};

/* It has failed: say so once, and never use it again. */
void ofs_gpu_gather_lost(struct ofs_gpu_gather *b,
    const struct optimfs_error *err);
/* The same for a failure that is not the module's, which is told. */
void ofs_gpu_gather_hang_up(struct ofs_gpu_gather *b,
    const struct optimfs_error *err);
/* Sequence numbers for the caller, from, and those who send to it. */
int ofs_gpu_gather_draw(struct ofs_gpu_gather *b, int from, const int *owner,
    uint32_t n, uint64_t *sequence, struct optimfs_error *err);
/* The stage of a token that was made for rank to; it is going then. -1: there
 * is none. */
int ofs_gpu_gather_take_stage(struct ofs_gpu_gather *b, uint64_t token, int to,
    uint64_t *len);
void ofs_gpu_gather_free_stage(struct ofs_gpu_gather *b, uint32_t i);
/* Give back what will not be sent. */
void ofs_gpu_gather_drop(struct ofs_gpu_gather *b, uint64_t token, int to);

/* A SEND with this sequence number only gives tokens back. */
#define OFS_NO_SEQUENCE UINT64_MAX

#endif
