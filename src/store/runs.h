/* runs.h - equal runs of bytes copied from one pitch to another */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_RUNS_H
#define OFS_STORE_RUNS_H

#include <stdint.h>

/* Copy n runs of len bytes: run i from src + i * src_pitch to dst + i *
 * dst_pitch. Source and destination must not overlap. */
void ofs_copy_runs(uint8_t *dst, int64_t dst_pitch, const uint8_t *src,
    int64_t src_pitch, uint64_t len, uint64_t n);

#endif
