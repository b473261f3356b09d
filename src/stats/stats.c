/* stats.c - sums in an order that does not depend on the reading */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "stats/stats.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "stats/number.h"
#include "stats/rows.h"
#include "stats/stats_impl.h"

#define EXPONENT_MIN OFS_EXPONENT_MIN
#define NEXPONENTS   OFS_NEXPONENTS

#define LANES OFS_LANES

/* Exponents are counted as they are stored. Neighbours often have equal ones, so
 * several tables are used: no increment waits for the previous one. */
#define TABLES 8

/* Sums of finite numbers. */
struct sums {
	uint64_t n;
	double sum, l1, squares, spread;
};

/* Counts do not depend on any order; the sums form a tree. */
struct ofs_stats {
	const struct ofs_rows *rows;
	enum ofs_dtype dtype;
	unsigned numbers; /* numbers in an element */
	size_t size;      /* size of a number in bytes */
	uint64_t elements;
	uint64_t nan, inf, zeros, denormals;
	uint64_t first_nan, first_inf; /* numbers */
	/* For a dtype with few codes: the count of each. */
	unsigned bits;
	const double *values;
	uint64_t *code;
	uint16_t *odd; /* codes that are not finite */
	size_t nodd;
	/* For other dtypes. If bit k of blocks is set, level[k] is a sum of 2^k
	 * blocks. */
	uint64_t blocks;
	struct sums level[64];
	double min, max;
	unsigned top;              /* the stored exponent of NaN and Inf */
	uint64_t (*raw)[TABLES];   /* count of each stored exponent */
	uint64_t tiny[NEXPONENTS]; /* exponents of denormal numbers */
};

uint64_t ofs_stats_chunk(enum ofs_dtype t)
{
	uint64_t n = ofs_code_bits(t) > 0 ? 1u << 21 : 1u << 18;

	return ofs_numbers(t) == 2 ? n / 2 : n;
}

static int find_odd(struct ofs_stats *s)
{
	size_t n = (size_t)1 << s->bits, k = 0;

	for (size_t i = 0; i < n; i++)
		s->nodd += !isfinite(s->values[i]);
	s->odd = malloc(s->nodd * sizeof(*s->odd) + 1);
	for (size_t i = 0; s->odd != NULL && i < n; i++)
		if (!isfinite(s->values[i]))
			s->odd[k++] = (uint16_t)i;
	return s->odd == NULL ? -1 : 0;
}

/* Are its numbers floats of 32 bits? */
static bool is_float32(enum ofs_dtype t)
{
	return t == OFS_FLOAT32 || t == OFS_COMPLEX64;
}

struct ofs_stats *ofs_stats_new(enum ofs_dtype t, struct optimfs_error *err)
{
	struct ofs_stats *s = calloc(1, sizeof(*s));

	if (s == NULL)
		goto fail;
	s->dtype = t;
	s->rows = ofs_rows(0);
	s->numbers = ofs_numbers(t);
	s->size = ofs_dtype_size(t) / (s->numbers == 2 ? 2 : 1);
	s->bits = ofs_code_bits(t);
	if (s->bits > 0) {
		s->values = ofs_code_values(t);
		s->code = malloc(sizeof(*s->code) << s->bits);
		if (s->values == NULL || s->code == NULL || find_odd(s) == -1)
			goto fail;
	} else {
		s->top = is_float32(t) ? 255 : 2047;
		s->raw = malloc((s->top + 1) * sizeof(*s->raw));
		if (s->raw == NULL)
			goto fail;
	}
	ofs_stats_clear(s);
	return s;
fail:
	ofs_stats_free(s);
	ofs_no_memory(err);
	return NULL;
}

void ofs_stats_free(struct ofs_stats *s)
{
	if (s == NULL)
		return;
	free(s->code);
	free(s->odd);
	free(s->raw);
	free(s);
}

void ofs_stats_clear(struct ofs_stats *s)
{
	ofs_stats_next(s);
	s->min = INFINITY;
	s->max = -INFINITY;
}

void ofs_stats_next(struct ofs_stats *s)
{
	s->elements = s->nan = s->inf = s->zeros = s->denormals = 0;
	s->first_nan = s->first_inf = OPTIMFS_NO_INDEX;
	s->blocks = 0;
	if (s->code != NULL) {
		memset(s->code, 0, sizeof(*s->code) << s->bits);
	} else {
		memset(s->raw, 0, (s->top + 1) * sizeof(*s->raw));
		memset(s->tiny, 0, sizeof(s->tiny));
	}
}

