/* runs.c - equal runs of bytes copied from one pitch to another */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/runs.h"

#include <string.h>

/* One element at a time. Inlined with a constant size, the memcpy is one load and
 * one store, the best for single elements of a transposed tensor. */
static inline __attribute__((always_inline)) void copy(uint8_t *restrict dst,
    int64_t dst_pitch, const uint8_t *restrict src, int64_t src_pitch,
    size_t size, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		memcpy(dst, src, size);
		dst += dst_pitch;
		src += src_pitch;
	}
}

void ofs_copy_runs(uint8_t *dst, int64_t dst_pitch, const uint8_t *src,
    int64_t src_pitch, uint64_t len, uint64_t n)
{
	if (dst_pitch == (int64_t)len && src_pitch == (int64_t)len) {
		memcpy(dst, src, len * n);
		return;
	}
	switch (len) {
#define CASE(size)                               \
 case size:                                      \
  copy(dst, dst_pitch, src, src_pitch, size, n); \
  break;
		CASE(1)
		CASE(2)
		CASE(4)
		CASE(8)
		CASE(16)
		CASE(32)
		CASE(64)
#undef CASE
	default:
		copy(dst, dst_pitch, src, src_pitch, len, n);
	}
}
