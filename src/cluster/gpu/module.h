/* module.h - the interface of modules that move bytes between GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_MODULE_H
#define OFS_CLUSTER_GPU_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "cluster/gpu/place.h"

/* A module is a shared object, loaded at run time, that owns one GPU and its
 * connection to the GPUs of other ranks. It knows nothing of checkpoints, nor
 * of how ranks agree on transfers: see cluster/gpu/gather.h. It exports one
 * struct ofs_gpu_ops called optimfs_gpu_module. */
#define OFS_GPU_VERSION 5
#define OFS_GPU_SYMBOL  "optimfs_gpu_module"

/* GPU memory is an array of blocks for gathered bytes. */
#define OFS_GPU_BLOCK (UINT64_C(4) << 20)
/* The bytes laid out at once, into one of OFS_GPU_WINDOWS buffers. */
#define OFS_GPU_WINDOW (UINT64_C(16) << 20)
enum {
	OFS_GPU_WINDOWS = 2,
	OFS_GPU_RUNS = 32768, /* laid out at once */
	OFS_GPU_STAGES = 16,  /* pinned blocks for sending */
	OFS_GPU_ID = 128,     /* bytes of a connection's name */
};

struct ofs_gpu;

struct ofs_gpu_config {
	unsigned timeout; /* seconds for a transfer; 0: no limit */
	unsigned local;   /* index of the GPU on this machine */
	uint32_t blocks;
};

/* A connection of ranks. A lost one is replaced by another, perhaps of fewer
 * ranks. Transfers have numbers, which go on: those of a later connection begin
 * at a higher one, so a number tells which connection it belongs to. */
struct ofs_gpu_connection {
	const uint8_t *id; /* OFS_GPU_ID bytes */
	const int *rank;   /* the ranks that are connected */
	int n, own;        /* how many; the index of this one */
	uint64_t first;    /* number of the first transfer on each rank */
	struct optimfs_error err; /* of the module */
};

/* A unit of work. The module owns it from submit to done. */
struct ofs_gpu_work {
	/* Transfers happen on all ranks in an agreed order: the number of this
	 * one on this rank; every number occurs. With one of an earlier
	 * connection it fails. Unused without transfers. */
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
	/* After the transfers, these runs (at most OFS_GPU_RUNS) are laid out
	 * from the array of blocks to a window, of which nout bytes from at on
	 * are copied back. */
	struct ofs_gpu_run *run;
	uint32_t nruns, window;
	uint64_t at, nout;
	/* Called in the module's thread; err.code is 0 on success. ENOTCONN
	 * (OFS901): not over this connection. ENOMEM, EIO (OFS902): the GPU has
	 * failed. */
	void (*done)(struct ofs_gpu_work *work);
	void *ctx;
	struct optimfs_error err;
	struct ofs_gpu_work *next; /* of the module, like arrived */
	bool arrived;              /* its transfers are done */
};

struct ofs_gpu_ops {
	unsigned version;
	/* Opens a GPU and allocates its memory; device gets a name that is
	 * unique on the machine. ENODEV (OFS903); ENOMEM (OFS902). */
	struct ofs_gpu *(*open)(const struct ofs_gpu_config *config,
	    char device[64], struct optimfs_error *err);
	/* Creates a name for a connection, on one rank for all. */
	int (*name_it)(struct ofs_gpu *gpu, uint8_t id[OFS_GPU_ID],
	    struct optimfs_error *err);
	/* Connects ranks; all of them must call it. An earlier connection ends.
	 * ENOTCONN (OFS901), at the latest after the timeout; other errors: the
	 * GPU cannot be connected, and if it is silent, too, c must stay. One
	 * call at a time. */
	int (*connect)(struct ofs_gpu *gpu, struct ofs_gpu_connection *c,
	    struct optimfs_error *err);
	/* Memory for sending, OFS_GPU_BLOCK bytes; memory that gets the bytes
	 * of a window. */
	void *(*stage)(struct ofs_gpu *gpu, uint32_t i);
	const void *(*window)(struct ofs_gpu *gpu, uint32_t i);
	/* Thread-safe. */
	void (*submit)(struct ofs_gpu *gpu, struct ofs_gpu_work *work);
	/* The time in ms that the module's thread has been in one call of CUDA
	 * or NCCL. A call may never return: then the module keeps its work, and
	 * gpu is not closed. Thread-safe. */
	int64_t (*silent)(struct ofs_gpu *gpu);
	/* Gives up connections whose numbers begin below this one, also while
	 * they are made: their transfers fail from now on. Thread-safe. */
	void (*disconnect)(struct ofs_gpu *gpu, uint64_t below,
	    const char *why);
	/* Fails all remaining work, calling done. */
	void (*close)(struct ofs_gpu *gpu);
};

#endif
