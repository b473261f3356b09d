/* nccl_memory.c - a GPU, its memory, and pinned memory */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/gpu/nccl.h"
#include "cluster/gpu/near.h"

int nccl_cuda_fail(struct optimfs_error *err, cudaError_t e, const char *what)
{
	cudaGetLastError(); /* clears the error */
	return optimfs_fail(err, e == cudaErrorMemoryAllocation ? ENOMEM : EIO,
	    "OFS902 the GPU: %s: %s", what, cudaGetErrorString(e));
}

int nccl_reached(cudaEvent_t event, struct optimfs_error *err, const char *what)
{
	cudaError_t e = cudaEventQuery(event);

	if (e == cudaSuccess)
		return 1;
	if (e != cudaErrorNotReady)
		return nccl_cuda_fail(err, e, what);
	cudaGetLastError(); /* clears the error */
	return 0;
}

/* NCCL takes ranks with different NCCL_HOSTID for those of different machines, which
 * may have the same GPU; with NCCL_MULTI_RANK_GPU_ENABLE=1 it allows that on one
 * machine. Then these ranks do not share a device. */
static void tell_apart(const struct ofs_gpu *g, char device[64])
{
	const char *host = getenv("NCCL_HOSTID"),
		   *many = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
	size_t n = strlen(device);

	if (many != NULL && strcmp(many, "1") == 0)
		snprintf(device + n, 64 - n, " rank %u", g->config.local);
	else if (host != NULL)
		snprintf(device + n, 64 - n, " host %.36s", host);
}

static int pick(struct ofs_gpu *g, char device[64], struct optimfs_error *err)
{
	cudaError_t e;
	int n = 0;

	e = cudaGetDeviceCount(&n);
	if (e != cudaSuccess) {
		cudaGetLastError();
		return optimfs_fail(err, ENODEV, "OFS903 no usable GPU: %s",
		    cudaGetErrorString(e));
	}
	if (n <= 0)
		return optimfs_fail(err, ENODEV,
		    "OFS903 no usable GPU: there is none");
	/* a launcher may show each rank only its own GPU */
	g->device = (int)(g->config.local % (unsigned)n);
	e = cudaSetDevice(g->device);
	if (e == cudaSuccess)
		e = cudaDeviceGetPCIBusId(device, 64, g->device);
	if (e == cudaSuccess) {
		(void)ofs_near_device("/sys", device);
		tell_apart(g, device);
		return 0;
	}
	cudaGetLastError();
	return optimfs_fail(err, ENODEV, "OFS903 no usable GPU: GPU %d: %s",
	    g->device, cudaGetErrorString(e));
}

static cudaError_t make_event(cudaEvent_t *e)
{
	return cudaEventCreateWithFlags(e, cudaEventDisableTiming);
}

static cudaError_t make_engine(struct nccl_engine *e)
{
	cudaError_t ret =
	    cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking);

	if (ret != cudaSuccess)
		return ret;
	return make_event(&e->event);
}

static cudaError_t make_transfers(struct ofs_gpu *g)
{
	cudaError_t e = make_engine(&g->transfer[0]);

	for (unsigned i = 1; i < NCCL_FLIGHTS && e == cudaSuccess; i++) {
		g->transfer[i].stream = g->transfer[0].stream;
		e = make_event(&g->transfer[i].event);
	}
	for (unsigned i = 0; i < NCCL_FLIGHTS && e == cudaSuccess; i++)
		e = make_event(&g->transfer[i].uploaded);
	return e == cudaSuccess
	    ? cudaStreamCreateWithFlags(&g->upload, cudaStreamNonBlocking)
	    : e;
}

/* Since version 2.19. */
static void find_extra(struct nccl_extra *x)
{
	*(void **)&x->alloc = dlsym(RTLD_DEFAULT, "ncclMemAlloc");
	*(void **)&x->free = dlsym(RTLD_DEFAULT, "ncclMemFree");
	*(void **)&x->add = dlsym(RTLD_DEFAULT, "ncclCommRegister");
}

static void free_sent(struct ofs_gpu *g)
{
	if (g->by_nccl) {
		g->extra.free(g->blocks);
		if (g->sending != NULL)
			g->extra.free(g->sending);
	} else {
		cudaFree(g->blocks);
		cudaFree(g->sending);
	}
	g->blocks = g->sending = NULL;
	g->by_nccl = false;
}

/* Memory that NCCL receives into, and sends from. What it allocates itself, GPUs of
 * one machine can read from each other directly. */
