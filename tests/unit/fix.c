/* plan/fix.c - byte order, conjugation, negation and rounding of elements */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/fix.h"

#include <string.h>

#include "base/dtype.h"
#include "tap.h"

struct row {
	const char *what;
	enum ofs_dtype dtype;
	unsigned fix;
	size_t len;
	uint8_t before[16], after[16];
};

static const struct row rows[] = {
	{ "OFS_FIX_SWAP reverses the bytes of each float32", OFS_FLOAT32,
	    OFS_FIX_SWAP, 8, { 1, 2, 3, 4, 5, 6, 7, 8 },
	    { 4, 3, 2, 1, 8, 7, 6, 5 } },
	{ "OFS_FIX_SWAP reverses each half of a complex64", OFS_COMPLEX64,
	    OFS_FIX_SWAP, 8, { 1, 2, 3, 4, 5, 6, 7, 8 },
	    { 4, 3, 2, 1, 8, 7, 6, 5 } },
	{ "OFS_FIX_SWAP leaves uint8 unchanged", OFS_UINT8, OFS_FIX_SWAP, 3,
	    { 1, 2, 3 }, { 1, 2, 3 } },
	{ "OFS_FIX_NEG of int16 carries into the high byte", OFS_INT16,
	    OFS_FIX_NEG, 6, { 0, 1, 1, 0, 0, 0 },
	    { 0, 0xff, 0xff, 0xff, 0, 0 } },
	{ "OFS_FIX_NEG of bfloat16 flips the sign bit", OFS_BFLOAT16,
	    OFS_FIX_NEG, 4, { 0x80, 0x3f, 0x80, 0xbf },
	    { 0x80, 0xbf, 0x80, 0x3f } },
	{ "OFS_FIX_NEG of complex64 negates both halves", OFS_COMPLEX64,
	    OFS_FIX_NEG, 8, { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 },
	    { 0, 0, 0x80, 0xbf, 0, 0, 0, 0xc0 } },
	{ "OFS_FIX_CONJ of complex64 negates the imaginary half", OFS_COMPLEX64,
	    OFS_FIX_CONJ, 8, { 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40 },
	    { 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0 } },
	{ "OFS_FIX_CONJ leaves float16 unchanged", OFS_FLOAT16, OFS_FIX_CONJ, 2,
	    { 0, 0x3c }, { 0, 0x3c } },
	{ "swap, conjugate and negate combine on big-endian complex32",
	    OFS_COMPLEX32, OFS_FIX_SWAP | OFS_FIX_CONJ | OFS_FIX_NEG, 4,
	    { 0x3c, 0, 0x40, 0 }, { 0, 0xbc, 0, 0x40 } },
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

/* Two runs of one element, four bytes apart. The bytes between them stay. */
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
	is_mem(got, want, sizeof(want),
	    "a segment with a pitch changes only the bytes of its runs");
	memcpy(got, want, sizeof(want));
	seg.dst = 5;
	seg.dst_pitch = -4;
	ofs_fix_segment(&seg, got);
	is_mem(got, "\x09\x01\x02\x09\x09\x03\x04\x09", 8,
	    "a segment with a negative pitch changes the same runs");
}

/* Adjacent stored elements are fetched as one run, others as one run each.
 * Big-endian elements are swapped before they are rounded. */
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

	is_u64(ofs_fix_widen(&seg, 100, &wide), 8,
	    "two adjacent float32 elements are 8 bytes to fetch");
	ok(wide.len == 8 && wide.n == 1 && wide.dst == 100,
	    "adjacent elements are fetched in one run");
	ofs_fix_round(&seg, stored, got);
	is_mem(got, want, sizeof(got),
	    "rounded elements are placed at the pitch of the destination");
	seg.src_pitch = 40;
	is_u64(ofs_fix_widen(&seg, 0, &wide), 8,
	    "two distant float32 elements are 8 bytes to fetch");
	ok(wide.len == 4 && wide.n == 2 && wide.src_pitch == 40 &&
		wide.dst_pitch == 4,
	    "distant elements are fetched in one run each");
}

int main(void)
{
	table();
	runs();
	widen();
	return done_testing();
}
