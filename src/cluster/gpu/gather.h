/* gather.h - gather bytes of other ranks through GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_H
#define OFS_CLUSTER_GPU_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "cluster/manifest.h"
#include "plan/plan.h"

/* Used in addition to the transport of the group, which carries its messages.
 * Thread-safe. */
struct ofs_gpu_gather;

/* The is_used and the fetch of ofs_gather_ops. */
bool ofs_gpu_gather_is_used(const struct optimfs_group *w);
bool ofs_gpu_gather_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf);
/* Answers STAGE, SEQUENCE and SEND. */
extern const struct ofs_group_service ofs_gpu_service;

/* Lines for .optimfs/stats. */
void ofs_gpu_gather_stats(const struct optimfs_group *w, struct ofs_buf *out);

#endif