/* The tree. */

/* Appends b to a. The spread of both includes the difference of the means. */
static struct sums add_sums(const struct sums *a, const struct sums *b)
{
	struct sums c = { a->n + b->n, a->sum + b->sum, a->l1 + b->l1,
		a->squares + b->squares, a->spread + b->spread };
	double x, y, d;

	if (a->n == 0 || b->n == 0)
		return c;
	x = (double)a->n;
	y = (double)b->n;
	d = b->sum / y - a->sum / x;
	c.spread += d * d * (x * y / (x + y));
	return c;
}

/* Appends a node of 2^k blocks to the tree. */
static void push(struct ofs_stats *s, unsigned k, struct sums node)
{
	uint64_t bit = (uint64_t)1 << k;

	for (; s->blocks & bit; bit <<= 1, k++) {
		node = add_sums(&s->level[k], &node);
		s->blocks &= ~bit;
	}
	s->level[k] = node;
	s->blocks |= bit;
}

/* The sum of an incomplete tree: the small nodes at the right first. */
static struct sums root(const struct ofs_stats *s)
{
	struct sums all = { 0 };

	for (unsigned k = 0; k < 64; k++)
		if (s->blocks >> k & 1)
			all = all.n == 0 ? s->level[k]
					 : add_sums(&s->level[k], &all);
	return all;
}

/* Blocks. */

/* The numbers of a block, as stored and as doubles. */
struct block {
	size_t n;
	const uint8_t *floats; /* NULL: the numbers are in x */
	double *x;             /* with floats: space for the doubles */
};

static double add_lanes(const double x[LANES])
{
	return ((x[0] + x[1]) + (x[2] + x[3])) +
	    ((x[4] + x[5]) + (x[6] + x[7]));
}

/* The squared differences of n numbers from their mean. */
static double spread_of(const double *x, size_t n, double mean)
{
	double all[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (size_t k = 0; k < LANES; k++)
			all[k] += (x[i + k] - mean) * (x[i + k] - mean);
	for (size_t k = 0; i + k < n; k++)
		all[k] += (x[i + k] - mean) * (x[i + k] - mean);
	return add_lanes(all);
}

static void widen(struct ofs_stats *s, double lo, double hi)
{
	if (lo < s->min)
		s->min = lo;
	if (hi > s->max)
		s->max = hi;
}

static void make_doubles(const struct ofs_stats *s, struct block *b)
{
	if (b->floats != NULL)
		ofs_to_double(s->dtype, NULL, b->floats, b->n, b->x);
	b->floats = NULL;
}

/* Updates minimum and maximum; few blocks extend them. */
static void widen_rows(struct ofs_stats *s, struct block *b, size_t rows)
{
	double lo = s->min, hi = s->max;
	bool beyond = b->floats != NULL
	    ? s->rows->floats_beyond(b->floats, rows, s->min, s->max)
	    : s->rows->doubles_beyond(b->x, rows, s->min, s->max);

	if (!beyond)
		return;
	make_doubles(s, b);
	for (size_t i = 0; i < rows * LANES; i++) {
		lo = b->x[i] < lo ? b->x[i] : lo;
		hi = b->x[i] > hi ? b->x[i] : hi;
	}
	widen(s, lo, hi);
}

/* Sums the numbers after the last full row. */
static void sum_rest(struct ofs_stats *s, const struct block *b,
    struct ofs_columns *c)
{
	double rest[LANES];
	size_t n = b->n % LANES, first = b->n - n;

	if (b->floats != NULL)
		ofs_to_double(s->dtype, NULL, b->floats + 4 * first, n, rest);
	else
		memcpy(rest, b->x + first, n * sizeof(*rest));
	for (size_t k = 0; k < n; k++) {
		c->sum[k] += rest[k];
		c->l1[k] += fabs(rest[k]);
		c->squares[k] += rest[k] * rest[k];
		widen(s, rest[k], rest[k]);
	}
}

static struct sums sum_block(struct ofs_stats *s, struct block *b)
{
	struct sums out = { .n = b->n };
	struct ofs_columns c;

	if (b->n == 0)
		return out;
	if (b->floats != NULL)
		s->rows->sum_floats(b->floats, b->n / LANES, &c);
	else
		s->rows->sum_doubles(b->x, b->n / LANES, &c);
	widen_rows(s, b, b->n / LANES);
	sum_rest(s, b, &c);
	out.sum = add_lanes(c.sum);
	out.l1 = add_lanes(c.l1);
	out.squares = add_lanes(c.squares);
	/* If the mean is small, subtracting its square from the squares loses
	 * little precision; otherwise each number is visited again. */
	out.spread = out.squares - out.sum * (out.sum / (double)b->n);
	if (!(out.spread > out.squares / 16)) {
		make_doubles(s, b);
		out.spread = spread_of(b->x, b->n, out.sum / (double)b->n);
	}
	return out;
}

static void count_doubles(const double *x, size_t n, uint64_t (*raw)[TABLES])
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		raw[bits >> 52 & 2047][i % TABLES]++;
	}
}

