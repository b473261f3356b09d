/* lanes.c - vectorised sums and rounding, bit by bit against one at a time */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/lanes.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "derive/round.h"
#include "random.h"
#include "tap.h"

#define ROWS 1024u
#define N    (ROWS * OFS_ROW)

static uint64_t seed = 33;

static const enum ofs_dtype shorts[] = { OFS_FLOAT16, OFS_BFLOAT16,
	OFS_FLOAT8_E4M3FN, OFS_FLOAT8_E5M2, OFS_FLOAT8_E4M3FNUZ,
	OFS_FLOAT8_E5M2FNUZ };
#define NSHORTS (sizeof(shorts) / sizeof(shorts[0]))

/* Codes of one exponent are 2^(exponent - m) apart. */
static uint32_t rounded(const struct ofs_short *t, double v)
{
	uint32_t sign = signbit(v) ? 1u << (8 * t->bytes - 1) : 0;
	double x = fabs(v), code;
	int e;

	if (isnan(v))
		return t->nan | (t->signed_nan ? sign : 0);
	if (isinf(v))
		return t->over | sign;
	e = x < ldexp(1, t->emin) ? t->emin : ilogb(x);
	code = ldexp(e - t->emin, t->m) + nearbyint(ldexp(x, t->m - e));
	if (code > t->max)
		return t->over | sign;
	return code == 0 && t->minus ? 0 : (uint32_t)code | sign;
}

static double of_bits(uint64_t bits)
{
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* A number of the type or half way between two, exactly or nearly; any float32
 * or one half way between two; any bits. */
static double some_number(const struct ofs_short *t)
{
	double v;

	switch (tap_below(&seed, 8)) {
	case 0:
		return of_bits(tap_random(&seed));
	case 1:
		v = (double)tap_below(&seed, 1u << 25);
		v = ldexp(v, (int)tap_below(&seed, 300) - 170);
		break;
	case 2:
		v = tap_below(&seed, 2) ? INFINITY : 0;
		break;
	default:
		v = ldexp((double)tap_below(&seed, 4u << t->m),
		    t->emin - t->m - 1 + (int)tap_below(&seed, 40));
		if (tap_below(&seed, 2))
			v = ldexp((double)tap_below(&seed, 4u << t->m),
			    t->emin - t->m - 1);
		break;
	}
	if (tap_below(&seed, 2))
		v = nextafter(v, tap_below(&seed, 2) ? INFINITY : 0);
	return tap_below(&seed, 2) ? v : -v;
}

static void test_shorts(const struct ofs_lanes *lanes)
{
	static double v[N];
	static uint8_t out[2 * N];

	for (size_t k = 0; k < NSHORTS; k++) {
		const struct ofs_short *t = ofs_short_of(shorts[k]);
		unsigned bad = 0;

		for (size_t i = 0; i < N; i++)
			v[i] = some_number(t);
		lanes->to_short(t, v, ROWS, out);
		for (size_t i = 0; i < N; i++) {
			uint32_t got = out[i];

			if (t->bytes == 2) {
				uint16_t two;

				memcpy(&two, out + 2 * i, 2);
				got = two;
			}
			if (got != rounded(t, v[i]) && bad++ == 0)
				diag("%a: %x, not %x", v[i], got,
				    rounded(t, v[i]));
		}
		is_int(bad, 0, "%s: rounded to %s", lanes->name,
		    ofs_dtype_name(shorts[k]));
	}
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof(a)) == 0;
}

static void test_floats(const struct ofs_lanes *lanes)
{
	static const struct ofs_short whole = { .m = 23, .emin = -126 };
	static double v[N];
	static float out[N];
	unsigned bad = 0;

	for (size_t i = 0; i < N; i++)
		v[i] = some_number(&whole);
	lanes->to_float(v, ROWS, out);
	for (size_t i = 0; i < N; i++)
		bad += !same(out[i], (float)v[i]);
	is_int(bad, 0, "%s: rounded to float32", lanes->name);
}

