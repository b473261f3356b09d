/* stats.c - statistics, compared with sums in long double, whole and in
 * chunks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "stats/number.h"
#include "stats/rows.h"
#include "tap.h"

/* More than a chunk of any type, with an incomplete last block. */
#define N ((size_t)(1u << 20) + 4096 + 77)

static const enum ofs_dtype types[] = { OFS_FLOAT64, OFS_FLOAT32, OFS_FLOAT16,
	OFS_BFLOAT16, OFS_INT64, OFS_INT32, OFS_INT16, OFS_INT8, OFS_UINT64,
	OFS_UINT32, OFS_UINT16, OFS_UINT8, OFS_BOOL, OFS_COMPLEX128,
	OFS_COMPLEX64, OFS_COMPLEX32, OFS_BCOMPLEX32, OFS_FLOAT8_E4M3FN,
	OFS_FLOAT8_E5M2, OFS_FLOAT8_E4M3FNUZ, OFS_FLOAT8_E5M2FNUZ,
	OFS_FLOAT8_E8M0FNU, OFS_QINT8, OFS_QUINT8, OFS_QINT32 };

struct reference {
	uint64_t finite, nan, inf, zeros, first_nan, first_inf;
	long double sum, l1, squares, spread;
	double min, max;
	uint64_t exponent[4200];
};

static void put(struct reference *r, double v, uint64_t element)
{
	if (isnan(v) && r->nan++ == 0)
		r->first_nan = element;
	if (isinf(v) && r->inf++ == 0)
		r->first_inf = element;
	if (!isfinite(v))
		return;
	if (r->finite++ == 0)
		r->min = r->max = v;
	r->min = v < r->min ? v : r->min;
	r->max = v > r->max ? v : r->max;
	r->sum += v;
	r->l1 += fabs(v);
	r->squares += (long double)v * v;
	if (v == 0)
		r->zeros++;
	else
		r->exponent[(int)floor(log2(fabs(v))) + 2100]++;
}

static void refer(enum ofs_dtype t, const uint8_t *p, size_t n,
    struct reference *r)
{
	size_t each = ofs_numbers(t), size = ofs_dtype_size(t) / each;
	long double mean;

	*r = (struct reference){ .first_nan = OPTIMFS_NO_INDEX,
		.first_inf = OPTIMFS_NO_INDEX,
		.min = NAN,
		.max = NAN };
	for (size_t i = 0; i < n * each; i++)
		put(r, ofs_dtype_number(t, p + i * size), i / each);
	mean = r->finite == 0 ? 0 : r->sum / r->finite;
	for (size_t i = 0; i < n * each; i++) {
		double v = ofs_dtype_number(t, p + i * size);

		if (isfinite(v))
			r->spread += (v - mean) * (v - mean);
	}
}

static bool near(double got, long double want, long double scale)
{
	return fabsl((long double)got - want) <= 1e-12L * scale;
}

/* The reference uses log2, which may round up to the next power of two. */
static bool same_exponents(const struct optimfs_statistics *s,
    const struct reference *r)
{
	for (unsigned i = 0; i < s->nexponents; i++)
		if (s->exponent[i] != r->exponent[s->exponent_first + 2100 + i])
			return false;
	return true;
}

static void check(const char *what, const struct optimfs_statistics *s,
    const struct reference *r)
{
	ok(s->finite == r->finite && s->nan == r->nan && s->inf == r->inf &&
		s->zeros == r->zeros && s->first_nan == r->first_nan &&
		s->first_inf == r->first_inf,
	    "%s: counts and first indexes", what);
	ok(memcmp(&s->min, &r->min, sizeof(double)) == 0 || s->min == r->min,
	    "%s: minimum", what);
	ok(s->max == r->max || (isnan(s->max) && isnan(r->max)), "%s: maximum",
	    what);
	ok(near(s->sum, r->sum, r->l1) && near(s->l1, r->l1, r->l1) &&
		near(s->squares, r->squares, r->squares),
	    "%s: sums", what);
	ok(near(s->spread, r->spread, r->spread + r->squares * 1e-3L),
	    "%s: squared deviation", what);
	ok(same_exponents(s, r), "%s: exponents", what);
}

