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

#define LANES OFS_LANES

uint64_t ofs_stats_chunk(enum ofs_dtype t)
{
	uint64_t n = ofs_code_bits(t) > 0 ? 1u << 21 : 1u << 18;

	return ofs_numbers(t) == 2 ? n / 2 : n;
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
		if (s->values == NULL || s->code == NULL ||
		    ofs_stats_codes_find_odd(s) == -1)
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

/* Appends a node of 2^k blocks to the tree. */
static void push(struct ofs_stats *s, unsigned k, struct ofs_stats_sums node)
{
	uint64_t bit = (uint64_t)1 << k;

	for (; s->blocks & bit; bit <<= 1, k++) {
		node = ofs_stats_add_sums(&s->level[k], &node);
		s->blocks &= ~bit;
	}
	s->level[k] = node;
	s->blocks |= bit;
}

/* Appends times equal nodes of 2^k blocks, after a multiple of as many. Neighbours
 * are equal as well, so that each level has one sum to compute. */
static void push_times(struct ofs_stats *s, unsigned k,
    struct ofs_stats_sums node, uint64_t times)
{
	struct ofs_stats_sums last[64]; /* of a level: without a neighbour */
	uint64_t odd = 0;

	for (unsigned i = k; times > 0; i++, times /= 2) {
		if (s->blocks >> i & 1) {
			push(s, i, node);
			times--;
		}
		if (times % 2 == 1) {
			last[i] = node;
			odd |= (uint64_t)1 << i;
		}
		node = ofs_stats_add_sums(&node, &node);
	}
	for (unsigned i = 64; i-- > k;)
		if (odd >> i & 1)
			push(s, i, last[i]);
}

/* The sum of an incomplete tree: the small nodes at the right first. */
static struct ofs_stats_sums root(const struct ofs_stats *s)
{
	struct ofs_stats_sums all = { 0 };

	for (unsigned k = 0; k < 64; k++)
		if (s->blocks >> k & 1)
			all = all.n == 0
			    ? s->level[k]
			    : ofs_stats_add_sums(&s->level[k], &all);
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

static struct ofs_stats_sums sum_block(struct ofs_stats *s, struct block *b)
{
	struct ofs_stats_sums out = { .n = b->n };
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

static void count_doubles(const double *x, size_t n,
    uint64_t (*raw)[OFS_TABLES])
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		raw[bits >> 52 & 2047][i % OFS_TABLES]++;
	}
}

/* Floats in pairs: a word holds two exponents. */
static void count_floats(const uint8_t *p, size_t n,
    uint64_t (*raw)[OFS_TABLES])
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

static uint64_t count_of(const uint64_t raw[OFS_TABLES])
{
	return raw[0] + raw[1] + raw[2] + raw[3] + raw[4] + raw[5] + raw[6] +
	    raw[7];
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
			s->tiny[ofs_stats_exponent(v) - OFS_EXPONENT_MIN]++;
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

void ofs_stats_add(struct ofs_stats *s, const void *p, size_t n)
{
	uint64_t at = s->elements * s->numbers;
	const uint8_t *b = p;

	s->elements += n;
	n *= s->numbers;
	if (s->bits > 0) {
		ofs_stats_codes_add(s, b, n, at);
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

void ofs_stats_join(struct ofs_stats *s, const struct ofs_stats *chunk,
    uint64_t times)
{
	uint64_t at = s->elements * s->numbers;

	join_first(&s->first_nan, chunk->first_nan, at);
	join_first(&s->first_inf, chunk->first_inf, at);
	s->elements += times * chunk->elements;
	if (s->bits > 0) {
		for (size_t i = 0; i < (size_t)1 << s->bits; i++)
			s->code[i] += times * chunk->code[i];
		return;
	}
	s->nan += times * chunk->nan;
	s->inf += times * chunk->inf;
	s->zeros += times * chunk->zeros;
	s->denormals += times * chunk->denormals;
	widen(s, chunk->min, chunk->max);
	for (unsigned e = 0; e <= s->top; e++)
		s->raw[e][0] += times * count_of(chunk->raw[e]);
	for (size_t i = 0; i < OFS_NEXPONENTS; i++)
		s->tiny[i] += times * chunk->tiny[i];
	for (unsigned k = 64; k-- > 0;)
		if (chunk->blocks >> k & 1)
			push_times(s, k, chunk->level[k], times);
}

/* Results. */

static void result_of_sums(const struct ofs_stats *s,
    struct optimfs_statistics *out, uint64_t *exponent)
{
	struct ofs_stats_sums all = root(s);

	ofs_stats_set_sums(out, all);
	out->nan = s->nan;
	out->inf = s->inf;
	out->zeros = s->zeros;
	out->denormals = s->denormals;
	if (all.n > 0) {
		out->min = s->min;
		out->max = s->max;
	}
	memcpy(exponent, s->tiny, sizeof(s->tiny));
	for (unsigned e = 1; e < s->top; e++)
		exponent[(int)e - (int)(s->top / 2) - OFS_EXPONENT_MIN] +=
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
	uint64_t exponent[OFS_NEXPONENTS] = { 0 };

	*out = (struct optimfs_statistics){
		.tensors = 1, .elements = s->elements, .min = NAN, .max = NAN
	};
	if (s->bits > 0)
		ofs_stats_codes_result(s, out, exponent);
	else
		result_of_sums(s, out, exponent);
	out->min += 0.0; /* not -0 */
	out->max += 0.0;
	out->first_nan = element_of(s, s->first_nan);
	out->first_inf = element_of(s, s->first_inf);
	ofs_stats_derive(out);
	return ofs_stats_histogram(out, exponent, err);
}
