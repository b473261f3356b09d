/* round.c - doubles rounded to elements of any floating type */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/round.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/cursor.h"
#include "plan/cast.h"

/* float32 has more than two bits more than the shorter types. So a double that
 * is first rounded "to odd" (towards zero, with the last bit set if that was not
 * exact) and then to nearest is rounded as if in one step. */

#define SOME 256

/* The type of one number of an element. */
static enum ofs_dtype part(enum ofs_dtype t)
{
	switch (t) {
	case OFS_COMPLEX128:
		return OFS_FLOAT64;
	case OFS_COMPLEX64:
		return OFS_FLOAT32;
	case OFS_COMPLEX32:
		return OFS_FLOAT16;
	case OFS_BCOMPLEX32:
		return OFS_BFLOAT16;
	default:
		return t;
	}
}

bool ofs_rounds_to(enum ofs_dtype t)
{
	return ofs_dtype_is_float(part(t));
}

static float to_odd(double v)
{
	float f = (float)v;
	uint32_t bits;

	if (isnan(v) || (double)f == v)
		return f;
	memcpy(&bits, &f, sizeof(bits));
	if (fabs((double)f) > fabs(v))
		bits--; /* the next number towards zero */
	bits |= 1;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* The one-byte types: m bits of fraction, 2^emin the smallest normal number. */
static const struct tiny {
	enum ofs_dtype type;
	int m, emin;
	uint8_t max, over, nan; /* codes; over: what is too large */
	bool minus;             /* a NaN is in the place of minus zero */
} tinies[] = {
	{ OFS_FLOAT8_E4M3FN, 3, -6, 0x7e, 0x7f, 0x7f, false },
	{ OFS_FLOAT8_E5M2, 2, -14, 0x7b, 0x7c, 0x7f, false },
	{ OFS_FLOAT8_E4M3FNUZ, 3, -7, 0x7f, 0x80, 0x80, true },
	{ OFS_FLOAT8_E5M2FNUZ, 2, -15, 0x7f, 0x80, 0x80, true },
};

/* Codes without their sign bit are in the order of their values; those of one
 * exponent are 2^(exponent - m) apart. */
static uint8_t to_tiny(const struct tiny *t, double v)
{
	uint8_t sign = signbit(v) ? 0x80 : 0;
	double x = fabs(v), code;
	int e;

	if (isnan(v))
		return t->nan;
	if (isinf(v))
		return t->over | sign;
	e = x < ldexp(1, t->emin) ? t->emin : ilogb(x);
	code = ldexp(e - t->emin, t->m) + nearbyint(ldexp(x, t->m - e));
	if (code > t->max)
		return t->over | sign;
	if (code == 0 && t->minus)
		return 0;
	return (uint8_t)code | sign;
}

static void round_tiny(const double *v, size_t n, enum ofs_dtype to,
    uint8_t *out)
{
	const struct tiny *t = tinies;

	while (t->type != to)
		t++;
	for (size_t i = 0; i < n; i++)
		out[i] = to_tiny(t, v[i]);
}

static void round_short(const double *v, size_t n, enum ofs_dtype to,
    uint8_t *out)
{
	float some[SOME];
	size_t k;

	for (; n > 0; v += k, out += 2 * k, n -= k) {
		k = n < SOME ? n : SOME;
		for (size_t i = 0; i < k; i++)
			some[i] = to_odd(v[i]);
		ofs_cast(OFS_FLOAT32, some, to, out, k);
	}
}

void ofs_round(const double *v, size_t n, enum ofs_dtype to, void *out)
{
	uint8_t *p = out;
	uint64_t wide;
	uint32_t bits;
	float f;

	assert(ofs_rounds_to(to));
	switch (ofs_dtype_size(part(to))) {
	case 8:
		for (size_t i = 0; i < n; i++) {
			memcpy(&wide, &v[i], sizeof(wide));
			ofs_put_le(p + 8 * i, wide, 8);
		}
		return;
	case 4:
		for (size_t i = 0; i < n; i++) {
			f = (float)v[i];
			memcpy(&bits, &f, sizeof(bits));
			ofs_put_le(p + 4 * i, bits, 4);
		}
		return;
	case 2:
		round_short(v, n, part(to), p);
		return;
	default:
		round_tiny(v, n, to, p);
	}
}
