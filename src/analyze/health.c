/* health.c - examine the elements of states */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/health.h"

#include <math.h>
#include <string.h>

#include "stats/number.h"

#define BLOCK 2048 /* numbers converted at once */

/* Adam keeps m = (1 - b1) sum b1^k g and v = (1 - b2) sum b2^k g^2 for the same
 * gradients g. By Cauchy-Schwarz, m^2 <= v R with R = (1 - b1)^2 / (1 - b2) sum
 * (b1^2 / b2)^k for any gradients; after t steps the sum has t terms. Moments
 * of different elements, layers or steps are unrelated, and break the bound
 * where gradients differ in size. */

static void count(struct ofs_count *c, uint64_t at)
{
	if (c->n++ == 0)
		c->first = at;
}

static void look_one(const struct ofs_exam *e, const double *x, uint64_t at,
    size_t n, struct ofs_finding *f)
{
	uint64_t ahead = (e->stride - at % e->stride) % e->stride;

	for (size_t i = 0; i < n; i++)
		if (isnan(x[i]) || (e->no_infinite && isinf(x[i])))
			count(&f->odd[0], at + i);
	for (size_t i = ahead; i < n; i += e->stride) {
		if (e->no_negative && x[i] < 0)
			count(&f->negative, at + i);
		f->sum += x[i];
		f->squares += x[i] * x[i];
	}
}

/* Examines a pair of finite numbers. */
static void look_pair(const struct ofs_exam *e, double m, double v, uint64_t at,
    struct ofs_finding *f)
{
	if (v < 0)
		count(&f->negative, at);
	f->zeros |= v == 0;
	if (e->square)
		v *= v;
	if (v == 0 && m * m > 100 * e->underflow)
		count(&f->orphan, at);
	else if (e->bound > 0 && v > 0 && m * m > e->bound * (v + e->underflow))
		count(&f->broken, at);
}

static void look_moments(const struct ofs_exam *e, const double *m,
    const double *v, const double *w, uint64_t at, size_t n,
    struct ofs_finding *f)
{
	for (size_t i = 0; i < n; i++) {
		double step;

		if (!isfinite(m[i]))
			count(&f->odd[0], at + i);
		if (!isfinite(v[i]))
			count(&f->odd[1], at + i);
		if (w != NULL && !isfinite(w[i]))
			count(&f->odd[2], at + i);
		if (!isfinite(m[i]) || !isfinite(v[i]))
			continue;
		look_pair(e, m[i], v[i], at + i, f);
		if (e->kind == OFS_EXAM_BOUND)
			continue;
		step = m[i] / e->correct[0] /
		    (sqrt(fabs(v[i]) / e->correct[1]) + e->eps);
		if (m[i] != 0)
			f->update += step * step;
		if (w != NULL && isfinite(w[i]))
			f->weight += w[i] * w[i];
	}
}

static void look_master(const struct ofs_exam *e, const double *master,
    const double *w, uint64_t at, size_t n, struct ofs_finding *f)
{
	for (size_t i = 0; i < n; i++) {
		double most = fmax(fabs(master[i]), fabs(w[i]));

		if (!isfinite(master[i]))
			count(&f->odd[0], at + i);
		else if (isfinite(w[i]) &&
		    fabs(master[i] - w[i]) > e->tolerance * most + e->underflow)
			count(&f->differ, at + i);
	}
}

void ofs_examine(const struct ofs_exam *e, const void *const buf[],
    uint64_t first, size_t n, struct ofs_finding *found)
{
	double x[3][BLOCK];

	*found = (struct ofs_finding){ 0 };
	for (size_t at = 0, k; at < n; at += k) {
		k = n - at < BLOCK ? n - at : BLOCK;
		for (unsigned i = 0; i < e->nfiles; i++) {
			enum ofs_dtype t = e->file[i]->dtype;

			ofs_to_double(t, e->codes[i],
			    (const uint8_t *)buf[i] + at * ofs_dtype_size(t), k,
			    x[i]);
		}
		if (e->kind == OFS_EXAM_ONE)
			look_one(e, x[0], first + at, k, found);
		else if (e->kind == OFS_EXAM_MASTER)
			look_master(e, x[0], x[1], first + at, k, found);
		else
			look_moments(e, x[0], x[1],
			    e->nfiles == 3 ? x[2] : NULL, first + at, k, found);
	}
}

