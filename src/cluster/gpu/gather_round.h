/* gather_round.h - a window of a reader's buffer, filled through GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_ROUND_H
#define OFS_CLUSTER_GPU_GATHER_ROUND_H

#include "cluster/gpu/gather_impl.h"

/* A block of a file that is wanted. */
struct ofs_want {
	uint32_t file;
	uint64_t index;  /* of the block in the file */
	uint64_t lo, hi; /* of it, in the file */
	uint32_t block;  /* OFS_NO_BLOCK */
	bool hit;
	const struct ofs_owner *owner;
	uint64_t token;
};

/* Up to so many blocks, and what of them goes to the window. */
struct ofs_round {
	struct ofs_gpu_gather *b;
	const struct ofs_manifest *s;
	uint8_t *buf;
	uint64_t base; /* of the window in buf */
	struct ofs_want want[ROUND_BLOCKS];
	uint32_t nwants, nruns, cap;
	struct ofs_run *run; /* src: the want's number << 32, and the offset */
	uint64_t start, end, ncopied; /* of the window */
	uint32_t window;
	struct optimfs_error err;
	struct ofs_gpu_work work;
	struct ofs_gpu_receive receive[ROUND_BLOCKS];
	struct ofs_gpu_send send[ROUND_BLOCKS];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	bool left; /* the module has it for ever */
};

/* Bring what was added to the reader's buffer, and begin anew. */
int ofs_round_run(struct ofs_round *r);

/* What other ranks are asked; err of the round says what failed. */

/* Ask all owners at once that have not been asked; each reads what it is to
 * send. The tokens of those that did are set, whatever becomes of the others.
 * EBUSY: one has no memory free to send from, at the moment. */
int ofs_round_stage(struct ofs_round *r);
/* The other ranks of which something comes. */
uint32_t ofs_round_owners(const struct ofs_round *r, int *owner);
/* Our sequence number, and those of n owners. */
int ofs_round_draw(struct ofs_round *r, const int *owner, uint32_t n,
    uint64_t *sequence);
/* Tell each owner to send at its sequence number. NULL: not to send at all. */
int ofs_round_tell(struct ofs_round *r, const int *owner, uint32_t n,
    const uint64_t *sequence);
/* Give back what owners read for nothing. */
void ofs_round_drop(struct ofs_round *r);

#endif
