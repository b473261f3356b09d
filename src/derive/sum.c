/* sum.c - weighted sums of tensors of several catalogs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/sum.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "derive/derive.h"
#include "derive/lanes.h"
#include "derive/round.h"
#include "read/fetch.h"
#include "stats/number.h"

/* Elements are summed in blocks, which are read from all sources first and stay
 * in the caches together. Reads of 512 KiB are a tenth faster than those of
 * 256 KiB, longer ones hardly. Then some numbers at a time are added, divided and
 * rounded, in the first cache; or if all are of one short type, and the sum is
 * float32, all of these in one pass. The blocks of two sources are not a multiple
 * of a page apart, so that they do not compete for places in the caches. */
#define CACHE     (1u << 20)
#define BLOCK_MIN 4096u /* elements; a multiple of OFS_ROW, as the next two */
#define BLOCK_MAX 131072u
#define SOME      512u
#define LINE      64u /* bytes */

struct summed {
	const struct ofs_combination *sum;
	enum ofs_dtype dtype;
	uint32_t of[]; /* a tensor of each source */
};

struct summing {
	const struct summed *s;
	uint32_t numbers;   /* in an element */
	size_t block;       /* elements of a block */
	size_t pitch;       /* bytes from a source to the next one */
	uint8_t *raw;       /* a block of each source */
	double *weight;     /* of each source */
	enum ofs_lane lane; /* of all, if they are added in one pass */
};

/* The sums of some numbers. */
union sums {
	double number[SOME];
	uint64_t integer[SOME];
};

static bool is_integer(enum ofs_dtype t)
{
	switch (t) {
	case OFS_INT64:
	case OFS_INT32:
	case OFS_INT16:
	case OFS_INT8:
	case OFS_UINT64:
	case OFS_UINT32:
	case OFS_UINT16:
	case OFS_UINT8:
	case OFS_BOOL:
		return true;
	default:
		return false;
	}
}

static bool is_signed(enum ofs_dtype t)
{
	return t == OFS_INT64 || t == OFS_INT32 || t == OFS_INT16 ||
	    t == OFS_INT8;
}

bool ofs_sum_fits(enum ofs_dtype from, enum ofs_dtype to)
{
	if (is_integer(from) || to == OFS_INT64)
		return is_integer(from) && to == OFS_INT64;
	return ofs_rounds_to(from) && ofs_rounds_to(to) &&
	    ofs_dtype_is_complex(from) == ofs_dtype_is_complex(to);
}

/* OFS_NLANES: numbers of this type have to be converted first. */
static enum ofs_lane lane_of(enum ofs_dtype t)
{
	switch (ofs_number_type(t)) {
	case OFS_FLOAT64:
		return OFS_LANE_DOUBLE;
	case OFS_FLOAT32:
		return OFS_LANE_FLOAT;
	case OFS_FLOAT16:
		return OFS_LANE_HALF;
	case OFS_BFLOAT16:
		return OFS_LANE_BFLOAT;
	default:
		return OFS_NLANES;
	}
}

static size_t rows_of(size_t n)
{
	return (n + OFS_ROW - 1) / OFS_ROW;
}

static void add_numbers(enum ofs_dtype from, void *p, size_t n, double weight,
    bool first, double *sum)
{
	const struct ofs_lanes *lanes = ofs_lanes(0);
	enum ofs_lane lane = lane_of(from);
	double some[SOME];

	if (lane == OFS_NLANES) {
		ofs_to_double(from, ofs_code_values(from), p, n, some);
		lane = OFS_LANE_DOUBLE;
		p = some;
	} else {
		ofs_order_bytes(p, n, ofs_dtype_size(ofs_number_type(from)));
	}
	lanes->add[lane](p, rows_of(n), weight, first, sum);
}

