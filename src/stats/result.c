/* result.c - statistics of directories, and as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"
#include "base/memory.h"
#include "stats/stats_impl.h"

void optimfs_statistics_fini(struct optimfs_statistics *s)
{
	free(s->exponent);
	s->exponent = NULL;
	s->nexponents = 0;
}

void ofs_stats_derive(struct optimfs_statistics *s)
{
	double n = (double)s->finite;

	s->mean = s->std = s->rms = s->linf = NAN;
	s->l2 = sqrt(s->squares);
	if (s->finite == 0)
		return;
	s->mean = s->sum / n;
	s->std = sqrt(s->spread / n);
	s->rms = sqrt(s->squares / n);
	s->linf = fmax(fabs(s->min), fabs(s->max));
}

struct optimfs_statistics ofs_stats_none(void)
{
	struct optimfs_statistics none = {
		.min = NAN,
		.max = NAN,
		.first_nan = OPTIMFS_NO_INDEX,
		.first_inf = OPTIMFS_NO_INDEX,
	};

	ofs_stats_derive(&none);
	return none;
}

int ofs_stats_histogram(struct optimfs_statistics *s,
    const uint64_t exponent[OFS_NEXPONENTS], struct optimfs_error *err)
{
	unsigned first = 0, end = OFS_NEXPONENTS;

	while (first < end && exponent[first] == 0)
		first++;
	while (end > first && exponent[end - 1] == 0)
		end--;
	s->exponent = NULL;
	s->nexponents = end - first;
	s->exponent_first = end > first ? (int)first + OFS_EXPONENT_MIN : 0;
	if (end == first)
		return 0;
	s->exponent = malloc(s->nexponents * sizeof(*s->exponent));
	if (s->exponent == NULL)
		return ofs_no_memory(err);
	memcpy(s->exponent, exponent + first,
	    s->nexponents * sizeof(*s->exponent));
	return 0;
}

static void spread_out(const struct optimfs_statistics *s,
    uint64_t exponent[OFS_NEXPONENTS])
{
	for (unsigned i = 0; i < s->nexponents; i++)
		exponent[s->exponent_first - OFS_EXPONENT_MIN + (int)i] +=
		    s->exponent[i];
}

struct ofs_stats_sums ofs_stats_add_sums(const struct ofs_stats_sums *a,
    const struct ofs_stats_sums *b)
{
	struct ofs_stats_sums c = { a->n + b->n, a->sum + b->sum, a->l1 + b->l1,
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

void ofs_stats_set_sums(struct optimfs_statistics *s,
    struct ofs_stats_sums sums)
{
	s->finite = sums.n;
	s->sum = sums.sum;
	s->l1 = sums.l1;
	s->squares = sums.squares;
	s->spread = sums.spread;
}

static struct ofs_stats_sums sums_of(const struct optimfs_statistics *s)
{
	return (struct ofs_stats_sums){ s->finite, s->sum, s->l1, s->squares,
		s->spread };
}

int ofs_stats_merge(struct optimfs_statistics *to,
    const struct optimfs_statistics *s, struct optimfs_error *err)
{
	struct ofs_stats_sums a = sums_of(to), b = sums_of(s);
	uint64_t exponent[OFS_NEXPONENTS] = { 0 };
	uint64_t *old = to->exponent;

	spread_out(to, exponent);
	spread_out(s, exponent);
	if (ofs_stats_histogram(to, exponent, err) == -1) {
		to->exponent = old;
		return -1;
	}
	free(old);
	to->min = to->finite == 0 ? s->min : fmin(to->min, s->min);
	to->max = to->finite == 0 ? s->max : fmax(to->max, s->max);
	to->tensors += s->tensors;
	to->elements += s->elements;
	to->nan += s->nan;
	to->inf += s->inf;
	to->zeros += s->zeros;
	to->denormals += s->denormals;
	ofs_stats_set_sums(to, ofs_stats_add_sums(&a, &b));
	to->first_nan = to->first_inf = OPTIMFS_NO_INDEX;
	to->xxh3 = 0;
	ofs_stats_derive(to);
	return 0;
}

/* The named values in the order of output. */
static const struct {
	const char *name;
	size_t at;
	bool real;
} values[] = {
#define COUNT(name)                                       \
 {                                                        \
#  name, offsetof(struct optimfs_statistics, name), false \
 }
#define REAL(name)                                       \
 {                                                       \
#  name, offsetof(struct optimfs_statistics, name), true \
 }
	COUNT(tensors),
	COUNT(elements),
	COUNT(finite),
	COUNT(nan),
	COUNT(inf),
	COUNT(zeros),
	COUNT(denormals),
	REAL(min),
	REAL(max),
	REAL(mean),
	REAL(std),
	REAL(l1),
	REAL(l2),
	REAL(linf),
	REAL(rms),
	COUNT(first_nan),
	COUNT(first_inf),
};
#define NVALUES (sizeof(values) / sizeof(values[0]))