/* Random bytes, with non-finite values among them for floating-point types. */
static void fill(enum ofs_dtype t, uint8_t *p, size_t n, uint64_t seed)
{
	size_t size = ofs_dtype_size(t) / ofs_numbers(t);

	for (size_t i = 0; i < n * ofs_dtype_size(t); i += 8) {
		uint64_t v = tap_random(&seed);

		memcpy(p + i, &v, 8);
	}
	if (t != OFS_FLOAT64 && t != OFS_COMPLEX128 && t != OFS_FLOAT32 &&
	    t != OFS_COMPLEX64)
		return;
	/* Exponents near zero, since sums of very different numbers say
	 * little. */
	for (size_t i = 0; i < n * ofs_numbers(t); i++) {
		uint8_t *at = p + i * size;
		double d = (double)(int64_t)tap_random(&seed) * 0x1p-64;
		float f = (float)d;

		if (i % 4099 < 4096 && i > 5000)
			memcpy(at, size == 4 ? (void *)&f : (void *)&d, size);
		else if (size == 8 && isfinite(ofs_dtype_number(t, at)))
			memset(at, 0, size); /* squares would overflow */
		else if (size == 4 && i % 3 == 0)
			memset(at + 2, 0, 2); /* denormal */
	}
}

static struct ofs_stats *in_chunks(enum ofs_dtype t, const uint8_t *p, size_t n)
{
	struct ofs_stats *all = ofs_stats_new(t, NULL);
	struct ofs_stats *part = ofs_stats_new(t, NULL);
	size_t chunk = ofs_stats_chunk(t), k;

	for (size_t i = 0; i < n; i += k) {
		k = n - i < chunk ? n - i : chunk;
		ofs_stats_next(part);
		ofs_stats_add(part, p + i * ofs_dtype_size(t), k);
		ofs_stats_join(all, part, 1);
	}
	ofs_stats_free(part);
	return all;
}

static bool same(const struct optimfs_statistics *a,
    const struct optimfs_statistics *b)
{
	struct optimfs_statistics x = *a, y = *b;

	x.exponent = y.exponent = NULL;
	return memcmp(&x, &y, sizeof(x)) == 0 &&
	    memcmp(a->exponent, b->exponent,
		a->nexponents * sizeof(*a->exponent)) == 0;
}

static void test_type(enum ofs_dtype t, uint8_t *p)
{
	const char *name = ofs_dtype_name(t);
	struct ofs_stats *whole = ofs_stats_new(t, NULL), *split;
	struct optimfs_statistics a, b;
	size_t n = ofs_stats_chunk(t) > N / 2 ? N : N / 2 - 1;
	static struct reference r;

	fill(t, p, n, t);
	ofs_stats_add(whole, p, n);
	split = in_chunks(t, p, n);
	ofs_stats_result(whole, &a, NULL);
	ofs_stats_result(split, &b, NULL);
	refer(t, p, n, &r);
	check(name, &a, &r);
	ok(same(&a, &b), "%s: chunks give the same result bit for bit", name);
	optimfs_statistics_fini(&a);
	optimfs_statistics_fini(&b);
	ofs_stats_free(whole);
	ofs_stats_free(split);
}

static void result_of(enum ofs_dtype t, const void *p, size_t n,
    struct optimfs_statistics *s)
{
	struct ofs_stats *all = ofs_stats_new(t, NULL);

	ofs_stats_add(all, p, n);
	ofs_stats_result(all, s, NULL);
	ofs_stats_free(all);
}

static void test_few(void)
{
	float x[9] = { 3, -4, 0, NAN, INFINITY, 1e-40f, -0.0f, 0.5f, NAN };
	struct optimfs_statistics s;

	result_of(OFS_FLOAT32, x, 9, &s);
	is_u64(s.finite, 6, "finite numbers are counted");
	is_u64(s.nan, 2, "NaNs are counted");
	is_u64(s.first_nan, 3, "the index of the first NaN");
	is_u64(s.first_inf, 4, "the index of the first infinity");
	is_u64(s.zeros, 2, "minus zero counts as zero");
	is_u64(s.denormals, 1, "denormal numbers are counted");
	is_int(s.exponent_first, -133,
	    "a denormal number has the exponent of its value");
	is_u64(s.exponent[0], 1,
	    "a denormal number is counted at its exponent");
	ok(s.linf == 4 && s.min == -4 && s.max == 3,
	    "minimum, maximum and largest magnitude");
	ok(fabs(s.l2 - sqrt(25.25)) < 1e-15, "l2 norm of the finite numbers");
	optimfs_statistics_fini(&s);
	result_of(OFS_FLOAT32, x, 0, &s);
	ok(s.elements == 0 && s.finite == 0 && isnan(s.mean) && isnan(s.min),
	    "no elements have no mean and no minimum");
	optimfs_statistics_fini(&s);
	result_of(OFS_BITS8, x, 4, &s);
	ok(s.elements == 4 && s.finite == 0 && s.nexponents == 0,
	    "elements of a bits dtype are not numbers");
	optimfs_statistics_fini(&s);
}

