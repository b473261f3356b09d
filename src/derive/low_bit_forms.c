/* low_bit_forms.c - do these tensors agree in being one in few bits? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/low_bit_forms.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/str.h"
#include "derive/quant_state.h"

static const uint64_t *shape_of(const struct ofs_low_bit_parts *x,
    const struct ofs_tensor *t)
{
	return ofs_tensor_shape(x->cat, t);
}

static bool is_wide(const struct ofs_tensor *t)
{
	return t->dtype == OFS_FLOAT32 || t->dtype == OFS_BFLOAT16 ||
	    t->dtype == OFS_FLOAT16;
}

/* The result has the shape of codes, but for the last dimension. */
static void set_shape(struct ofs_low_bit_parts *x, unsigned ndim, uint64_t last)
{
	memcpy(x->shape, shape_of(x, x->codes), ndim * sizeof(*x->shape));
	x->shape[ndim - 1] = last;
	x->ndim = ndim;
	x->p->cols = last;
	x->p->rows = 1;
	for (unsigned i = 0; i + 1 < ndim; i++)
		x->p->rows *= x->shape[i]; /* no overflow: they are stored */
}

static bool is_one(const struct ofs_low_bit_parts *x,
    const struct ofs_tensor *t)
{
	return t->ndim <= 1 && ofs_tensor_numel(x->cat, t) == 1;
}

/* FP8 in blocks of 128 x 128, as DeepSeek-V3: X, X_scale_inv. */
static bool match_fp8_blocks(struct ofs_low_bit_parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);

	if (!ofs_is_fp8(x->codes) || !is_wide(x->scale) ||
	    x->codes->ndim != 2 || x->scale->ndim != 2 ||
	    s[0] != c[0] / 128 + (c[0] % 128 != 0) ||
	    s[1] != c[1] / 128 + (c[1] % 128 != 0))
		return false;
	set_shape(x, 2, c[1]);
	x->p->block_rows = x->p->block_cols = 128;
	return true;
}

/* FP8 with one scale, or one for each row: X, X_scale. */
static bool match_fp8(struct ofs_low_bit_parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	const struct ofs_tensor *t = x->scale;
	bool one = is_one(x, t);

	if (!ofs_is_fp8(x->codes) || !is_wide(t) || x->codes->ndim < 1 ||
	    x->factor != NULL)
		return false;
	if (!one &&
	    (x->codes->ndim != 2 || t->ndim < 1 || t->ndim > 2 ||
		s[0] != c[0] || (t->ndim == 2 && s[1] != 1)))
		return false;
	set_shape(x, x->codes->ndim, c[x->codes->ndim - 1]);
	x->p->block_rows = one ? x->p->rows : 1;
	x->p->block_cols = x->p->cols;
	return x->p->rows > 0 && x->p->cols > 0;
}

/* 4-bit codes, two in a byte, in rows with a scale for each block of them. */
static bool match_nibbles(struct ofs_low_bit_parts *x, unsigned block)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	unsigned n = x->codes->ndim;

	if (x->codes->dtype != OFS_UINT8 || n < 1 || x->scale->ndim != n ||
	    memcmp(c, s, (n - 1) * sizeof(*c)) != 0 || c[n - 1] == 0 ||
	    c[n - 1] % (block / 2) != 0 || s[n - 1] != c[n - 1] / (block / 2))
		return false;
	set_shape(x, n, c[n - 1] * 2);
	x->p->nibbles = true;
	x->p->block_rows = 1;
	x->p->block_cols = block;
	return true;
}

/* MXFP4 in rows: X_packed, X_scale. */
static bool match_mxfp4(struct ofs_low_bit_parts *x)
{
	x->p->exponents = true;
	return x->factor == NULL && x->scale->dtype == OFS_UINT8 &&
	    match_nibbles(x, 32);
}