static void add_integers(enum ofs_dtype from, const uint8_t *p, size_t n,
    double weight, bool first, uint64_t *sum)
{
	size_t size = ofs_dtype_size(from);
	unsigned shift = is_signed(from) ? 64 - 8 * (unsigned)size : 0;
	uint64_t w = (uint64_t)(int64_t)weight;

	for (size_t i = 0; i < n; i++) {
		uint64_t v = ofs_get_le(p + i * size, size);

		v = shift == 0 ? v : (uint64_t)((int64_t)(v << shift) >> shift);
		sum[i] = (first ? 0 : sum[i]) + w * v;
	}
}

/* A number divided by a power of two is the same as times its inverse. */
static void divide(double *v, size_t n, double by)
{
	const struct ofs_lanes *lanes = ofs_lanes(0);
	int exponent;

	if (by == 1)
		return;
	if (frexp(by, &exponent) == 0.5)
		lanes->multiply(v, rows_of(n), 1 / by);
	else
		lanes->divide(v, rows_of(n), by);
}

static void store(const struct summed *s, union sums *sum, size_t n,
    uint8_t *out)
{
	if (is_integer(s->dtype)) {
		for (size_t i = 0; i < n; i++)
			ofs_put_le(out + 8 * i, sum->integer[i], 8);
		return;
	}
	divide(sum->number, n, s->sum->divisor);
	ofs_round(sum->number, n, s->dtype, out);
}

static enum ofs_dtype type_in(const struct summed *s, uint32_t i)
{
	return s->sum->source[i].reader->cat->tensors[s->of[i]].dtype;
}

/* Adds n of the numbers in a block, from number first on. */
static void sum_some(const struct summing *x, size_t first, size_t n,
    uint8_t *out)
{
	const struct ofs_combination *c = x->s->sum;
	union sums sum;

	for (uint32_t i = 0; i < c->n; i++) {
		enum ofs_dtype from = type_in(x->s, i);
		size_t size = ofs_dtype_size(from) / x->numbers;
		uint8_t *p = x->raw + i * x->pitch + first * size;

		if (is_integer(from))
			add_integers(from, p, n, c->source[i].weight, i == 0,
			    sum.integer);
		else
			add_numbers(from, p, n, c->source[i].weight, i == 0,
			    sum.number);
	}
	store(x->s, &sum, n, out);
}

/* Reads elements [first, first + count) of all sources. */
static int read_block(const struct summing *x, uint64_t first, size_t count,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < x->s->sum->n; i++) {
		const struct ofs_summand *source = &x->s->sum->source[i];
		struct ofs_reader *r = source->reader;

		if (ofs_fetch_elements(r, &r->cat->tensors[x->s->of[i]], first,
			count, x->raw + i * x->pitch, err) == -1)
			return optimfs_fail_in(err, "%s", source->name);
	}
	return 0;
}

/* The lane of all sources, if they can be added to float32 in one pass. */
static enum ofs_lane common_lane(const struct summed *s)
{
	enum ofs_lane lane = lane_of(type_in(s, 0));

	for (uint32_t i = 1; i < s->sum->n; i++)
		if (lane_of(type_in(s, i)) != lane)
			return OFS_NLANES;
	return ofs_number_type(s->dtype) == OFS_FLOAT32 &&
		lane != OFS_LANE_DOUBLE
	    ? lane
	    : OFS_NLANES;
}

/* Adds all n numbers of a block. */
static void sum_all(const struct summing *x, size_t n, uint8_t *out)
{
	const struct ofs_combination *c = x->s->sum;
	enum ofs_dtype from = ofs_number_type(type_in(x->s, 0));
	size_t size = ofs_dtype_size(from), rows = n / OFS_ROW;
	size_t done = rows * OFS_ROW;
	float last[OFS_ROW];
	int exponent;
	bool divide = frexp(c->divisor, &exponent) != 0.5;
	double by = divide ? c->divisor : 1 / c->divisor;
	const struct ofs_lanes *lanes = ofs_lanes(0);

	for (uint32_t i = 0; i < c->n; i++)
		ofs_order_bytes(x->raw + i * x->pitch, n, size);
	lanes->total[x->lane](x->raw, x->pitch, x->weight, c->n, rows, by,
	    divide, out);
	if (done < n) {
		lanes->total[x->lane](x->raw + done * size, x->pitch, x->weight,
		    c->n, 1, by, divide, last);
		memcpy(out + done * sizeof(float), last,
		    (n - done) * sizeof(float));
	}
	ofs_order_bytes(out, n, sizeof(float));
}

