/* gather_impl.h - declarations shared by the files of gather.h */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_IMPL_H
#define OFS_CLUSTER_GPU_GATHER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/gpu/blocks.h"
#include "cluster/gpu/gather.h"
#include "cluster/gpu/module.h"
#include "cluster/group.h"

/* Number of blocks without gpu_cache=: enough for two windows, the maximum in
 * progress. */
enum { ROUND_BLOCKS = 8, MIN_BLOCKS = OFS_GPU_WINDOWS * ROUND_BLOCKS };

/* Pinned memory with bytes for another rank, until it requests them. */
struct stage {
	uint64_t token; /* 0: free */
	uint64_t len;
	int to;
	int64_t since; /* ms */
	bool going;    /* the module owns it */
};

struct ofs_gpu_gather {
	const struct ofs_gpu_ops *ops;
	struct ofs_gpu *gpu;
	struct optimfs_group *group;
	char *name; /* "rank 2 (host)": the module works on when w is gone */
	struct optimfs_gather how;
	struct ofs_blocks *blocks;
	atomic_bool off;  /* it failed: everything uses the other transport */
	atomic_bool said; /* a failure was reported here */
	/* A call of the module does not return; its memory stays in use. */
	atomic_bool stuck;
	_Atomic uint64_t rounds, bytes, sent, refused;

	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t freed;
	bool window[OFS_GPU_WINDOWS]; /* in use */
	struct stage stage[OFS_GPU_STAGES];
	uint64_t token;
	/* Rank 0: the next sequence number of each rank. Numbers are drawn for
	 * all participants of a transfer at once, so that any two ranks do
	 * their common transfers in the same order and no ranks wait in a
	 * circle. */
	uint64_t *sequence;
};

/* Reports a failure once, here and to all ranks, and never uses the GPU again. All
 * abort at the same time: NCCL's abort on one rank may wait for that of another. */
void ofs_gpu_gather_lost(struct ofs_gpu_gather *b,
    const struct optimfs_error *err);
/* As above, for a failure outside the module, which is informed. */
void ofs_gpu_gather_hang_up(struct ofs_gpu_gather *b,
    const struct optimfs_error *err);
/* Draws sequence numbers for rank from and for those that send to it. */
int ofs_gpu_gather_draw(struct ofs_gpu_gather *b, int from, const int *owner,
    uint32_t n, uint64_t *sequence, struct optimfs_error *err);
/* Takes the stage of a token for rank to; -1: there is none. */
int ofs_gpu_gather_take_stage(struct ofs_gpu_gather *b, uint64_t token, int to,
    uint64_t *len);
void ofs_gpu_gather_free_stage(struct ofs_gpu_gather *b, uint32_t i);
/* Frees the stage of a token that will not be sent. */
void ofs_gpu_gather_drop(struct ofs_gpu_gather *b, uint64_t token, int to);

/* A SEND with this sequence number only returns tokens. */
#define OFS_NO_SEQUENCE UINT64_MAX

#endif
