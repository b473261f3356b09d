/* runs.c - equal runs of bytes copied from one pitch to another */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/runs.h"

#include <string.h>

/* One element at a time: the compiler turns a memcpy of constant size into one
 * load and one store, the best for single elements of a transposed tensor. */
#define COPY_RUNS(size)                                            \
 static void copy_##size(uint8_t *restrict dst, int64_t dst_pitch, \
     const uint8_t *restrict src, int64_t src_pitch, uint64_t n)   \
 {                                                                 \
  for (uint64_t i = 0; i < n; i++) {                               \
   memcpy(dst, src, size);                                         \
   dst += dst_pitch;                                               \
   src += src_pitch;                                               \
  }                                                                \
 }
COPY_RUNS(1)
COPY_RUNS(2)
COPY_RUNS(4)
COPY_RUNS(8)
COPY_RUNS(16)
COPY_RUNS(32)
COPY_RUNS(64)

void ofs_copy_runs(uint8_t *dst, int64_t dst_pitch, const uint8_t *src,
    int64_t src_pitch, uint64_t len, uint64_t n)
{
	if (dst_pitch == (int64_t)len && src_pitch == (int64_t)len) {
		memcpy(dst, src, len * n);
		return;
	}
	switch (len) {
	case 1:
		copy_1(dst, dst_pitch, src, src_pitch, n);
		return;
	case 2:
		copy_2(dst, dst_pitch, src, src_pitch, n);
		return;
	case 4:
		copy_4(dst, dst_pitch, src, src_pitch, n);
		return;
	case 8:
		copy_8(dst, dst_pitch, src, src_pitch, n);
		return;
	case 16:
		copy_16(dst, dst_pitch, src, src_pitch, n);
		return;
	case 32:
		copy_32(dst, dst_pitch, src, src_pitch, n);
		return;
	case 64:
		copy_64(dst, dst_pitch, src, src_pitch, n);
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		memcpy(dst + (int64_t)i * dst_pitch,
		    src + (int64_t)i * src_pitch, len);
}