static int sum_blocks(const struct summing *x, uint64_t first, uint64_t count,
    uint8_t *out, struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(x->s->dtype) / x->numbers, k, n;

	for (; count > 0; first += k, count -= k) {
		k = count < x->block ? (size_t)count : x->block;
		if (read_block(x, first, k, err) == -1)
			return -1;
		n = k * x->numbers;
		if (x->lane != OFS_NLANES) {
			sum_all(x, n, out);
			out += n * size;
			continue;
		}
		for (size_t i = 0, some; i < n; i += some, out += some * size) {
			some = n - i < SOME ? n - i : SOME;
			sum_some(x, i, some, out);
		}
	}
	return 0;
}

/* Rows are whole, also the last one: so are the buffers. */
static void choose_block(struct summing *x, uint64_t count)
{
	size_t longest = 0, most;

	for (uint32_t i = 0; i < x->s->sum->n; i++) {
		size_t size = ofs_dtype_size(type_in(x->s, i));

		longest = size > longest ? size : longest;
	}
	most = CACHE / longest / x->s->sum->n;
	most = most < BLOCK_MIN ? BLOCK_MIN : most;
	most = most > BLOCK_MAX ? BLOCK_MAX : most / OFS_ROW * OFS_ROW;
	x->block = count < most ? rows_of((size_t)count) * OFS_ROW : most;
	x->pitch = x->block * longest + LINE;
}

static int read_sum(struct ofs_reader *r, const struct ofs_derived *d,
    const void *prepared, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	struct summing x = { .s = d->ctx };
	uint32_t n = x.s->sum->n;
	int ret;

	(void)r;
	(void)prepared;
	x.numbers = ofs_dtype_is_complex(x.s->dtype) ? 2 : 1;
	x.lane = common_lane(x.s);
	choose_block(&x, count);
	x.weight = malloc(n * sizeof(*x.weight) + n * x.pitch);
	if (x.weight == NULL)
		return ofs_no_memory(err);
	x.raw = (uint8_t *)(x.weight + n);
	for (uint32_t i = 0; i < n; i++)
		x.weight[i] = x.s->sum->source[i].weight;
	ret = sum_blocks(&x, first, count, buf, err);
	free(x.weight);
	return ret;
}

static const struct ofs_derived_ops sum_ops = {
	.name = "sum",
	.read = read_sum,
};

/* Tables of the values of bytes are made here, so that a read does not fail. */
static int prepare_codes(const struct summed *s, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < s->sum->n && ret == 0; i++)
		if (lane_of(type_in(s, i)) == OFS_NLANES)
			ret = ofs_code_prepare(type_in(s, i), err);
	return ret;
}

int ofs_sum_derive(struct ofs_catalog *cat, uint32_t tensor,
    const struct ofs_combination *sum, const uint32_t *of,
    struct optimfs_error *err)
{
	size_t n = sum->n * sizeof(*of);
	struct summed *s = ofs_arena_alloc(&cat->arena, sizeof(*s) + n);

	if (s == NULL)
		return ofs_no_memory(err);
	s->sum = sum;
	s->dtype = cat->tensors[tensor].dtype;
	memcpy(s->of, of, n);
	if (prepare_codes(s, err) == -1)
		return -1;
	return ofs_derive_tensor(cat, tensor,
	    &(struct ofs_derived){ .ops = &sum_ops, .ctx = s }, err);
}
