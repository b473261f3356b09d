/* gather_round.h - fill a window of a reader's buffer through GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_ROUND_H
#define OFS_CLUSTER_GPU_GATHER_ROUND_H

#include "cluster/gpu/gather_impl.h"

/* A requested block of a file. */
struct ofs_want {
	uint32_t file;
	uint64_t index;  /* index of the block in the file */
	uint64_t lo, hi; /* requested range in the file */
	uint32_t block;  /* OFS_NO_BLOCK */
	bool hit;
	const struct ofs_owner *owner;
	uint64_t token;
};

/* Up to ROUND_BLOCKS blocks, and the runs from them to the window. */
struct ofs_round {
	struct ofs_gpu_gather *b;
	const struct ofs_manifest *s;
	uint8_t *buf;
	uint64_t base; /* offset of the window in buf */
	struct ofs_want want[ROUND_BLOCKS];
	uint32_t nwants, nruns, cap;
	struct ofs_gpu_run *run; /* src: index of the want << 32 | offset */
	uint64_t start, end, ncopied; /* range of the window */
	uint32_t window;
	struct optimfs_error err;
	struct ofs_gpu_work work;
	struct ofs_gpu_receive receive[ROUND_BLOCKS];
	struct ofs_gpu_send send[ROUND_BLOCKS];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	bool left; /* never returned by the module */
};

/* Fetches the added runs to the reader's buffer, and resets the round. */
int ofs_round_run(struct ofs_round *r);

/* Requests to other ranks; errors go to err of the round. */

/* Sends requests to all owners that were not asked yet; each reads what it has
 * to send. Sets the tokens of those that succeed, even if others fail. EBUSY:
 * an owner has no free memory at the moment. */
int ofs_round_stage(struct ofs_round *r);
/* The other ranks that send something. */
uint32_t ofs_round_owners(const struct ofs_round *r, int *owner);
/* Draws the sequence numbers of this rank and of n owners. */
int ofs_round_draw(struct ofs_round *r, const int *owner, uint32_t n,
    uint64_t *sequence);
/* Tells each owner to send at its sequence number. NULL: not to send. */
int ofs_round_tell(struct ofs_round *r, const int *owner, uint32_t n,
    const uint64_t *sequence);
/* Releases what owners have read in vain. */
void ofs_round_drop(struct ofs_round *r);

#endif