static uint64_t count_at(const struct optimfs_statistics *s, size_t i)
{
	return *(const uint64_t *)((const char *)s + values[i].at);
}

static double real_at(const struct optimfs_statistics *s, size_t i)
{
	return *(const double *)((const char *)s + values[i].at);
}

/* Does s have value i? */
static bool has(const struct optimfs_statistics *s, size_t i)
{
	if (values[i].at == offsetof(struct optimfs_statistics, tensors))
		return s->tensors != 1;
	if (values[i].real)
		return !isnan(real_at(s, i));
	return count_at(s, i) != OPTIMFS_NO_INDEX;
}

const char *ofs_stats_name(size_t i)
{
	return i < NVALUES ? values[i].name : NULL;
}

bool ofs_stats_value(const struct optimfs_statistics *s, const char *name,
    double *value)
{
	for (size_t i = 0; i < NVALUES; i++)
		if (strcmp(values[i].name, name) == 0) {
			*value = values[i].real ? real_at(s, i)
						: (double)count_at(s, i);
			if (!values[i].real &&
			    count_at(s, i) == OPTIMFS_NO_INDEX)
				*value = NAN;
			return true;
		}
	return false;
}

void ofs_stats_text(const struct optimfs_statistics *s, struct ofs_buf *out)
{
	char text[80];

	for (size_t i = 0; i < NVALUES; i++) {
		if (!has(s, i))
			continue;
		if (values[i].real) {
			ofs_print_double(real_at(s, i), text);
			ofs_buf_printf(out, "%s %s\n", values[i].name, text);
		} else {
			ofs_buf_printf(out, "%s %" PRIu64 "\n", values[i].name,
			    count_at(s, i));
		}
	}
	if (s->xxh3 != 0)
		ofs_buf_printf(out, "xxh3 %016" PRIx64 "\n", s->xxh3);
	for (unsigned i = 0; i < s->nexponents; i++)
		if (s->exponent[i] > 0)
			ofs_buf_printf(out, "exponent.%d %" PRIu64 "\n",
			    s->exponent_first + (int)i, s->exponent[i]);
}

void ofs_stats_json(const struct optimfs_statistics *s, struct ofs_buf *out)
{
	struct ofs_json_writer w = { .b = out, .gap = " " };
	char text[20];

	for (size_t i = 0; i < NVALUES; i++)
		if (values[i].real)
			ofs_json_put_real(&w, values[i].name, real_at(s, i));
		else if (count_at(s, i) == OPTIMFS_NO_INDEX)
			ofs_json_put_raw(&w, values[i].name, "null");
		else
			ofs_json_put_u64(&w, values[i].name, count_at(s, i));
	snprintf(text, sizeof(text), "%016" PRIx64, s->xxh3);
	if (s->xxh3 != 0)
		ofs_json_put_string(&w, "xxh3", text);
	else if (s->tensors == 1)
		ofs_json_put_raw(&w, "xxh3", "null");
	ofs_json_open(&w, "exponents", '{');
	for (unsigned i = 0; i < s->nexponents; i++)
		if (s->exponent[i] > 0) {
			snprintf(text, sizeof(text), "%d",
			    s->exponent_first + (int)i);
			ofs_json_put_u64(&w, text, s->exponent[i]);
		}
	ofs_json_close(&w, '}');
}
