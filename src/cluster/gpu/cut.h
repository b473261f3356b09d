/* cut.h - intersect equal runs with a range */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_CUT_H
#define OFS_CLUSTER_GPU_CUT_H

#include <stdint.h>

/* The n runs from first on: len bytes of each from skip on. */
struct ofs_cut {
	uint64_t first, n, skip, len;
};

/* The end of a run, whole runs, the beginning of a run. */
#define OFS_MAX_CUTS 3

/* The parts of n runs of len bytes (run i at base + i * pitch) in [lo, hi).
 * pitch >= len unless n is 1; len > 0, n > 0. Returns the number of cuts. */
unsigned ofs_cut(uint64_t base, uint64_t pitch, uint64_t len, uint64_t n,
    uint64_t lo, uint64_t hi, struct ofs_cut cut[OFS_MAX_CUTS]);

#endif
