/* round.c - doubles rounded to elements of any floating type */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/round.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "base/cursor.h"

static const struct {
	enum ofs_dtype type;
	struct ofs_short s;
} shorts[] = {
	{ OFS_FLOAT16, { 2, 10, -14, 0x7bff, 0x7c00, 0x7e00, true, false } },
	{ OFS_BFLOAT16, { 2, 7, -126, 0x7f7f, 0x7f80, 0x7fc0, false, false } },
	{ OFS_FLOAT8_E4M3FN, { 1, 3, -6, 0x7e, 0x7f, 0x7f, false, false } },
	{ OFS_FLOAT8_E5M2, { 1, 2, -14, 0x7b, 0x7c, 0x7f, false, false } },
	{ OFS_FLOAT8_E4M3FNUZ, { 1, 3, -7, 0x7f, 0x80, 0x80, false, true } },
	{ OFS_FLOAT8_E5M2FNUZ, { 1, 2, -15, 0x7f, 0x80, 0x80, false, true } },
};

enum ofs_dtype ofs_number_type(enum ofs_dtype t)
{
	switch (t) {
	case OFS_COMPLEX128:
		return OFS_FLOAT64;
	case OFS_COMPLEX64:
		return OFS_FLOAT32;
	case OFS_COMPLEX32:
		return OFS_FLOAT16;
	case OFS_BCOMPLEX32:
		return OFS_BFLOAT16;
	default:
		return t;
	}
}

const struct ofs_short *ofs_short_of(enum ofs_dtype t)
{
	size_t i = 0;

	while (shorts[i].type != t)
		i++;
	return &shorts[i].s;
}

bool ofs_rounds_to(enum ofs_dtype t)
{
	return ofs_dtype_is_float(ofs_number_type(t));
}

void ofs_order_bytes(void *p, size_t n, size_t size)
{
	if (BYTE_ORDER != LITTLE_ENDIAN)
		ofs_swap_bytes(p, n * size, size);
}

static void round_rows(const double *v, size_t rows, enum ofs_dtype to,
    void *out)
{
	const struct ofs_lanes *lanes = ofs_lanes(0);
	size_t size = ofs_dtype_size(to);

	if (size == 8) {
		memcpy(out, v, rows * OFS_ROW * sizeof(*v));
	} else if (size == 4) {
		lanes->to_float(v, rows, out);
	} else {
		lanes->to_short(ofs_short_of(to), v, rows, out);
	}
	ofs_order_bytes(out, rows * OFS_ROW, size);
}

void ofs_round(const double *v, size_t n, enum ofs_dtype to, void *out)
{
	enum ofs_dtype t = ofs_number_type(to);
	size_t rest = n % OFS_ROW, size = ofs_dtype_size(t);
	double last[OFS_ROW] = { 0 }, rounded[OFS_ROW];

	assert(ofs_rounds_to(to));
	round_rows(v, n / OFS_ROW, t, out);
	if (rest == 0)
		return;
	memcpy(last, v + n - rest, rest * sizeof(*v));
	round_rows(last, 1, t, rounded);
	memcpy((char *)out + (n - rest) * size, rounded, rest * size);
}