static cudaError_t allocate_sent(struct ofs_gpu *g)
{
	const struct nccl_extra *x = &g->extra;
	uint64_t size = nccl_blocks_size(g);
	cudaError_t e;

	if (x->alloc != NULL && x->free != NULL) {
		g->by_nccl = x->alloc((void **)&g->blocks, size) == ncclSuccess;
		if (g->by_nccl &&
		    x->alloc((void **)&g->sending, NCCL_SENDING_SIZE) ==
			ncclSuccess)
			return cudaSuccess;
		cudaGetLastError(); /* clears the error */
		g->sending = NULL;
		if (!g->by_nccl)
			g->blocks = NULL;
		free_sent(g);
	}
	e = cudaMalloc((void **)&g->blocks, size);
	return e == cudaSuccess
	    ? cudaMalloc((void **)&g->sending, NCCL_SENDING_SIZE)
	    : e;
}

static int allocate(struct ofs_gpu *g, struct optimfs_error *err)
{
	uint64_t size = nccl_blocks_size(g);
	char what[64];
	cudaError_t e;

	snprintf(what, sizeof(what), "%" PRIu64 " MiB of its memory",
	    (size + OFS_GPU_WINDOWS * OFS_GPU_WINDOW + NCCL_SENDING_SIZE) >>
		20);
	e = allocate_sent(g);
	for (int i = 0; i < OFS_GPU_WINDOWS && e == cudaSuccess; i++)
		e = cudaMalloc((void **)&g->out[i], OFS_GPU_WINDOW);
	if (e == cudaSuccess)
		e = cudaMalloc((void **)&g->runs,
		    OFS_GPU_RUNS * sizeof(*g->runs));
	if (e != cudaSuccess)
		return nccl_cuda_fail(err, e, what);
	e = cudaHostAlloc((void **)&g->pinned_runs,
	    OFS_GPU_RUNS * sizeof(*g->runs), cudaHostAllocDefault);
	for (int i = 0; i < OFS_GPU_WINDOWS && e == cudaSuccess; i++)
		e = cudaHostAlloc(&g->window[i], OFS_GPU_WINDOW,
		    cudaHostAllocDefault);
	for (int i = 0; i < OFS_GPU_STAGES && e == cudaSuccess; i++)
		e = cudaHostAlloc(&g->stage[i], OFS_GPU_BLOCK,
		    cudaHostAllocDefault);
	if (e != cudaSuccess)
		return nccl_cuda_fail(err, e, "pinned memory");
	return 0;
}

/* A kernel is loaded when first launched: done now, when nothing else is in
 * progress that loading might wait for. */
static int load_kernel(struct ofs_gpu *g, struct optimfs_error *err)
{
	struct ofs_gpu_run one = { .len = 1, .n = 1 };
	struct ofs_gpu_work work = { .run = &one, .nruns = 1, .nout = 1 };
	cudaError_t e;

	if (nccl_layout_start(g, &work, err) == -1)
		return -1;
	e = cudaStreamSynchronize(g->layout.stream);
	return e == cudaSuccess ? 0 : nccl_cuda_fail(err, e, "its kernel");
}

int nccl_device_open(struct ofs_gpu *g, char device[64],
    struct optimfs_error *err)
{
	cudaError_t e;

	find_extra(&g->extra);
	if (pick(g, device, err) == -1)
		return -1;
	e = make_transfers(g);
	if (e == cudaSuccess)
		e = make_engine(&g->layout);
	if (e != cudaSuccess)
		return nccl_cuda_fail(err, e, "streams");
	if (allocate(g, err) == -1)
		return -1;
	return load_kernel(g, err);
}

static void free_engine(struct nccl_engine *e)
{
	if (e->event != NULL)
		cudaEventDestroy(e->event);
	if (e->uploaded != NULL)
		cudaEventDestroy(e->uploaded);
	if (e->stream != NULL)
		cudaStreamDestroy(e->stream);
}

void nccl_device_close(struct ofs_gpu *g)
{
	for (int i = 0; i < OFS_GPU_STAGES; i++)
		cudaFreeHost(g->stage[i]);
	for (int i = 0; i < OFS_GPU_WINDOWS; i++) {
		cudaFreeHost(g->window[i]);
		cudaFree(g->out[i]);
	}
	cudaFreeHost(g->pinned_runs);
	cudaFree(g->runs);
	free_sent(g);
	free_engine(&g->layout);
	for (unsigned i = NCCL_FLIGHTS - 1; i > 0; i--) {
		g->transfer[i].stream = NULL; /* that of the first */
		free_engine(&g->transfer[i]);
	}
	free_engine(&g->transfer[0]);
	if (g->upload != NULL)
		cudaStreamDestroy(g->upload);
}
