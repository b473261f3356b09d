/* nccl_layout.c - lay out gathered bytes and copy them back */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/gpu/launch.h"
#include "cluster/gpu/nccl.h"

/* Nothing here may wait for the device, because a transfer may be in progress
 * whose peer is gone. Allocating or freeing memory, memory that is not pinned,
 * and the first launch of a kernel would wait, so these happen when the device
 * is opened. */

int nccl_layout_start(struct ofs_gpu *g, struct ofs_gpu_work *work,
    struct optimfs_error *err)
{
	uint64_t total = ofs_place_number(work->run, work->nruns);
	struct nccl_engine *l = &g->layout;
	uint8_t *out = g->out[work->window];
	cudaError_t e;

	memcpy(g->pinned_runs, work->run, work->nruns * sizeof(*work->run));
	e = cudaMemcpyAsync(g->runs, g->pinned_runs,
	    work->nruns * sizeof(*work->run), cudaMemcpyHostToDevice,
	    l->stream);
	if (e == cudaSuccess)
		e = ofs_place_launch(g->runs, work->nruns, total, g->blocks,
		    out, l->stream);
	if (e == cudaSuccess)
		e = cudaMemcpyAsync((uint8_t *)g->window[work->window] +
			work->at,
		    out + work->at, work->nout, cudaMemcpyDeviceToHost,
		    l->stream);
	if (e == cudaSuccess)
		e = cudaEventRecord(l->event, l->stream);
	if (e != cudaSuccess)
		return nccl_cuda_fail(err, e, "laying out");
	l->deadline = nccl_deadline(g);
	return 0;
}

int nccl_layout_poll(struct ofs_gpu *g, struct optimfs_error *err)
{
	int ret = nccl_reached(g->layout.event, err, "laying out");

	if (ret != 0 || ofs_clock_ms() <= g->layout.deadline)
		return ret;
	g->stuck = true; /* the kernel may still use the memory */
	return optimfs_fail(err, EIO,
	    "OFS902 the GPU: laying out took longer than a transfer may");
}