/* MXFP4 in blocks, as gpt-oss: X_blocks [..., n, 16], X_scales [..., n]. */
static bool match_mxfp4_blocks(struct ofs_low_bit_parts *x)
{
	const uint64_t *c = shape_of(x, x->codes), *s = shape_of(x, x->scale);
	unsigned n = x->scale->ndim;

	if (x->codes->dtype != OFS_UINT8 || x->scale->dtype != OFS_UINT8 ||
	    n < 1 || x->codes->ndim != n + 1 || c[n] != 16 ||
	    memcmp(c, s, n * sizeof(*c)) != 0 || s[n - 1] == 0)
		return false;
	set_shape(x, n, s[n - 1] * 32);
	x->p->nibbles = x->p->exponents = true;
	x->p->block_rows = 1;
	x->p->block_cols = 32;
	return true;
}

/* NVFP4: X, X_scale, X_scale_2 of modelopt; X_packed, X_scale, X_global_scale of
 * compressed-tensors, which divides. */
static bool match_nvfp4(struct ofs_low_bit_parts *x)
{
	return x->scale->dtype == OFS_FLOAT8_E4M3FN && x->factor != NULL &&
	    x->factor->dtype == OFS_FLOAT32 && is_one(x, x->factor) &&
	    match_nibbles(x, 16);
}

static bool match_nvfp4_divided(struct ofs_low_bit_parts *x)
{
	x->p->divide = true;
	return match_nvfp4(x);
}

/* The size of the blocks of n elements of which there are count: a power of
 * two; 0: none. */
static uint64_t block_size(uint64_t n, uint64_t count)
{
	uint64_t b = 64;

	while (b < (UINT64_C(1) << 40) && n / b + (n % b != 0) > count)
		b *= 2;
	return n / b + (n % b != 0) == count ? b : 0;
}

/* A moment of an 8-bit optimizer of bitsandbytes: state1, absmax1, qmap1. Those
 * of AdEMAMix are two moments, each with scales of its own: [2, ...], [2, n]. */
static bool match_state(struct ofs_low_bit_parts *x)
{
	uint64_t n = ofs_tensor_numel(x->cat, x->codes);
	uint64_t count = ofs_tensor_numel(x->cat, x->scale), rows = 1, block;

	if (x->codes->ndim < 1 || n == 0 || x->scale->ndim < 1)
		return false;
	if (x->scale->ndim == 2)
		rows = shape_of(x, x->scale)[0];
	if (rows == 0 || (rows > 1 && shape_of(x, x->codes)[0] != rows))
		return false;
	block = block_size(n / rows, count / rows);
	if (x->codes->dtype != OFS_UINT8 || x->scale->dtype != OFS_FLOAT32 ||
	    x->scale->ndim > 2 || x->table == NULL ||
	    x->table->dtype != OFS_FLOAT32 || x->table->ndim != 1 ||
	    shape_of(x, x->table)[0] != 256 || block == 0)
		return false;
	set_shape(x, x->codes->ndim, shape_of(x, x->codes)[x->codes->ndim - 1]);
	x->p->rows = rows;
	x->p->cols = n / rows;
	x->p->block_rows = 1;
	x->p->block_cols = block;
	return true;
}

static bool is_floats(const struct ofs_low_bit_parts *x,
    const struct ofs_tensor *t, uint64_t n)
{
	return t != NULL && t->dtype == OFS_FLOAT32 && t->ndim == 1 &&
	    shape_of(x, t)[0] == n;
}

static uint64_t blocks_of(uint64_t n, uint64_t block)
{
	return n / block + (n % block != 0);
}

/* Are the scales of n elements there, with scales of their own or without? */
static bool match_scales(struct ofs_low_bit_parts *x,
    const struct ofs_quant_state *q, uint64_t n)
{
	uint64_t scales = blocks_of(n, q->block);

	if (x->scale->ndim != 1 || shape_of(x, x->scale)[0] != scales)
		return false;
	if (q->nested == 0)
		return x->nested_scale == NULL &&
		    x->scale->dtype == OFS_FLOAT32;
	x->p->nested_block = q->nested;
	x->p->offset = q->offset;
	return x->scale->dtype == OFS_UINT8 &&
	    is_floats(x, x->nested_scale, blocks_of(scales, q->nested)) &&
	    is_floats(x, x->nested_table, 256);
}

