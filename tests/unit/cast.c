/* plan/cast.c - casts between floating types, compared with exact arithmetic */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/cast.h"

#include <math.h>
#include <string.h>

#include "random.h"
#include "tap.h"

#define N 65536

/* A type of 16 bits: the number of its fraction bits, and the bias of its
 * exponent. */
struct half {
	enum ofs_dtype dtype;
	int fraction, bias;
};
static const struct half halves[] = {
	{ OFS_FLOAT16, 10, 15 },
	{ OFS_BFLOAT16, 7, 127 },
};

/* The exact value of a finite pattern without its sign. For the pattern of
 * infinity, what would follow the largest finite value. */
static double value(const struct half *h, unsigned pattern)
{
	unsigned exp = pattern >> h->fraction;
	double man = pattern & ((1u << h->fraction) - 1);

	if (exp == 0)
		return ldexp(man, 1 - h->bias - h->fraction);
	return ldexp(man + (1u << h->fraction),
	    (int)exp - h->bias - h->fraction);
}

static unsigned infinity(const struct half *h)
{
	return (0x7fffu >> h->fraction) << h->fraction;
}

/* The nearest pattern to x, which is not NaN: found by bisection over the
 * values, independently of the bits of x. Doubles hold both neighbours and
 * their middle exactly. */
static unsigned nearest(const struct half *h, double x)
{
	unsigned lo = 0, hi = infinity(h), sign = signbit(x) ? 0x8000 : 0;
	double below, above;

	x = fabs(x);
	if (x >= value(h, hi))
		return sign | hi;
	while (hi - lo > 1) {
		unsigned mid = (lo + hi) / 2;

		if (value(h, mid) <= x)
			lo = mid;
		else
			hi = mid;
	}
	below = x - value(h, lo);
	above = value(h, hi) - x;
	if (below == above)
		return sign | (lo % 2 == 0 ? lo : hi);
	return sign | (below < above ? lo : hi);
}

static uint64_t seed = 88172645463325252;

static uint16_t all[N], got16[N];
static float singles[N];
static double doubles[N];

static void widening(const struct half *h)
{
	size_t bad = 0;

	ofs_cast(h->dtype, all, OFS_FLOAT32, singles, N);
	for (unsigned i = 0; i < N; i++) {
		unsigned p = i & 0x7fff;
		bool nan = p > infinity(h);
		double want = p == infinity(h) ? HUGE_VAL : value(h, p);

		if (nan ? !isnan(singles[i]) : fabs((double)singles[i]) != want)
			bad++;
		if ((signbit(singles[i]) != 0) != (i >= 0x8000))
			bad++;
	}
	is_u64(bad, 0, "all patterns of %s are cast to float32 exactly",
	    ofs_dtype_name(h->dtype));
	ofs_cast(OFS_FLOAT32, singles, h->dtype, got16, N);
	bad = 0;
	for (unsigned i = 0; i < N; i++)
		bad += (i & 0x7fff) <= infinity(h) && got16[i] != i;
	is_u64(bad, 0, "all patterns of %s survive a cast to float32 and back",
	    ofs_dtype_name(h->dtype));
}

/* The bits of a random float; or a number near the range of the type; or one
 * halfway between two neighbours of the type, give or take one bit. */