/* Floats in pairs: a word holds two exponents. */
static void count_floats(const uint8_t *p, size_t n, uint64_t (*raw)[TABLES])
{
	uint64_t x, y, z, w;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		memcpy(&x, p + 4 * i, sizeof(x));
		memcpy(&y, p + 4 * i + 8, sizeof(y));
		memcpy(&z, p + 4 * i + 16, sizeof(z));
		memcpy(&w, p + 4 * i + 24, sizeof(w));
		x = le64toh(x);
		y = le64toh(y);
		z = le64toh(z);
		w = le64toh(w);
		raw[x >> 23 & 255][0]++;
		raw[x >> 55 & 255][1]++;
		raw[y >> 23 & 255][2]++;
		raw[y >> 55 & 255][3]++;
		raw[z >> 23 & 255][4]++;
		raw[z >> 55 & 255][5]++;
		raw[w >> 23 & 255][6]++;
		raw[w >> 55 & 255][7]++;
	}
	for (; i < n; i++)
		raw[(p[4 * i + 2] >> 7 | p[4 * i + 3] << 1) & 255][0]++;
}

static uint64_t count_of(const uint64_t raw[TABLES])
{
	return raw[0] + raw[1] + raw[2] + raw[3] + raw[4] + raw[5] + raw[6] +
	    raw[7];
}

static int exponent_of(double v)
{
	int e;

	frexp(v, &e);
	return e - 1;
}

/* Counts zeros and denormal numbers of a block that has some. denormal: the
 * limit below which a number is denormal in the dtype. */
static void count_small(struct ofs_stats *s, const double *x, size_t n,
    double denormal)
{
	for (size_t i = 0; i < n; i++) {
		double v = fabs(x[i]);

		if (v == 0)
			s->zeros++;
		else if (v < denormal) {
			s->denormals++;
			s->tiny[exponent_of(v) - EXPONENT_MIN]++;
		}
	}
}

/* Removes numbers that are not finite; the first has index at. Returns the
 * number left. */
static size_t drop_odd(struct ofs_stats *s, double *x, size_t n, uint64_t at)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (isnan(x[i])) {
			s->nan++;
			if (s->first_nan == OPTIMFS_NO_INDEX)
				s->first_nan = at + i;
		} else if (isinf(x[i])) {
			s->inf++;
			if (s->first_inf == OPTIMFS_NO_INDEX)
				s->first_inf = at + i;
		} else {
			x[kept++] = x[i];
		}
	}
	return kept;
}

static void add_block(struct ofs_stats *s, const uint8_t *p, size_t n,
    uint64_t at)
{
	uint64_t small = count_of(s->raw[0]), odd = count_of(s->raw[s->top]);
	double x[OFS_STATS_BLOCK];
	struct block b = { n, p, x };

	if (is_float32(s->dtype)) {
		count_floats(p, n, s->raw);
	} else {
		make_doubles(s, &b);
		count_doubles(x, n, s->raw);
	}
	small = count_of(s->raw[0]) - small;
	odd = count_of(s->raw[s->top]) - odd;
	if (small > 0 || odd > 0 || BYTE_ORDER != LITTLE_ENDIAN)
		make_doubles(s, &b);
	if (small > 0)
		count_small(s, x, n, ofs_normal_min(s->dtype));
	if (odd > 0)
		b.n = drop_odd(s, x, n, at);
	push(s, 0, sum_block(s, &b));
}

/* Dtypes with few codes. */

