/* compare.c - the difference between the elements of two tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/analyze.h"

#include "analyze/known.h"
#include "analyze/pool.h"
#include "analyze/tensors.h"
#include "base/memory.h"
#include "stats/number.h"

#define CHUNK (1u << 18) /* elements */
/* Numbers compared at once. */
#define BLOCK 2048

/* Most tensors are equal, so bytes are compared first. Only if some differ are
 * all elements examined: sums include the equal ones. */
struct compare {
	enum ofs_dtype type;
	const double *codes; /* of the dtype, if it has them */
	double rtol, atol;
	atomic_bool differ;
	struct optimfs_comparison all;
	bool failed;
	struct optimfs_error why;
};

/* Is a difference within the tolerance, relative to the greater number? */
static bool within(const struct compare *c, double off, double most)
{
	return off == 0 || (isfinite(most) && off <= c->atol + c->rtol * most);
}

/* Measures one number of an element whose bytes differ. */
static bool measure_one(const struct compare *c, const uint8_t *p,
    const uint8_t *q, double x, double y, uint64_t element,
    struct optimfs_comparison *m)
{
	double off = ofs_distance(c->type, p, q, x, y);
	double most = fmax(fabs(x), fabs(y));
	uint64_t ulps = ofs_ulps(c->type, p, q);

	if (isfinite(off) && isfinite(most)) {
		if (off > m->max_abs || m->finite == 0) {
			m->max_abs = off;
			m->at = element;
		}
		if (most > 0 && off / most > m->max_rel)
			m->max_rel = off / most;
		m->finite++;
	}
	if (ulps != UINT64_MAX && (m->ulps == UINT64_MAX || ulps > m->ulps))
		m->ulps = ulps;
	return (c->rtol > 0 || c->atol > 0) && within(c, off, most);
}

static void add_sums(double x, double y, struct optimfs_comparison *m)
{
	if (!isfinite(x) || !isfinite(y))
		return;
	m->square += (x - y) * (x - y);
	m->square_a += x * x;
	m->square_b += y * y;
	m->dot += x * y;
}

/* Counts an element whose n numbers are NaN or infinite on one side only. */
static void count_lost(const double *x, const double *y, unsigned n,
    struct optimfs_comparison *m)
{
	bool nan[2] = { false, false }, inf[2] = { false, false };

	for (unsigned i = 0; i < n; i++) {
		nan[0] |= isnan(x[i]);
		nan[1] |= isnan(y[i]);
		inf[0] |= isinf(x[i]);
		inf[1] |= isinf(y[i]);
	}
	m->nan_a += nan[0] && !nan[1];
	m->nan_b += nan[1] && !nan[0];
	m->inf_a += inf[0] && !inf[1];
	m->inf_b += inf[1] && !inf[0];
}

/* Measures n elements from first on. Elements without numbers are compared as
 * bytes. */
static void measure(const struct compare *c, const uint8_t *p, const uint8_t *q,
    size_t n, uint64_t first, struct optimfs_comparison *m)
{
	unsigned each = ofs_numbers(c->type);
	size_t item = ofs_dtype_size(c->type),
	       size = item / (each == 2 ? 2 : 1);
	double x[BLOCK], y[BLOCK];

	ofs_to_double(c->type, c->codes, p, n * each, x);
	ofs_to_double(c->type, c->codes, q, n * each, y);
	for (size_t i = 0; i < n; i++) {
		bool same = memcmp(p + i * item, q + i * item, item) == 0;
		bool near = each > 0;

		for (size_t k = i * each; k < (i + 1) * each; k++) {
			add_sums(x[k], y[k], m);
			if (!same)
				near &= measure_one(c, p + k * size,
				    q + k * size, x[k], y[k], first + i, m);
		}
		if (same || near)
			continue;
		count_lost(x + i * each, y + i * each, each, m);
		if (m->differ++ == 0)
			m->first = first + i;
	}
}

/* Appends b to a, times times. */
static void add_comparison(struct optimfs_comparison *a,
    const struct optimfs_comparison *b, uint64_t times)
{
	if (a->differ == 0)
		a->first = b->first;
	if (b->finite > 0 && (a->finite == 0 || b->max_abs > a->max_abs)) {
		a->max_abs = b->max_abs;
		a->at = b->at;
	}
	a->max_rel = fmax(a->max_rel, b->max_rel);
	if (b->ulps != UINT64_MAX &&
	    (a->ulps == UINT64_MAX || b->ulps > a->ulps))
		a->ulps = b->ulps;
	a->differ += times * b->differ;
	a->finite += times * b->finite;
	a->nan_a += times * b->nan_a;
	a->nan_b += times * b->nan_b;
	a->inf_a += times * b->inf_a;
	a->inf_b += times * b->inf_b;
	a->square += (double)times * b->square;
	a->square_a += (double)times * b->square_a;
	a->square_b += (double)times * b->square_b;
	a->dot += (double)times * b->dot;
}

static int look(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct compare *c = ctx;

	(void)mine, (void)err;
	if (memcmp(k->buf[0], k->buf[1], k->n * ofs_dtype_size(c->type)) != 0)
		atomic_store(&c->differ, true);
	return 0;
}