static float a_float(const struct half *h)
{
	uint32_t bits = (uint32_t)tap_random(&seed);
	unsigned p = bits >> 8 & 0x7fff;
	float f;

	if (bits % 4 == 0 && p < infinity(h)) {
		f = (float)((value(h, p) + value(h, p + 1)) / 2);
		if (bits % 8 == 0)
			f = nextafterf(f, bits % 16 == 0 ? 0 : HUGE_VALF);
		return bits >> 31 ? -f : f;
	}
	if (bits % 4 == 1)
		return (float)ldexp((double)(int32_t)bits,
		    (int)(tap_random(&seed) % 60) - 60);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void rounding(const struct half *h)
{
	size_t bad = 0, nans = 0;
	unsigned nan = h->dtype == OFS_BFLOAT16 ? 0x7fc0 : 0x7e00;

	for (int round = 0; round < 16; round++) {
		for (unsigned i = 0; i < N; i++)
			singles[i] = a_float(h);
		ofs_cast(OFS_FLOAT32, singles, h->dtype, got16, N);
		for (unsigned i = 0; i < N; i++) {
			if (!isnan(singles[i])) {
				bad +=
				    got16[i] != nearest(h, (double)singles[i]);
				continue;
			}
			nans++;
			if (h->dtype == OFS_FLOAT16 && signbit(singles[i]))
				bad += got16[i] != (nan | 0x8000);
			else
				bad += got16[i] != nan;
		}
	}
	is_u64(bad, 0, "a million floats are rounded to the nearest %s",
	    ofs_dtype_name(h->dtype));
	ok(nans > 1000, "the random floats have over 1000 NaNs");
}

static double a_double(void)
{
	uint64_t bits = tap_random(&seed);
	double d;
	float f;

	if (bits % 2 == 0) /* in the range of float32, subnormals included */
		return ldexp((double)(int64_t)tap_random(&seed),
		    (int)(bits >> 8 & 511) - 63 - 220);
	if (bits % 4 == 1) { /* halfway between two floats */
		f = ldexpf((float)(bits >> 40), (int)(bits >> 8 & 127) - 149);
		return ((double)f + (double)nextafterf(f, HUGE_VALF)) / 2;
	}
	memcpy(&d, &bits, sizeof(d));
	return d;
}

/* Casts go by way of float32, for which the processor's own rounding is the
 * reference. */
static void from_doubles(void)
{
	static float got[N];
	size_t bad = 0, half[2] = { 0, 0 };

	for (int round = 0; round < 16; round++) {
		for (unsigned i = 0; i < N; i++) {
			doubles[i] = a_double();
			singles[i] = (float)doubles[i];
		}
		ofs_cast(OFS_FLOAT64, doubles, OFS_FLOAT32, got, N);
		for (unsigned i = 0; i < N; i++)
			bad += memcmp(&got[i], &singles[i], sizeof(float)) != 0;
		for (unsigned k = 0; k < 2; k++) {
			ofs_cast(OFS_FLOAT64, doubles, halves[k].dtype, got16,
			    N);
			for (unsigned i = 0; i < N; i++)
				half[k] += !isnan(singles[i]) &&
				    got16[i] !=
					nearest(&halves[k], (double)singles[i]);
		}
	}
	is_u64(bad, 0,
	    "a million doubles are cast to float32 as the processor does");
	is_u64(half[0], 0,
	    "a million doubles are cast to float16 by way of float32");
	is_u64(half[1], 0,
	    "a million doubles are cast to bfloat16 by way of float32");
}

/* Casts from one half type to the other go by way of float32, exactly. */
static void across(const struct half *from, const struct half *to)
{
	size_t bad = 0;

	ofs_cast(from->dtype, all, to->dtype, got16, N);
	for (unsigned i = 0; i < N; i++) {
		double v = value(from, i & 0x7fff);

		if ((i & 0x7fff) > infinity(from))
			bad += (got16[i] & 0x7fff) <= infinity(to);
		else if ((i & 0x7fff) == infinity(from))
			bad += got16[i] != (infinity(to) | (i & 0x8000));
		else
			bad += got16[i] != nearest(to, i >= 0x8000 ? -v : v);
	}
	is_u64(bad, 0, "all patterns of %s are rounded to the nearest %s",
	    ofs_dtype_name(from->dtype), ofs_dtype_name(to->dtype));
}

static void which(void)
{
	struct ofs_tensor t = { .ndim = 1 };
	size_t cast = 0;

	for (int d = 1; d < OFS_NDTYPES; d++) {
		t.dtype = (uint8_t)d;
		if (ofs_cast_type(&t, OFS_BFLOAT16) != (enum ofs_dtype)d)
			cast++;
	}
	is_u64(cast, 3, "exactly three types are cast to bfloat16");
	t.dtype = OFS_FLOAT32;
	is_int(ofs_cast_type(&t, OFS_DTYPE_NONE), OFS_FLOAT32,
	    "without a target type a tensor keeps its type");
	t.ndim = 0;
	is_int(ofs_cast_type(&t, OFS_BFLOAT16), OFS_FLOAT32,
	    "a tensor without dimensions keeps its type");
}

int main(void)
{
	for (unsigned i = 0; i < N; i++)
		all[i] = (uint16_t)i;
	for (unsigned k = 0; k < 2; k++) {
		widening(&halves[k]);
		rounding(&halves[k]);
		across(&halves[k], &halves[!k]);
	}
	from_doubles();
	which();
	return done_testing();
}
