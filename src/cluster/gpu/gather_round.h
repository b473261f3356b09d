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

#endif