static int pass(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	(void)ctx, (void)mine, (void)k, (void)err;
	return 0;
}

static int work(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	const struct compare *c = ctx;
	struct optimfs_comparison *m = mine;
	size_t item = ofs_dtype_size(c->type), step = BLOCK / 2;

	(void)err;
	*m = (struct optimfs_comparison){ .ulps = UINT64_MAX };
	for (size_t i = 0; i < k->n; i += step)
		measure(c, (const uint8_t *)k->buf[0] + i * item,
		    (const uint8_t *)k->buf[1] + i * item,
		    k->n - i < step ? k->n - i : step, k->first + i, m);
	return 0;
}

static int join(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct compare *c = ctx;

	(void)err;
	add_comparison(&c->all, mine, k->times);
	return 0;
}

static void failed(void *ctx, size_t item, const struct optimfs_error *err)
{
	struct compare *c = ctx;

	(void)item;
	c->failed = true;
	c->why = *err;
}

static void derive(struct optimfs_comparison *m)
{
	double v = m->dot / (sqrt(m->square_a) * sqrt(m->square_b));

	if (m->finite == 0)
		m->at = m->first;
	m->rms = m->square_a > 0 ? sqrt(m->square / m->square_a)
	    : m->square > 0      ? INFINITY
				 : 0;
	m->cosine =
	    m->square_a > 0 && m->square_b > 0 ? fmax(-1, fmin(1, v)) : NAN;
	/* squares of large doubles are infinite, and say nothing */
	if (isinf(m->square_a))
		m->rms = NAN;
	if (isinf(m->square_a) || isinf(m->square_b))
		m->cosine = NAN;
}

/* The dtype of both; OFS_DTYPE_NONE: dtype or shape differ. */
static enum ofs_dtype common_type(struct optimfs *a, uint64_t x,
    struct optimfs *b, uint64_t y, bool *no_memory)
{
	char *dtype[2] = { ofs_attribute(a, x, "dtype", no_memory),
		ofs_attribute(b, y, "dtype", no_memory) };
	char *shape[2] = { ofs_attribute(a, x, "shape", no_memory),
		ofs_attribute(b, y, "shape", no_memory) };
	enum ofs_dtype t = OFS_DTYPE_NONE;

	if (dtype[0] != NULL && dtype[1] != NULL && shape[0] != NULL &&
	    shape[1] != NULL && *shape[0] != '\0' &&
	    strcmp(dtype[0], dtype[1]) == 0 && strcmp(shape[0], shape[1]) == 0)
		t = ofs_dtype_of_name(dtype[0], strlen(dtype[0]));
	for (int i = 0; i < 2; i++) {
		free(dtype[i]);
		free(shape[i]);
	}
	return t;
}

static int compare_twice(struct compare *c, const struct ofs_pool_item *item,
    const struct optimfs_scan *how, struct optimfs_error *err)
{
	static const struct ofs_pool_ops first = {
		sizeof(struct optimfs_comparison), NULL, look, pass, failed
	};
	static const struct ofs_pool_ops second = {
		sizeof(struct optimfs_comparison), NULL, work, join, failed
	};

	if (ofs_pool_run(item, 1, how, &first, c, err) == -1)
		return -1;
	if (!c->failed && atomic_load(&c->differ) &&
	    ofs_pool_run(item, 1, how, &second, c, err) == -1)
		return -1;
	if (c->failed && err != NULL)
		*err = c->why;
	return c->failed ? -1 : 0;
}

int optimfs_compare(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y, const struct optimfs_tolerance *within,
    const struct optimfs_scan *how, struct optimfs_comparison *out,
    struct optimfs_error *err)
{
	bool no_memory = false;
	struct compare c = { .type = common_type(a, x, b, y, &no_memory),
		.rtol = within == NULL ? 0 : within->rtol,
		.atol = within == NULL ? 0 : within->atol,
		.all = { .ulps = UINT64_MAX } };
	struct ofs_pool_item item = { .chunk = CHUNK, .nfiles = 2 };
	struct optimfs_attr attr;
	size_t size;

	if (no_memory)
		return ofs_no_memory(err);
	if (c.type == OFS_DTYPE_NONE)
		return optimfs_fail(err, EINVAL,
		    "no tensors of one type and shape");
	if (optimfs_getattr(a, x, &attr, err) == -1)
		return -1;
	size = ofs_dtype_size(c.type);
	c.codes = ofs_code_values(c.type);
	if (c.codes == NULL && ofs_code_bits(c.type) > 0)
		return ofs_no_memory(err);
	item.elements = c.all.elements = attr.size / size;
	item.file[0].fs = a;
	item.file[0].node = x;
	item.file[1].fs = b;
	item.file[1].node = y;
	item.file[0].size = item.file[1].size = size;
	if (!ofs_known_same(a, x, b, y) &&
	    compare_twice(&c, &item, how, err) == -1)
		return -1;
	derive(&c.all);
	*out = c.all;
	return 0;
}