/* For numbers that hardly differ, a sum of squares would lose the variance. */
static void test_spread(void)
{
	struct optimfs_statistics s;
	static float x[100000];

	for (size_t i = 0; i < 100000; i++)
		x[i] = 1.0f;
	result_of(OFS_FLOAT32, x, 100000, &s);
	ok(s.std == 0, "equal numbers have a standard deviation of 0");
	optimfs_statistics_fini(&s);
	for (size_t i = 0; i < 100000; i++)
		x[i] = i % 2 == 0 ? 16777215.0f : 16777213.0f;
	result_of(OFS_FLOAT32, x, 100000, &s);
	ok(s.std == 1,
	    "a standard deviation of 1 with a mean of 2^24 is exact");
	optimfs_statistics_fini(&s);
}

static void test_merge(uint8_t *p)
{
	struct optimfs_statistics all = { 0 }, a, b, whole;

	fill(OFS_FLOAT32, p, 300000, 1);
	result_of(OFS_FLOAT32, p, 300000, &whole);
	result_of(OFS_FLOAT32, p, 100000, &a);
	result_of(OFS_FLOAT32, p + 400000, 200000, &b);
	ofs_stats_merge(&all, &a, NULL);
	ofs_stats_merge(&all, &b, NULL);
	is_u64(all.tensors, 2, "merged statistics are of two tensors");
	ok(all.finite == whole.finite && all.nan == whole.nan &&
		all.min == whole.min && all.max == whole.max &&
		all.nexponents == whole.nexponents &&
		memcmp(all.exponent, whole.exponent, 8 * all.nexponents) == 0,
	    "merged counts, extremes and exponents add up");
	ok(near(all.std, whole.std, whole.std) &&
		near(all.rms, whole.rms, whole.rms),
	    "merged standard deviation and root mean square agree");
	optimfs_statistics_fini(&all);
	optimfs_statistics_fini(&a);
	optimfs_statistics_fini(&b);
	optimfs_statistics_fini(&whole);
}

static void test_text(void)
{
	double x[3] = { 1, -2, NAN }, v;
	struct optimfs_statistics s;
	struct ofs_buf out = { 0 };

	result_of(OFS_FLOAT64, x, 3, &s);
	s.xxh3 = 0xabc;
	ofs_stats_text(&s, &out);
	ofs_buf_putc(&out, '\0');
	is_str((char *)out.data,
	    "elements 3\nfinite 2\nnan 1\ninf 0\nzeros 0\ndenormals 0\n"
	    "min -2.0\nmax 1.0\nmean -0.5\nstd 1.5\nl1 3.0\n"
	    "l2 2.23606797749979\nlinf 2.0\nrms 1.5811388300841898\n"
	    "first_nan 2\nxxh3 0000000000000abc\nexponent.0 1\n"
	    "exponent.1 1\n",
	    "the text has a name and a value per line");
	ok(ofs_stats_value(&s, "rms", &v) && v == s.rms &&
		ofs_stats_value(&s, "nan", &v) && v == 1 &&
		!ofs_stats_value(&s, "median", &v),
	    "ofs_stats_value finds values by name");
	ofs_buf_fini(&out);
	optimfs_statistics_fini(&s);
}

static void test_variant(const struct ofs_rows *one, const struct ofs_rows *two)
{
	struct { /* not aligned */
		char pad[4];
		float f[64 * OFS_LANES];
	} in;
	double x[64 * OFS_LANES], lo = 0, hi = 0;
	struct ofs_columns a, b;
	uint64_t seed = 7;

	for (size_t i = 0; i < 64 * OFS_LANES; i++) {
		int64_t v = (int64_t)tap_random(&seed);

		in.f[i] = (float)v * 0x1p-30f;
		x[i] = (double)v * 0x1p-500;
		lo = in.f[i] < lo ? in.f[i] : lo;
		hi = in.f[i] > hi ? in.f[i] : hi;
	}
	one->sum_floats(in.f, 64, &a);
	two->sum_floats(in.f, 64, &b);
	ok(memcmp(&a, &b, sizeof(a)) == 0, "%s and %s: sums of floats",
	    one->name, two->name);
	one->sum_doubles(x, 64, &a);
	two->sum_doubles(x, 64, &b);
	ok(memcmp(&a, &b, sizeof(a)) == 0, "%s and %s: sums of doubles",
	    one->name, two->name);
	ok(!one->floats_beyond(in.f, 64, lo, hi) &&
		one->floats_beyond(in.f, 64, lo + fabs(lo) * 1e-6, hi) &&
		one->floats_beyond(in.f, 64, lo, hi - fabs(hi) * 1e-6) &&
		one->floats_beyond(in.f, 64, INFINITY, -INFINITY),
	    "%s: comparison of floats with bounds", one->name);
	for (size_t i = 0; i < 64 * OFS_LANES; i++)
		x[i] = in.f[i];
	ok(!one->doubles_beyond(x, 64, lo, hi) &&
		one->doubles_beyond(x, 64, nextafter(lo, 0), hi) &&
		one->doubles_beyond(x, 64, lo, nextafter(hi, 0)) &&
		one->doubles_beyond(x, 64, INFINITY, -INFINITY),
	    "%s: comparison of doubles with bounds", one->name);
}

