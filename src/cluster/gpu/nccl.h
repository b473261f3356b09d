/* nccl.h - declarations shared by the files of the NCCL module */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_NCCL_H
#define OFS_CLUSTER_GPU_NCCL_H

#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "cluster/gpu/module.h"

/* One thread makes all calls of CUDA and NCCL: a state machine that polls while
 * anything is in progress. Some transfers and one layout are in progress, transfers
 * on one stream and the layout on another. */
struct nccl_engine {
	cudaStream_t stream;
	cudaEvent_t event;
	cudaEvent_t uploaded; /* of a transfer: what is sent is on the GPU */
	struct ofs_gpu_work *work;
	bool running; /* a transfer: NCCL has put it on the stream */
	int64_t deadline; /* ms; INT64_MAX: none */
};

/* NCCL works on one after the other, but the host does not have to see the end of
 * one before it starts the next. */
enum { NCCL_FLIGHTS = 4 };

/* Operations other than transfers, for which the caller waits. */
enum nccl_order { ORDER_NONE, ORDER_OPEN, ORDER_CONNECT, ORDER_CLOSE };

/* ncclCommAbort waits for the work of NCCL on the GPU, which may wait for a
 * lost peer without end. So it is called in a separate thread. */
struct nccl_abort {
	ncclComm_t comm;
	int device;
};

/* What only some versions of NCCL have; NULL: this one has not. */
struct nccl_extra {
	ncclResult_t (*alloc)(void **p, size_t size);
	ncclResult_t (*free)(void *p);
	ncclResult_t (*add)(const ncclComm_t comm, void *p, size_t size,
	    void **handle);
};

struct ofs_gpu {
	struct ofs_gpu_config config;
	struct nccl_extra extra;
	int device;
	pthread_t thread;

	/* Used by the thread only. */
	uint8_t *blocks, *out[OFS_GPU_WINDOWS];
	uint8_t *sending; /* a block for each stage */
	bool by_nccl;     /* NCCL has allocated blocks and sending */
	struct ofs_gpu_run *runs,
	    *pinned_runs; /* OFS_GPU_RUNS; on the GPU and in memory */
	/* Transfers in progress, in the order of their numbers, of which the last
	 * may not be on the stream yet: [flight, flight + nflights). All have
	 * the same stream. */
	struct nccl_engine transfer[NCCL_FLIGHTS];
	uint64_t flight;
	unsigned nflights;
	struct nccl_engine layout;
	cudaStream_t upload; /* during transfers */
	ncclComm_t comm;
	bool aborting; /* by abort */
	pthread_t abort;
	bool stuck; /* NCCL or the kernel may still use the memory, so it is
		     * not freed */
	uint64_t first, sequence; /* first and next number of the connection */
	int *rank, nranks;        /* by number in NCCL */
	/* ms: since when a sequence number is missing */
	int64_t waiting_since;
	_Atomic int64_t alive; /* ms: last sign of life; for any thread */

	/* Constant once open. */
	void *stage[OFS_GPU_STAGES], *window[OFS_GPU_WINDOWS];

	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t wake, ordered;
	struct ofs_gpu_work *queue; /* for transfers, and to be laid out */
	bool connected, failed;
	uint64_t below; /* connections with a lower first number are over */
	bool news;      /* something was submitted */
	struct optimfs_error why; /* why it is not connected or has failed */
	enum nccl_order order;
	char *name;                            /* of the device, to set */
	struct ofs_gpu_connection *connection; /* to make */
	int order_ret;
	struct optimfs_error *order_err;
};

/* Everything below is called by the thread only, without the lock. */

/* nccl_memory.c: CUDA's part. */
int nccl_device_open(struct ofs_gpu *g, char device[64],
    struct optimfs_error *err);
void nccl_device_close(struct ofs_gpu *g);
/* The size of the blocks in bytes. */
static inline uint64_t nccl_blocks_size(const struct ofs_gpu *g)
{
	return g->config.blocks * OFS_GPU_BLOCK;
}
#define NCCL_SENDING_SIZE (OFS_GPU_STAGES * OFS_GPU_BLOCK)
/* Has the stream reached the event? 1: yes; 0: not yet. */
int nccl_reached(cudaEvent_t event, struct optimfs_error *err,
    const char *what);
/* err from what CUDA says; -1. */
int nccl_cuda_fail(struct optimfs_error *err, cudaError_t e, const char *what);

/* nccl_comm.c: NCCL's part. */
int nccl_comm_connect(struct ofs_gpu *g, const struct ofs_gpu_connection *c,
    struct optimfs_error *err);
/* Starts the abort of the connection. */
void nccl_comm_abort(struct ofs_gpu *g);
/* Waits for the abort, for the time limit of a transfer; then g is stuck. */
void nccl_comm_aborted(struct ofs_gpu *g);
/* A transfer in progress, the first (0) or a later one. */
static inline struct nccl_engine *nccl_flight(struct ofs_gpu *g, unsigned i)
{
	return &g->transfer[(g->flight + i) % NCCL_FLIGHTS];
}
/* Can another one be started? */
static inline bool nccl_comm_ready(struct ofs_gpu *g)
{
	return g->nflights == 0 ||
	    (g->nflights < NCCL_FLIGHTS &&
		nccl_flight(g, g->nflights - 1)->running);
}
/* Starts the transfers of work, which is in progress even if that fails. */
int nccl_comm_start(struct ofs_gpu *g, struct ofs_gpu_work *work,
    struct optimfs_error *err);
/* Polls the transfers: 1: the first is done; 0: it is in progress. */
int nccl_comm_poll(struct ofs_gpu *g, struct optimfs_error *err);

/* nccl_layout.c: the kernel's part. */
int nccl_layout_start(struct ofs_gpu *g, struct ofs_gpu_work *work,
    struct optimfs_error *err);
int nccl_layout_poll(struct ofs_gpu *g, struct optimfs_error *err);

/* Is the connection over that is made? Also a sign of life, and a pause. */
bool nccl_is_over(struct ofs_gpu *g, struct optimfs_error *err);

/* The deadline of an operation that starts now. */
int64_t nccl_deadline(const struct ofs_gpu *g);

#endif