/* A weight of bitsandbytes in 4 bits, which may have any type: it is bytes. The
 * shape of the numbers is in the state only. */
static bool match_bnb_4bit(struct ofs_low_bit_parts *x)
{
	uint64_t n = 0, bytes = ofs_tensor_numel(x->cat, x->codes);
	struct ofs_quant_state q;

	if (ofs_quant_state_parse(x->state.p, x->state.len, &q, x->why) == -1)
		return false;
	/* a transposed one, [1, n], is that of older releases */
	if (!ofs_numel(q.shape, q.ndim, &n) || n == 0 || n > INT64_MAX / 8 ||
	    x->codes->ndim != 2 || shape_of(x, x->codes)[1] != 1 ||
	    bytes * ofs_dtype_size(x->codes->dtype) != n / 2 + n % 2 ||
	    !is_floats(x, x->table, 16) || !match_scales(x, &q, n)) {
		optimfs_fail(x->why, EUCLEAN,
		    "its shape and blocks are not those of the other tensors");
		return false;
	}
	memcpy(x->shape, q.shape, q.ndim * sizeof(*x->shape));
	x->ndim = q.ndim;
	x->p->nibbles = x->p->high_first = true;
	x->p->rows = x->p->block_rows = 1;
	x->p->cols = n;
	x->p->block_cols = q.block;
	return true;
}

/* A weight of bitsandbytes in 8 bits: X.weight, X.SCB, the largest number of each
 * row. Its format is 0: as PyTorch has it. */
static bool match_bnb_8bit(struct ofs_low_bit_parts *x)
{
	const uint64_t *c = shape_of(x, x->codes);

	if (x->codes->dtype != OFS_INT8 || x->codes->ndim != 2 || c[0] == 0 ||
	    c[1] == 0 || !is_floats(x, x->scale, c[0]))
		return false;
	if (x->state.p != NULL && (x->state.len != 1 || x->state.p[0] != 0)) {
		optimfs_fail(x->why, EOPNOTSUPP,
		    "the weight is in an order for certain GPUs");
		return false;
	}
	set_shape(x, 2, c[1]);
	x->p->block_rows = 1;
	x->p->block_cols = c[1];
	x->p->last = 1.0f / 127;
	return true;
}

const struct ofs_low_bit_form ofs_low_bit_forms[] = {
	{ NULL, "", LOW_BIT_CODES, { "", "_scale_inv" }, match_fp8_blocks },
	{ NULL, "", LOW_BIT_CODES, { "", "_scale", "_scale_2" }, match_nvfp4 },
	{ NULL, "", LOW_BIT_CODES, { "", "_scale", "_scale_2" }, match_fp8 },
	{ NULL, "", LOW_BIT_CODES, { "_packed", "_scale", "_global_scale" },
	    match_nvfp4_divided },
	{ NULL, "", LOW_BIT_CODES, { "_packed", "_scale", "_global_scale" },
	    match_mxfp4 },
	{ NULL, "", LOW_BIT_CODES, { "_blocks", "_scales" },
	    match_mxfp4_blocks },
	{ "state1", "", LOW_BIT_CODES, { "state1", "absmax1", NULL, "qmap1" },
	    match_state },
	{ "state2", "", LOW_BIT_CODES, { "state2", "absmax2", NULL, "qmap2" },
	    match_state },
#define BNB_4BIT(type)                                                   \
 {                                                                       \
  NULL, "", LOW_BIT_STATE,                                               \
      { "", ".absmax", NULL, ".quant_map", ".nested_absmax",             \
	      ".nested_quant_map", ".quant_state.bitsandbytes__" type }, \
      match_bnb_4bit                                                     \
 }
	BNB_4BIT("nf4"),
	BNB_4BIT("fp4"),
	{ NULL, ".weight", LOW_BIT_SCALE,
	    { ".weight", ".SCB", NULL, NULL, NULL, NULL, ".weight_format" },
	    match_bnb_8bit },
};
const size_t ofs_low_bit_nforms =
    sizeof(ofs_low_bit_forms) / sizeof(ofs_low_bit_forms[0]);