/* Each code of two bytes, and floats and doubles with any bits. */
static void test_sums(const struct ofs_lanes *lanes)
{
	static const enum ofs_dtype types[OFS_NLANES] = { OFS_FLOAT64,
		OFS_FLOAT32, OFS_FLOAT16, OFS_BFLOAT16 };
	static uint64_t raw[0x10000];
	static double sum[0x10000];
	const char *p = (const char *)raw;

	for (unsigned k = 0; k < OFS_NLANES; k++) {
		size_t size = ofs_dtype_size(types[k]), n = sizeof(raw) / size;
		unsigned bad = 0;

		n = n < 0x10000 ? n : 0x10000;
		for (size_t i = 0; i < n; i++)
			if (size == 2)
				((uint16_t *)(void *)raw)[i] = (uint16_t)i;
			else if (i * size % 8 == 0)
				raw[i * size / 8] = tap_random(&seed);
		for (unsigned turn = 0; turn < 2; turn++) {
			double w = turn == 0 ? 1 : -0.3;

			lanes->add[k](raw, n / OFS_ROW, w, turn == 0, sum);
			for (size_t i = 0; i < n; i++) {
				uint8_t x[8];
				double one, want;

				memcpy(x, p + i * size, size);
				ofs_order_bytes(x, 1, size);
				one = ofs_dtype_number(types[k], x);
				want = turn == 0 ? one : one + w * one;
				bad += !same(sum[i], want);
			}
		}
		is_int(bad, 0, "%s: sums of %s", lanes->name,
		    ofs_dtype_name(types[k]));
	}
}

/* In one pass, as in several. */
static void test_totals(const struct ofs_lanes *lanes)
{
	static const double weight[3] = { 1, -0.3, 7 };
	static uint64_t raw[3 * 1024];
	static double sum[4096];
	static float want[4096], got[4096];

	for (unsigned k = 0; k < OFS_NLANES; k++) {
		size_t pitch = sizeof(raw) / 3, bad = 0;
		size_t n = pitch / (k == OFS_LANE_FLOAT ? 4 : 2);

		if (lanes->total[k] == NULL)
			continue;
		for (size_t i = 0; i < 3 * 1024; i++)
			raw[i] = tap_random(&seed);
		for (unsigned turn = 0; turn < 4; turn++) {
			double by = turn < 2 ? 0.125 : 7;

			for (size_t i = 0; i < 1 + turn % 2 * 2; i++)
				lanes->add[k]((char *)raw + i * pitch,
				    n / OFS_ROW, weight[i], i == 0, sum);
			(turn < 2 ? lanes->multiply : lanes->divide)(sum,
			    n / OFS_ROW, by);
			lanes->to_float(sum, n / OFS_ROW, want);
			lanes->total[k](raw, pitch, weight, 1 + turn % 2 * 2,
			    n / OFS_ROW, by, turn >= 2, got);
			for (size_t i = 0; i < n; i++)
				bad += !same(got[i], want[i]);
		}
		is_int(bad, 0, "%s: totals of lane %u", lanes->name, k);
	}
}

static void test_quotients(const struct ofs_lanes *lanes)
{
	static const struct ofs_short whole = { .m = 23, .emin = -126 };
	static double v[N], by[N], times[N];
	unsigned bad = 0;

	for (size_t i = 0; i < N; i++)
		v[i] = by[i] = times[i] = some_number(&whole);
	lanes->divide(by, ROWS, 7);
	lanes->multiply(times, ROWS, 0.125);
	for (size_t i = 0; i < N; i++)
		bad += !same(by[i], v[i] / 7) || !same(times[i], v[i] / 8);
	is_int(bad, 0, "%s: divided by 7 and by 8", lanes->name);
}

/* Numbers after the last row are rounded as those of a row, and nothing is
 * written after them. */
static void test_rest(void)
{
	static const enum ofs_dtype types[] = { OFS_FLOAT64, OFS_FLOAT32,
		OFS_BFLOAT16, OFS_FLOAT8_E5M2 };
	double v[3 * OFS_ROW];
	unsigned bad = 0;

	for (size_t i = 0; i < 3 * OFS_ROW; i++)
		v[i] = (double)i / 3;
	for (size_t k = 0; k < 4; k++) {
		size_t size = ofs_dtype_size(types[k]);
		uint8_t all[8 * 3 * OFS_ROW], some[sizeof(all) + 1];

		ofs_round(v, 3 * OFS_ROW, types[k], all);
		for (size_t n = 0; n <= 3 * OFS_ROW; n++) {
			memset(some, 0xaa, sizeof(some));
			ofs_round(v, n, types[k], some);
			bad += memcmp(some, all, n * size) != 0 ||
			    some[n * size] != 0xaa;
		}
	}
	is_int(bad, 0, "any count of numbers is rounded");
}

int main(void)
{
	for (unsigned i = 0; ofs_lanes(i) != NULL; i++) {
		test_shorts(ofs_lanes(i));
		test_floats(ofs_lanes(i));
		test_sums(ofs_lanes(i));
		test_totals(ofs_lanes(i));
		test_quotients(ofs_lanes(i));
	}
	test_rest();
	return done_testing();
}
