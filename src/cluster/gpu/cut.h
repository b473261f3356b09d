/* cut.h - what of a number of equal runs lies in a range */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_CUT_H
#define OFS_CLUSTER_GPU_CUT_H

#include <stdint.h>

/* Of n runs, those from first on: of each, len bytes from skip on. */
struct ofs_cut {
	uint64_t first, n, skip, len;
};

/* The end of one run, some whole ones, the beginning of one. */
#define OFS_MAX_CUTS 3

/* What of n runs of len bytes, run i at base + i * pitch, lies in [lo, hi).
 * pitch >= len, unless n is 1; len > 0, n > 0. How many cuts there are. */
unsigned ofs_cut(uint64_t base, uint64_t pitch, uint64_t len, uint64_t n,
    uint64_t lo, uint64_t hi, struct ofs_cut cut[OFS_MAX_CUTS]);

#endif
