/* stats_codes.c - statistics of dtypes with few codes, from counts of each */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stats/number.h"
#include "stats/stats_impl.h"

int ofs_stats_codes_find_odd(struct ofs_stats *s)
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

void ofs_stats_codes_add(struct ofs_stats *s, const uint8_t *p, size_t n,
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
		exponent[ofs_stats_exponent(v) - OFS_EXPONENT_MIN] += n;
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

void ofs_stats_codes_result(const struct ofs_stats *s,
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
