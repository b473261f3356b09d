/* fix.c - byte order, conjugate and negative bits of fetched elements */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/fix.h"

#include <stdbool.h>

#include "base/cursor.h"
#include "base/dtype.h"
#include "plan/cast.h"

static bool is_integer(enum ofs_dtype t)
{
	return (t >= OFS_INT64 && t <= OFS_UINT8) || t == OFS_QINT8 ||
	    t == OFS_QUINT8 || t == OFS_QINT32;
}

/* Negate a little-endian integer of n bytes: invert it and add one. */
static void negate_integer(uint8_t *p, size_t n)
{
	unsigned carry = 1;

	for (size_t i = 0; i < n; i++) {
		carry += (uint8_t)~p[i];
		p[i] = (uint8_t)carry;
		carry >>= 8;
	}
}

/* Negate the number of unit bytes at first and every step bytes after it. */
static void negate_run(uint8_t *p, uint64_t len, size_t first, size_t unit,
    size_t step, bool integer)
{
	for (uint64_t at = first; at + unit <= len; at += step)
		if (integer)
			negate_integer(p + at, unit);
		else
			p[at + unit - 1] ^= 0x80;
}

static void fix_run(uint8_t *p, uint64_t len, unsigned fix, enum ofs_dtype t)
{
	size_t unit = ofs_dtype_swap(t);

	if (fix & OFS_FIX_SWAP)
		ofs_swap_bytes(p, len, unit);
	if (fix & OFS_FIX_NEG)
		negate_run(p, len, 0, unit, unit, is_integer(t));
	if (fix & OFS_FIX_CONJ && ofs_dtype_is_complex(t))
		negate_run(p, len, unit, unit, 2 * unit, false);
}

void ofs_fix_segment(const struct ofs_segment *seg, void *buf)
{
	uint8_t *p = (uint8_t *)buf + seg->dst;

	for (uint64_t i = 0; i < seg->n; i++)
		fix_run(p + (int64_t)i * seg->dst_pitch, seg->len, seg->fix,
		    seg->dtype);
}

/* Rounding. */

uint64_t ofs_fix_widen(const struct ofs_segment *seg, uint64_t off,
    struct ofs_segment *wide)
{
	/* two-byte elements with a pitch of four are never merged into one
	 * run */
	uint64_t bytes = seg->n * OFS_ROUND_FROM;

	*wide = *seg;
	wide->dst = off;
	wide->len = OFS_ROUND_FROM;
	wide->dst_pitch = OFS_ROUND_FROM;
	if (seg->n == 1 || seg->src_pitch == OFS_ROUND_FROM) {
		wide->len = bytes;
		wide->n = 1;
		wide->src_pitch = wide->dst_pitch = 0;
	}
	return bytes;
}

void ofs_fix_round(const struct ofs_segment *seg, void *stored, void *buf)
{
	uint8_t *from = stored, *to = (uint8_t *)buf + seg->dst;
	/* convert as many at a time as are adjacent in buf */
	uint64_t n = seg->dst_pitch == (int64_t)seg->len ? seg->n : 1;

	if ((seg->fix & OFS_FIX_SWAP) != 0)
		ofs_swap_bytes(from, seg->n * OFS_ROUND_FROM, OFS_ROUND_FROM);
	for (uint64_t i = 0; i < seg->n; i += n)
		ofs_cast(OFS_FLOAT32, from + i * OFS_ROUND_FROM, seg->dtype,
		    to + (int64_t)i * seg->dst_pitch, n);
}
