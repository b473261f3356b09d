/* fix.c - byte order, conjugate and negative bits */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fix.h"

#include <math.h>
#include <string.h>

#include "dtype.h"
#include "tap.h"

struct row {
	const char *what;
	enum ofs_dtype dtype;
	unsigned fix;
	size_t len;
	uint8_t before[16], after[16];
};

static const struct row rows[] = {
	{ "swap float32", OFS_FLOAT32, OFS_FIX_SWAP, 8,
	    { 1, 2, 3, 4, 5, 6, 7, 8 }, { 4, 3, 2, 1, 8, 7, 6, 5 } },
	{ "swap halves of complex64", OFS_COMPLEX64, OFS_FIX_SWAP, 8,
	    { 1, 2, 3, 4, 5, 6, 7, 8 }, { 4, 3, 2, 1, 8, 7, 6, 5 } },
	{ "bytes have no order", OFS_UINT8, OFS_FIX_SWAP, 3, { 1, 2, 3 },
	    { 1, 2, 3 } },
	{ "negative int16: carry", OFS_INT16, OFS_FIX_NEG, 6,
	    { 0, 1, 1, 0, 0, 0 }, { 0, 0xff, 0xff, 0xff, 0, 0 } },
	{ "negative bfloat16", OFS_BFLOAT16, OFS_FIX_NEG, 4,
	    { 0x80, 0x3f, 0x80, 0xbf }, { 0x80, 0xbf, 0x80, 0x3f } },
	{ "negative complex64: both halves", OFS_COMPLEX64, OFS_FIX_NEG, 8,
	    { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 },
	    { 0, 0, 0x80, 0xbf, 0, 0, 0, 0xc0 } },
	{ "conjugate complex64: the second half", OFS_COMPLEX64, OFS_FIX_CONJ,
	    8, { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 },
	    { 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0 } },
	{ "conjugate of a real number", OFS_FLOAT16, OFS_FIX_CONJ, 2,
	    { 0, 0x3c }, { 0, 0x3c } },
	{ "all of them on big-endian complex32", OFS_COMPLEX32,
	    OFS_FIX_SWAP | OFS_FIX_CONJ | OFS_FIX_NEG, 4, { 0x3c, 0, 0x40, 0 },
	    { 0, 0xbc, 0, 0x40 } },
};

static void table(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *r = &rows[i];
		struct ofs_segment seg = { .fix = (uint8_t)r->fix,
			.dtype = (uint8_t)r->dtype,
			.len = r->len,
			.n = 1 };
		uint8_t got[16];

		memcpy(got, r->before, sizeof(got));
		ofs_fix_segment(&seg, got);
		is_mem(got, r->after, sizeof(got), "%s", r->what);
	}
}

/* Two runs of one element, four bytes apart: what lies between stays. */
static void runs(void)
{
	uint8_t got[] = { 9, 1, 2, 9, 9, 3, 4, 9 };
	static const uint8_t want[] = { 9, 2, 1, 9, 9, 4, 3, 9 };
	struct ofs_segment seg = { .fix = OFS_FIX_SWAP,
		.dtype = OFS_INT16,
		.dst = 1,
		.len = 2,
		.n = 2,
		.dst_pitch = 4 };

	ofs_fix_segment(&seg, got);
	is_mem(got, want, sizeof(want), "only the runs");
	memcpy(got, want, sizeof(want));
	seg.dst = 5;
	seg.dst_pitch = -4;
	ofs_fix_segment(&seg, got);
	is_mem(got, "\x09\x01\x02\x09\x09\x03\x04\x09", 8, "backwards");
}

/* Against doubles: of all 16-bit numbers the nearest, of two the even one. */

static double half_value(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);

	return (h & 0x8000) != 0 ? -v : v;
}

static double bfloat_value(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Is got no further away from x than its neighbours, and even if as far? */
static bool is_nearest(double x, uint16_t got, double (*value)(uint16_t),
    uint16_t inf)
{
	uint16_t abs = got & 0x7fff, sign = got & 0x8000;
	double d = fabs(value(got) - x), lo, hi;

	if (abs > inf || signbit(x) != (sign != 0))
		return false;
	if (abs == inf) {
		/* half a step above the largest is infinite, and even */
		lo = fabs(value((uint16_t)(inf - 1)));
		hi = lo + (lo - fabs(value((uint16_t)(inf - 2)))) / 2;
		return fabs(x) >= hi;
	}
	lo = abs == 0 ? INFINITY : fabs(value((uint16_t)(got - 1)) - x);
	hi = abs + 1 == inf ? INFINITY : fabs(value((uint16_t)(got + 1)) - x);
	return d <= lo && d <= hi && ((d < lo && d < hi) || (got & 1) == 0);
}

static void rounding(void)
{
	size_t half = 0, bfloat = 0, n = 0;
	uint32_t bits = 1;

	for (uint32_t i = 0; i < 400000; i++) {
		float f;

		bits = bits * 1664525 + 1013904223;
		/* ties and their neighbours come often */
		if (i % 3 == 0)
			bits &= 0xfffff000;
		else if (i % 3 == 1)
			bits = (bits & 0xffff0000) | 0x8000;
		memcpy(&f, &bits, sizeof(f));
		if (isnan(f) || isinf(f))
			continue;
		n++;
		half += is_nearest(f, ofs_round_half(bits), half_value, 0x7c00);
		bfloat += is_nearest(f, ofs_round_bfloat16(bits), bfloat_value,
		    0x7f80);
	}
	is_u64(half, n, "the nearest float16");
	is_u64(bfloat, n, "the nearest bfloat16");
	is_u64(ofs_round_half(0x7f800000), 0x7c00, "infinity");
	is_u64(ofs_round_half(0xffc00001), 0xfe00, "NaN");
	is_u64(ofs_round_bfloat16(0xff800000), 0xff80, "minus infinity");
	is_u64(ofs_round_bfloat16(0x7f800001), 0x7fc0, "NaN stays one");
}

/* Elements one behind the other are one run of what is stored; others are not.
 * A big-endian writer's are turned around first. */
static void widen(void)
{
	struct ofs_segment seg = { .fix = OFS_FIX_ROUND | OFS_FIX_SWAP,
		.dtype = OFS_BFLOAT16,
		.len = 2,
		.n = 2,
		.src_pitch = 4,
		.dst = 1,
		.dst_pitch = 3 },
			   wide;
	uint8_t stored[8] = { 0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0 };
	uint8_t got[6] = { 0 }, want[6] = { 0, 0x80, 0x3f, 0, 0, 0xc0 };

	is_u64(ofs_fix_widen(&seg, 100, &wide), 8, "bytes to fetch");
	ok(wide.len == 8 && wide.n == 1 && wide.dst == 100, "in one run");
	ofs_fix_round(&seg, stored, got);
	is_mem(got, want, sizeof(got), "rounded to their places");
	seg.src_pitch = 40;
	is_u64(ofs_fix_widen(&seg, 0, &wide), 8, "as many apart");
	ok(wide.len == 4 && wide.n == 2 && wide.src_pitch == 40 &&
		wide.dst_pitch == 4,
	    "in two runs");
}

int main(void)
{
	table();
	runs();
	rounding();
	widen();
	return done_testing();
}