static void add_count(struct ofs_count *to, const struct ofs_count *c,
    uint64_t times)
{
	if (to->n == 0)
		to->first = c->first;
	to->n += times * c->n;
}

/* Are all n bytes at p zero? Minus zero does not count as a moment at rest. */
static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* n elements that never had a gradient, from index in of a row on. */
static void count_dead(struct ofs_exam *e, uint64_t in, uint64_t n)
{
	uint64_t k = e->row - in; /* elements of this row */

	e->run += n;
	if (n < k)
		return;
	e->dead_rows += e->run - (n - k) >= e->row;
	e->dead_rows += (n - k) / e->row;
	e->run = (n - k) % e->row;
}

/* Counts rows that never had a gradient, in the order of elements, since a row
 * may continue in the next chunk. */
static void count_rows(struct ofs_exam *e, const void *const buf[],
    uint64_t first, size_t n)
{
	size_t a = ofs_dtype_size(e->file[0]->dtype);
	size_t b = ofs_dtype_size(e->file[1]->dtype);

	for (size_t i = 0, k; i < n; i += k) {
		uint64_t in = (first + i) % e->row;

		k = e->row - in < n - i ? (size_t)(e->row - in) : n - i;
		if (all_zero((const uint8_t *)buf[0] + i * a, k * a) &&
		    all_zero((const uint8_t *)buf[1] + i * b, k * b))
			count_dead(e, in, k);
		else
			e->run = 0;
	}
}

/* As above for n elements that are all like the one in buf. */
static void count_equal_rows(struct ofs_exam *e, const void *const buf[],
    uint64_t first, uint64_t n)
{
	if (all_zero(buf[0], ofs_dtype_size(e->file[0]->dtype)) &&
	    all_zero(buf[1], ofs_dtype_size(e->file[1]->dtype)))
		count_dead(e, first % e->row, n);
	else
		e->run = 0;
}

/* Adds the multiples of stride among the n elements from first on, all x. */
static void add_diagonal(struct ofs_exam *e, double x, uint64_t first,
    uint64_t n)
{
	uint64_t before = first == 0 ? 0 : (first - 1) / e->stride + 1;
	uint64_t all = (first + n - 1) / e->stride + 1 - before;
	struct ofs_count negative = { all, before * e->stride };

	if (all == 0)
		return;
	if (e->no_negative && x < 0)
		add_count(&e->negative, &negative, 1);
	e->sum += (double)all * x;
	e->squares += (double)all * x * x;
}

void ofs_exam_join(struct ofs_exam *e, const struct ofs_finding *found,
    const void *const buf[], uint64_t first, size_t n, uint64_t times)
{
	double x;

	for (unsigned i = 0; i < 3; i++)
		add_count(&e->odd[i], &found->odd[i], times);
	add_count(&e->broken, &found->broken, times);
	add_count(&e->orphan, &found->orphan, times);
	add_count(&e->differ, &found->differ, times);
	e->update += (double)times * found->update;
	e->weight += (double)times * found->weight;
	if (e->stride > 1 && times > 1) {
		ofs_to_double(e->file[0]->dtype, e->codes[0], buf[0], 1, &x);
		add_diagonal(e, x, first, times * n);
	} else {
		add_count(&e->negative, &found->negative, times);
		e->sum += (double)times * found->sum;
		e->squares += (double)times * found->squares;
	}
	if (e->kind != OFS_EXAM_ADAM || e->row == 0)
		return;
	if (!found->zeros)
		e->run = 0;
	else if (times > 1)
		count_equal_rows(e, buf, first, times * n);
	else
		count_rows(e, buf, first, n);
}