/* All variants for the processor's instruction sets give the same bits. */
static void test_variants(void)
{
	for (unsigned i = 0; ofs_rows(i) != NULL; i++)
		test_variant(ofs_rows(i), ofs_rows(0));
}

static void test_ulps(void)
{
	float a = 1, b = nextafterf(1, 2), c = -0.0f, d = 0x1p-149f, e = NAN;
	uint16_t x = 0x3f80, y = 0xbf80;

	is_u64(ofs_ulps(OFS_FLOAT32, &a, &b), 1,
	    "neighbouring floats are 1 ulp apart");
	is_u64(ofs_ulps(OFS_FLOAT32, &c, &d), 1,
	    "neighbouring floats across zero are 1 ulp apart");
	is_u64(ofs_ulps(OFS_FLOAT32, &a, &e), UINT64_MAX,
	    "NaN is infinitely far from a number");
	is_u64(ofs_ulps(OFS_BFLOAT16, &x, &y), 2 * 0x3f80,
	    "distance of 1 and -1 in bfloat16");
}

/* Bytes that were kept give the same, and cut or other ones nothing. */
static void test_pack(void)
{
	static const float x[] = { 1.5f, -3e-40f, 0, NAN, INFINITY, 7e9f, -2 };
	struct optimfs_statistics s, t;
	struct ofs_stats *sum = ofs_stats_new(OFS_FLOAT32, NULL);
	struct ofs_buf was = { 0 }, text[2] = { 0 };
	struct ofs_cursor c;
	bool refused = true;

	ofs_stats_add(sum, x, sizeof(x) / sizeof(*x));
	ofs_stats_result(sum, &s, NULL);
	s.xxh3 = 5;
	ofs_stats_pack(&s, &was);
	c = ofs_cursor_of(was.data, was.len);
	ok(ofs_stats_unpack(&c, &t, NULL) == 1 && !c.bad &&
		ofs_cursor_left(&c) == 0,
	    "kept statistics are read");
	ofs_stats_json(&s, &text[0]);
	ofs_stats_json(&t, &text[1]);
	ok(text[0].len == text[1].len &&
		memcmp(text[0].data, text[1].data, text[0].len) == 0,
	    "they are the same");
	optimfs_statistics_fini(&t);
	for (size_t n = 0; n < was.len; n++) {
		c = ofs_cursor_of(was.data, n);
		refused &= ofs_stats_unpack(&c, &t, NULL) == 0;
	}
	ok(refused, "bytes that are cut off are refused");
	memset(was.data + 132, 0xff, 4);
	c = ofs_cursor_of(was.data, was.len);
	is_int(ofs_stats_unpack(&c, &t, NULL), 0,
	    "so is a histogram of 4 billion exponents");
	memset(was.data + 132, 0, 4);
	was.data[132] = 1;
	memset(was.data + 128, 0x80, 4);
	c = ofs_cursor_of(was.data, was.len);
	is_int(ofs_stats_unpack(&c, &t, NULL), 0,
	    "and an exponent that there is not");
	optimfs_statistics_fini(&s);
	ofs_stats_free(sum);
	for (int i = 0; i < 2; i++)
		ofs_buf_fini(&text[i]);
	ofs_buf_fini(&was);
}

int main(void)
{
	uint8_t *p = malloc(N * 16 + 8);

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		test_type(types[i], p);
	test_few();
	test_spread();
	test_merge(p);
	test_text();
	test_variants();
	test_ulps();
	test_pack();
	free(p);
	return done_testing();
}
