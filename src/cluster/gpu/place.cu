/* place.cu - the kernel that lays out gathered runs */
/* SPDX-License-Identifier: Apache-2.0 */
#include <cuda_runtime.h>

#include "cluster/gpu/launch.h"
#include "cluster/gpu/place.h"

enum { THREADS = 256, MAX_BLOCKS = 4096 };
/* Units per thread: it searches its run once. */
enum { UNITS = 4 };

extern "C" __global__ void ofs_place_kernel(const struct ofs_gpu_run *run,
    uint64_t n, uint64_t total, const uint8_t *src, uint8_t *dst)
{
	ofs_place_thread(run, n, total,
	    (uint64_t)blockIdx.x * blockDim.x + threadIdx.x,
	    (uint64_t)gridDim.x * blockDim.x, src, dst);
}

extern "C" cudaError_t ofs_place_launch(const struct ofs_gpu_run *run, uint64_t n,
    uint64_t total, const void *src, void *dst, cudaStream_t stream)
{
	uint64_t blocks = (total + THREADS * UNITS - 1) / (THREADS * UNITS);
	void *args[] = { &run, &n, &total, &src, &dst };

	if (total == 0)
		return cudaSuccess;
	if (blocks > MAX_BLOCKS)
		blocks = MAX_BLOCKS;
	/* not <<<>>>, which reports errors through the last error of the
	 * thread: that may be an unrelated one, such as an event that is not
	 * ready */
	return cudaLaunchKernel((const void *)ofs_place_kernel,
	    dim3((unsigned)blocks), dim3(THREADS), args, 0, stream);
}
