/* sum.c - weighted sums of tensors of several catalogs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/sum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "derive/derive.h"
#include "derive/round.h"
#include "read/fetch.h"
#include "stats/number.h"

/* Elements are summed in blocks, each read from all sources before the next. A
 * block is converted some numbers at a time, which stay in the fastest cache. */
#define BLOCK 65536u
#define SOME  512u

struct summed {
	const struct ofs_combination *sum;
	enum ofs_dtype dtype;
	uint32_t of[]; /* a tensor of each source */
};

/* The sum of a block; the union's members are for numbers and integers. */
struct block {
	const struct summed *s;
	uint32_t numbers; /* in an element */
	uint8_t *raw;     /* elements of one source */
	union {
		double *number;
		uint64_t *integer;
	} acc;
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

static void add_numbers(const struct block *b, enum ofs_dtype from,
    double weight, bool first, size_t n)
{
	const double *codes = ofs_code_values(from);
	size_t size = ofs_dtype_size(from) / b->numbers, k;
	double some[SOME];

	for (size_t i = 0; i < n; i += k) {
		double *acc = b->acc.number + i;

		k = n - i < SOME ? n - i : SOME;
		ofs_to_double(from, codes, b->raw + i * size, k, some);
		/* a sum that began with 0 would lose minus zeros */
		if (first)
			for (size_t j = 0; j < k; j++)
				acc[j] = weight * some[j];
		else
			for (size_t j = 0; j < k; j++)
				acc[j] += weight * some[j];
	}
}

static void add_integers(const struct block *b, enum ofs_dtype from,
    double weight, bool first, size_t n)
{
	size_t size = ofs_dtype_size(from);
	unsigned shift = is_signed(from) ? 64 - 8 * (unsigned)size : 0;
	uint64_t w = (uint64_t)(int64_t)weight;

	for (size_t i = 0; i < n; i++) {
		uint64_t v = ofs_get_le(b->raw + i * size, size);

		v = shift == 0 ? v : (uint64_t)((int64_t)(v << shift) >> shift);
		b->acc.integer[i] = (first ? 0 : b->acc.integer[i]) + w * v;
	}
}

/* Adds elements [first, first + count) of source i. */
static int add_source(const struct block *b, uint32_t i, uint64_t first,
    size_t count, struct optimfs_error *err)
{
	const struct ofs_summand *source = &b->s->sum->source[i];
	const struct ofs_tensor *t = &source->reader->cat->tensors[b->s->of[i]];

	if (ofs_fetch_elements(source->reader, t, first, count, b->raw, err) ==
	    -1)
		return optimfs_fail_in(err, "%s", source->name);
	if (is_integer(t->dtype))
		add_integers(b, t->dtype, source->weight, i == 0, count);
	else
		add_numbers(b, t->dtype, source->weight, i == 0,
		    count * b->numbers);
	return 0;
}

static void store(const struct block *b, size_t count, uint8_t *out)
{
	size_t n = count * b->numbers;

	if (is_integer(b->s->dtype)) {
		for (size_t i = 0; i < n; i++)
			ofs_put_le(out + 8 * i, b->acc.integer[i], 8);
		return;
	}
	if (b->s->sum->divisor != 1)
		for (size_t i = 0; i < n; i++)
			b->acc.number[i] /= b->s->sum->divisor;
	ofs_round(b->acc.number, n, b->s->dtype, out);
}

static int sum_blocks(const struct block *b, uint64_t first, uint64_t count,
    uint8_t *out, struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(b->s->dtype), k;

	for (; count > 0; first += k, count -= k, out += k * size) {
		k = count < BLOCK ? (size_t)count : BLOCK;
		for (uint32_t i = 0; i < b->s->sum->n; i++)
			if (add_source(b, i, first, k, err) == -1)
				return -1;
		store(b, k, out);
	}
	return 0;
}

/* The longest element of a source. */
static size_t longest(const struct summed *s)
{
	size_t most = 0;

	for (uint32_t i = 0; i < s->sum->n; i++) {
		const struct ofs_catalog *cat = s->sum->source[i].reader->cat;
		size_t size = ofs_dtype_size(cat->tensors[s->of[i]].dtype);

		if (size > most)
			most = size;
	}
	return most;
}

static int read_sum(struct ofs_reader *r, const struct ofs_derived *d,
    const void *prepared, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	const struct summed *s = d->ctx;
	size_t k = count < BLOCK ? (size_t)count : BLOCK;
	struct block b = { .s = s,
		.numbers = ofs_dtype_is_complex(s->dtype) ? 2 : 1 };
	int ret;

	(void)r;
	(void)prepared;
	b.raw = malloc(k * longest(s));
	b.acc.number = malloc(k * b.numbers * sizeof(*b.acc.number));
	ret = b.raw == NULL || b.acc.number == NULL
	    ? ofs_no_memory(err)
	    : sum_blocks(&b, first, count, buf, err);
	free(b.acc.number);
	free(b.raw);
	return ret;
}

static const struct ofs_derived_ops sum_ops = {
	.name = "sum",
	.read = read_sum,
};

/* Their tables of values are made here, so that a read does not fail. */
static int prepare_codes(const struct summed *s, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < s->sum->n && ret == 0; i++) {
		const struct ofs_catalog *cat = s->sum->source[i].reader->cat;

		ret = ofs_code_prepare(cat->tensors[s->of[i]].dtype, err);
	}
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