static void find_first(struct ofs_stats *s, const uint8_t *p, size_t n,
    uint64_t at)
{
	size_t size = s->size;

	for (size_t i = 0; i < n; i++) {
		double v =
		    s->values[size == 1 ? p[i] : p[2 * i] | p[2 * i + 1] << 8];

		if (isnan(v) && s->first_nan == OPTIMFS_NO_INDEX)
			s->first_nan = at + i;
		else if (isinf(v) && s->first_inf == OPTIMFS_NO_INDEX)
			s->first_inf = at + i;
	}
}

/* Is there a code that is not finite, whose first occurrence is unknown? */
static bool has_unfound(const struct ofs_stats *s)
{
	for (size_t i = 0; i < s->nodd; i++) {
		uint64_t first =
		    isnan(s->values[s->odd[i]]) ? s->first_nan : s->first_inf;

		if (first == OPTIMFS_NO_INDEX && s->code[s->odd[i]] > 0)
			return true;
	}
	return false;
}

static inline void count_word(uint64_t *code, bool wide, uint64_t word,
    uint64_t n)
{
	if (wide) {
		code[word & 0xffff] += n;
		code[word >> 16 & 0xffff] += n;
		code[word >> 32 & 0xffff] += n;
		code[word >> 48] += n;
		return;
	}
	for (unsigned k = 0; k < 64; k += 8)
		code[word >> k & 0xff] += n;
}

/* Equal words, such as zeros, are counted at once. Returns the bytes that were
 * counted. */
static inline size_t count_words(uint64_t *code, bool wide, const uint8_t *p,
    size_t bytes)
{
	uint64_t a, b, n;
	size_t i = 0;

	for (; i + 16 <= bytes; i += 8 * n) {
		memcpy(&a, p + i, sizeof(a));
		memcpy(&b, p + i + 8, sizeof(b));
		if (a != b) {
			count_word(code, wide, le64toh(a), 1);
			count_word(code, wide, le64toh(b), 1);
			n = 2;
			continue;
		}
		for (n = 2; i + 8 * n + 8 <= bytes; n++) {
			memcpy(&b, p + i + 8 * n, sizeof(b));
			if (a != b)
				break;
		}
		count_word(code, wide, le64toh(a), n);
	}
	return i;
}

static void count_codes(struct ofs_stats *s, const uint8_t *p, size_t bytes)
{
	/* two loops, each without a test of the size */
	size_t i = s->size == 2 ? count_words(s->code, true, p, bytes)
				: count_words(s->code, false, p, bytes);

	for (; i < bytes; i += s->size)
		s->code[s->size == 1 ? p[i] : p[i] | p[i + 1] << 8]++;
}

#define PIECE 65536u /* numbers; a piece with the first NaN is read twice */

static void add_codes(struct ofs_stats *s, const uint8_t *p, size_t n,
    uint64_t at)
{
	for (size_t k; n > 0; n -= k) {
		k = n < PIECE ? n : PIECE;
		count_codes(s, p, k * s->size);
		if (has_unfound(s))
			find_first(s, p, k, at);
		p += k * s->size;
		at += k;
	}
}

void ofs_stats_add(struct ofs_stats *s, const void *p, size_t n)
{
	uint64_t at = s->elements * s->numbers;
	const uint8_t *b = p;

	s->elements += n;
	n *= s->numbers;
	if (s->bits > 0) {
		add_codes(s, b, n, at);
		return;
	}
	for (size_t k; n > 0; n -= k) {
		k = n < OFS_STATS_BLOCK ? n : OFS_STATS_BLOCK;
		add_block(s, b, k, at);
		b += k * s->size;
		at += k;
	}
}

static void join_first(uint64_t *to, uint64_t first, uint64_t at)
{
	if (*to == OPTIMFS_NO_INDEX && first != OPTIMFS_NO_INDEX)
		*to = at + first;
}

void ofs_stats_join(struct ofs_stats *s, const struct ofs_stats *chunk)
{
	uint64_t at = s->elements * s->numbers;

	join_first(&s->first_nan, chunk->first_nan, at);
	join_first(&s->first_inf, chunk->first_inf, at);
	s->elements += chunk->elements;
	if (s->bits > 0) {
		for (size_t i = 0; i < (size_t)1 << s->bits; i++)
			s->code[i] += chunk->code[i];
		return;
	}
	s->nan += chunk->nan;
	s->inf += chunk->inf;
	s->zeros += chunk->zeros;
	s->denormals += chunk->denormals;
	widen(s, chunk->min, chunk->max);
	for (unsigned e = 0; e <= s->top; e++)
		s->raw[e][0] += count_of(chunk->raw[e]);
	for (size_t i = 0; i < NEXPONENTS; i++)
		s->tiny[i] += chunk->tiny[i];
	for (unsigned k = 64; k-- > 0;)
		if (chunk->blocks >> k & 1)
			push(s, k, chunk->level[k]);
}

