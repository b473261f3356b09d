/* launch.h - the kernel of place.cu, for callers in C */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_LAUNCH_H
#define OFS_CLUSTER_GPU_LAUNCH_H

#include <cuda_runtime.h>

#include "cluster/gpu/place.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lays out n runs of total units (ofs_place_number) from src to dst. All
 * pointers are GPU memory; src and dst are aligned to OFS_UNIT_MAX. */
cudaError_t ofs_place_launch(const struct ofs_gpu_run *run, uint64_t n,
    uint64_t total, const void *src, void *dst, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
