/* cast.c - floating elements rounded to a smaller or a larger type */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/cast.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/cursor.h"
#include "stats/number.h"

/* Elements are converted by way of float32 bits, SOME at a time, in simple
 * loops that the compiler can vectorise. */
#define SOME 256

/* v / 2^n to nearest, ties to even; n is 1 to 63. */
static uint64_t shift_even(uint64_t v, unsigned n)
{
	uint64_t half = UINT64_C(1) << (n - 1);

	return (v + half - 1 + (v >> n & 1)) >> n;
}

static uint32_t from_half(uint32_t h)
{
	uint32_t sign = (h & 0x8000) << 16, exp = h >> 10 & 31, man = h & 1023;

	if (exp == 31)
		return sign | 0x7f800000 | man << 13 |
		    (man == 0 ? 0 : 0x00400000);
	if (exp != 0)
		return sign | (exp + 112) << 23 | man << 13;
	if (man == 0)
		return sign;
	for (exp = 113; (man & 1024) == 0; exp--)
		man <<= 1;
	return sign | exp << 23 | (man & 1023) << 13;
}

static uint32_t to_half(uint32_t f)
{
	uint32_t sign = f >> 16 & 0x8000, v = f & 0x7fffffff;

	if (v > 0x7f800000)
		return sign | 0x7e00;
	if (v >= 0x47800000) /* 65536 */
		return sign | 0x7c00;
	/* the smallest normal; a carry may round up to infinity, which is
	 * correct */
	if (v >= 0x38800000)
		return sign | (uint32_t)shift_even(v - 0x38000000, 13);
	if (v < 0x33000000) /* half of the smallest subnormal */
		return sign;
	return sign |
	    (uint32_t)shift_even((v & 0x7fffff) | 0x800000, 126 - (v >> 23));
}

static uint32_t to_bfloat(uint32_t f)
{
	if ((f & 0x7fffffff) > 0x7f800000)
		return 0x7fc0;
	return (uint32_t)shift_even(f, 16);
}

static uint32_t from_double(uint64_t d)
{
	uint32_t sign = (uint32_t)(d >> 32) & 0x80000000, exp = d >> 52 & 2047;
	uint64_t man = d & ((UINT64_C(1) << 52) - 1);
	unsigned n;

	if (exp == 2047)
		return sign | 0x7f800000 | (uint32_t)(man >> 29) |
		    (man == 0 ? 0 : 0x00400000);
	if (exp > 1150) /* 2^128 */
		return sign | 0x7f800000;
	if (exp > 896)
		return sign |
		    (uint32_t)shift_even((uint64_t)(exp - 896) << 52 | man, 29);
	n = 926 - exp;
	if (exp == 0 || n > 54)
		return sign;
	return sign | (uint32_t)shift_even(man | UINT64_C(1) << 52, n);
}

/* Load one-byte elements, whose values all fit in a float32. */
static void load_codes(const double *value, const uint8_t *p, uint32_t *v,
    size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float f = (float)value[p[i]];

		memcpy(&v[i], &f, sizeof(f));
	}
}

static void load(enum ofs_dtype from, const uint8_t *p, uint32_t *v, size_t n)
{
	switch (from) {
	case OFS_FLOAT64:
		for (size_t i = 0; i < n; i++)
			v[i] = from_double(ofs_get_le(p + 8 * i, 8));
		return;
	case OFS_FLOAT32:
		for (size_t i = 0; i < n; i++)
			v[i] = (uint32_t)ofs_get_le(p + 4 * i, 4);
		return;
	case OFS_BFLOAT16:
		for (size_t i = 0; i < n; i++)
			v[i] = (uint32_t)ofs_get_le(p + 2 * i, 2) << 16;
		return;
	case OFS_FLOAT16:
		for (size_t i = 0; i < n; i++)
			v[i] = from_half((uint32_t)ofs_get_le(p + 2 * i, 2));
		return;
	default:
		load_codes(ofs_code_values(from), p, v, n);
	}
}

static void store(enum ofs_dtype to, const uint32_t *v, uint8_t *p, size_t n)
{
	switch (to) {
	case OFS_FLOAT32:
		for (size_t i = 0; i < n; i++)
			ofs_put_le(p + 4 * i, v[i], 4);
		return;
	case OFS_BFLOAT16:
		for (size_t i = 0; i < n; i++)
			ofs_put_le(p + 2 * i, to_bfloat(v[i]), 2);
		return;
	default:
		for (size_t i = 0; i < n; i++)
			ofs_put_le(p + 2 * i, to_half(v[i]), 2);
	}
}

static bool is_real(enum ofs_dtype t)
{
	return t == OFS_FLOAT64 || t == OFS_FLOAT32 || t == OFS_FLOAT16 ||
	    t == OFS_BFLOAT16;
}

bool ofs_cast_is_short(enum ofs_dtype t)
{
	return t == OFS_FLOAT8_E8M0FNU ||
	    (ofs_dtype_is_float(t) && ofs_dtype_size(t) <= 2);
}

int ofs_cast_prepare(enum ofs_dtype t, struct optimfs_error *err)
{
	return ofs_dtype_size(t) == 1 ? ofs_code_prepare(t, err) : 0;
}

enum ofs_dtype ofs_cast_type(const struct ofs_tensor *t, enum ofs_dtype to)
{
	enum ofs_dtype own = (enum ofs_dtype)t->dtype;

	return to == OFS_DTYPE_NONE || t->ndim == 0 || !is_real(own) ? own : to;
}

void ofs_cast(enum ofs_dtype from, const void *src, enum ofs_dtype to,
    void *dst, size_t n)
{
	size_t in = ofs_dtype_size(from), out = ofs_dtype_size(to);
	const uint8_t *p = src;
	uint8_t *q = dst;
	uint32_t v[SOME];

	assert((is_real(from) || ofs_cast_is_short(from)) && is_real(to) &&
	    to != OFS_FLOAT64);
	while (n > 0) {
		size_t k = n < SOME ? n : SOME;

		load(from, p, v, k);
		store(to, v, q, k);
		p += k * in;
		q += k * out;
		n -= k;
	}
}