/* Results. */

/* A compensated sum of few terms, independent of their order. */
struct careful {
	double sum, rest;
};

static void careful_add(struct careful *c, double v)
{
	double t = c->sum + v;

	c->rest +=
	    fabs(c->sum) >= fabs(v) ? (c->sum - t) + v : (v - t) + c->sum;
	c->sum = t;
}

static void count_code(struct optimfs_statistics *out, uint64_t *exponent,
    double v, uint64_t n, double normal)
{
	if (isnan(v)) {
		out->nan += n;
		return;
	}
	if (isinf(v)) {
		out->inf += n;
		return;
	}
	out->finite += n;
	if (v == 0)
		out->zeros += n;
	else
		exponent[exponent_of(v) - EXPONENT_MIN] += n;
	if (v != 0 && fabs(v) < normal)
		out->denormals += n;
	if (!(v >= out->min))
		out->min = v;
	if (!(v <= out->max))
		out->max = v;
}

static double spread_of_codes(const struct ofs_stats *s, double mean)
{
	struct careful c = { 0 };

	for (size_t i = 0; i < (size_t)1 << s->bits; i++) {
		double d = s->values[i] - mean;

		if (s->code[i] > 0 && isfinite(s->values[i]))
			careful_add(&c, (double)s->code[i] * (d * d));
	}
	return c.sum + c.rest;
}

static void result_of_codes(const struct ofs_stats *s,
    struct optimfs_statistics *out, uint64_t *exponent)
{
	struct careful sum = { 0 }, l1 = { 0 }, squares = { 0 };
	double normal = ofs_normal_min(s->dtype);

	for (size_t i = 0; i < (size_t)1 << s->bits; i++) {
		double v = s->values[i], n = (double)s->code[i];

		if (s->code[i] == 0)
			continue;
		count_code(out, exponent, v, s->code[i], normal);
		if (!isfinite(v))
			continue;
		careful_add(&sum, n * v);
		careful_add(&l1, n * fabs(v));
		careful_add(&squares, n * (v * v));
	}
	out->sum = sum.sum + sum.rest;
	out->l1 = l1.sum + l1.rest;
	out->squares = squares.sum + squares.rest;
	if (out->finite > 0)
		out->spread =
		    spread_of_codes(s, out->sum / (double)out->finite);
}

static void result_of_sums(const struct ofs_stats *s,
    struct optimfs_statistics *out, uint64_t *exponent)
{
	struct sums all = root(s);

	out->finite = all.n;
	out->nan = s->nan;
	out->inf = s->inf;
	out->zeros = s->zeros;
	out->denormals = s->denormals;
	out->sum = all.sum;
	out->l1 = all.l1;
	out->squares = all.squares;
	out->spread = all.spread;
	if (all.n > 0) {
		out->min = s->min;
		out->max = s->max;
	}
	memcpy(exponent, s->tiny, sizeof(s->tiny));
	for (unsigned e = 1; e < s->top; e++)
		exponent[(int)e - (int)(s->top / 2) - EXPONENT_MIN] +=
		    count_of(s->raw[e]);
}

static uint64_t element_of(const struct ofs_stats *s, uint64_t number)
{
	return number == OPTIMFS_NO_INDEX || s->numbers == 0
	    ? OPTIMFS_NO_INDEX
	    : number / s->numbers;
}

int ofs_stats_result(const struct ofs_stats *s, struct optimfs_statistics *out,
    struct optimfs_error *err)
{
	uint64_t exponent[NEXPONENTS] = { 0 };

	*out = (struct optimfs_statistics){
		.tensors = 1, .elements = s->elements, .min = NAN, .max = NAN
	};
	if (s->bits > 0)
		result_of_codes(s, out, exponent);
	else
		result_of_sums(s, out, exponent);
	out->min += 0.0; /* not -0 */
	out->max += 0.0;
	out->first_nan = element_of(s, s->first_nan);
	out->first_inf = element_of(s, s->first_inf);
	ofs_stats_derive(out);
	return ofs_stats_histogram(out, exponent, err);
}
