/* module.h - what a module that moves bytes from GPU to GPU provides */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_MODULE_H
#define OFS_CLUSTER_GPU_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "cluster/gpu/place.h"

/* A module is a shared object, loaded at run time, that owns one GPU and its
 * connection to the GPUs of other ranks. It knows nothing of checkpoints, nor
 * of how ranks agree on what is sent: cluster/gpu/gather.h does. It exports one
 * struct ofs_gpu_ops called optimfs_gpu_module. */
#define OFS_GPU_VERSION 2
#define OFS_GPU_SYMBOL  "optimfs_gpu_module"

/* GPU memory is an array of blocks that gathered bytes arrive in. */
#define OFS_GPU_BLOCK (UINT64_C(4) << 20)
/* What is laid out at once, into one of so many buffers. */
#define OFS_GPU_WINDOW (UINT64_C(16) << 20)
enum {
	OFS_GPU_WINDOWS = 2,
	OFS_GPU_RUNS = 32768, /* that are laid out at once */
	OFS_GPU_STAGES = 16,  /* blocks of pinned memory, to send from */
	OFS_GPU_ID = 128,     /* bytes that name a connection */
};

struct ofs_gpu;

struct ofs_gpu_config {
	unsigned timeout; /* seconds for a transfer; 0: any time */
	unsigned local;   /* which of the machine's GPUs */
	uint32_t blocks;
};

/* One thing to do. It belongs to the module from submit to done. */
struct ofs_gpu_work {
	/* What is sent and received is done by all ranks in an order they
	 * agreed on: this is that number of this rank, and each number comes.
	 * Meaningless when there is nothing of both. */
	uint64_t sequence;
	struct ofs_gpu_receive {
		int from;
		uint32_t block;
		uint64_t at, len; /* within the block */
	} * receive;
	struct ofs_gpu_send {
		int to;
		uint32_t stage;
		uint64_t len;
	} * send;
	uint32_t nreceives, nsends;
	/* Then these, at most OFS_GPU_RUNS, are laid out, from the array of
	 * blocks to a window, of which nout bytes from at on come back. */
	struct ofs_run *run;
	uint32_t nruns, window;
	uint64_t at, nout;
	/* On the module's thread; err.code is 0 when all is well. Otherwise
	 * ENOTCONN (OFS901): not over this connection. ENOMEM, EIO (OFS902):
	 * the GPU itself fails. */
	void (*done)(struct ofs_gpu_work *work);
	void *ctx;
	struct optimfs_error err;
	struct ofs_gpu_work *next; /* the module's */
};

struct ofs_gpu_ops {
	unsigned version;
	const char *name;
	/* Get a GPU with its memory; device gets words that no other GPU of the
	 * machine has. ENODEV (OFS903); ENOMEM (OFS902). */
	struct ofs_gpu *(*open)(const struct ofs_gpu_config *config,
	    char device[64], struct optimfs_error *err);
	/* A name for the connection, by one rank for all. */
	int (*name_it)(struct ofs_gpu *gpu, uint8_t id[OFS_GPU_ID],
	    struct optimfs_error *err);
	/* Connect all ranks. ENOTCONN (OFS901), at the latest after the
	 * timeout. */
	int (*connect)(struct ofs_gpu *gpu, const uint8_t id[OFS_GPU_ID],
	    int rank, int size, struct optimfs_error *err);
	/* Memory that is sent from, OFS_GPU_BLOCK bytes; and that a window's
	 * bytes come back to. */
	void *(*stage)(struct ofs_gpu *gpu, uint32_t i);
	const void *(*window)(struct ofs_gpu *gpu, uint32_t i);
	/* Any thread. */
	void (*submit)(struct ofs_gpu *gpu, struct ofs_gpu_work *work);
	/* For how many ms the module's thread has been in one call of CUDA or
	 * NCCL. What has not come back may never: then work stays the module's,
	 * and gpu is not closed. Any thread. */
	int64_t (*silent)(struct ofs_gpu *gpu);
	/* Give the connection up: what receives or sends fails from now on. */
	void (*disconnect)(struct ofs_gpu *gpu, const char *why);
	/* All work that is left fails, with done called. */
	void (*close)(struct ofs_gpu *gpu);
};

#endif
