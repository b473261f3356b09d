/* number.c - elements of any dtype as doubles */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "stats/number.h"

#include <endian.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/memory.h"

unsigned ofs_numbers(enum ofs_dtype t)
{
	if (ofs_dtype_is_complex(t))
		return 2;
	switch (t) {
	case OFS_FLOAT64:
	case OFS_FLOAT32:
	case OFS_INT64:
	case OFS_INT32:
	case OFS_UINT64:
	case OFS_UINT32:
	case OFS_QINT32:
		return 1;
	default:
		return ofs_code_bits(t) > 0;
	}
}

unsigned ofs_code_bits(enum ofs_dtype t)
{
	switch (t) {
	case OFS_FLOAT16:
	case OFS_BFLOAT16:
	case OFS_COMPLEX32:
	case OFS_BCOMPLEX32:
	case OFS_INT16:
	case OFS_UINT16:
		return 16;
	case OFS_INT8:
	case OFS_UINT8:
	case OFS_BOOL:
	case OFS_QINT8:
	case OFS_QUINT8:
	case OFS_FLOAT8_E4M3FN:
	case OFS_FLOAT8_E5M2:
	case OFS_FLOAT8_E4M3FNUZ:
	case OFS_FLOAT8_E5M2FNUZ:
	case OFS_FLOAT8_E8M0FNU:
		return 8;
	default:
		return 0;
	}
}

double ofs_normal_min(enum ofs_dtype t)
{
	switch (t) {
	case OFS_FLOAT64:
	case OFS_COMPLEX128:
		return 0x1p-1022;
	case OFS_FLOAT32:
	case OFS_COMPLEX64:
	case OFS_BFLOAT16:
	case OFS_BCOMPLEX32:
		return 0x1p-126;
	case OFS_FLOAT16:
	case OFS_COMPLEX32:
	case OFS_FLOAT8_E5M2:
		return 0x1p-14;
	case OFS_FLOAT8_E4M3FN:
		return 0x1p-6;
	case OFS_FLOAT8_E4M3FNUZ:
		return 0x1p-7;
	case OFS_FLOAT8_E5M2FNUZ:
		return 0x1p-15;
	default:
		return 0;
	}
}

static double *make_values(enum ofs_dtype t)
{
	size_t n = (size_t)1 << ofs_code_bits(t);
	double *v = malloc(n * sizeof(*v));

	for (size_t i = 0; v != NULL && i < n; i++) {
		uint8_t code[2] = { (uint8_t)i, (uint8_t)(i >> 8) };

		v[i] = ofs_dtype_number(t, code);
	}
	return v;
}

const double *ofs_code_values(enum ofs_dtype t)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static double *_Atomic known[OFS_NDTYPES];
	double *v = atomic_load_explicit(&known[t], memory_order_acquire);

	if (v != NULL || ofs_code_bits(t) == 0)
		return v;
	pthread_mutex_lock(&lock);
	v = atomic_load(&known[t]);
	if (v == NULL) {
		v = make_values(t);
		atomic_store(&known[t], v);
	}
	pthread_mutex_unlock(&lock);
	return v;
}

int ofs_code_prepare(enum ofs_dtype t, struct optimfs_error *err)
{
	return ofs_code_bits(t) > 0 && ofs_code_values(t) == NULL
	    ? ofs_no_memory(err)
	    : 0;
}

static double wide_float(const uint8_t *p)
{
	uint32_t bits;
	float f;

	memcpy(&bits, p, sizeof(bits));
	bits = le32toh(bits);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* The hot loop: converts two at once, whatever the compiler makes of the
 * loop. */
static void wide_floats(const uint8_t *p, size_t n, double *out)
{
	size_t i = 0;

#if BYTE_ORDER == LITTLE_ENDIAN
	typedef float pair __attribute__((vector_size(8)));
	typedef double wide __attribute__((vector_size(16)));

	for (; i + 2 <= n; i += 2) {
		pair q;
		wide w;

		memcpy(&q, p + 4 * i, sizeof(q));
		w = __builtin_convertvector(q, wide);
		memcpy(out + i, &w, sizeof(w));
	}
#endif
	for (; i < n; i++)
		out[i] = wide_float(p + 4 * i);
}

static void wide_doubles(const uint8_t *p, size_t n, double *out)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t bits;

		memcpy(&bits, p + 8 * i, sizeof(bits));
		bits = le64toh(bits);
		memcpy(&out[i], &bits, sizeof(bits));
	}
}

void ofs_to_double(enum ofs_dtype t, const double *codes, const void *p,
    size_t n, double *out)
{
	const uint8_t *b = p;

	switch (ofs_code_bits(t)) {
	case 8:
		for (size_t i = 0; i < n; i++)
			out[i] = codes[b[i]];
		return;
	case 16:
		for (size_t i = 0; i < n; i++)
			out[i] = codes[b[2 * i] | b[2 * i + 1] << 8];
		return;
	}
	if (t == OFS_FLOAT32 || t == OFS_COMPLEX64) {
		wide_floats(b, n, out);
		return;
	}
	if (t == OFS_FLOAT64 || t == OFS_COMPLEX128) {
		wide_doubles(b, n, out);
		return;
	}
	for (size_t i = 0; i < n; i++)
		out[i] = ofs_dtype_number(t, b + i * ofs_dtype_size(t));
}

/* Maps codes to integers in the order of their values; zero is 0. */
static int64_t ordinal(const uint8_t *p, size_t size)
{
	uint64_t v = ofs_get_le(p, size), sign = (uint64_t)1 << (8 * size - 1);

	return (v & sign) != 0 ? -(int64_t)(v & ~sign) : (int64_t)v;
}

uint64_t ofs_ulps(enum ofs_dtype t, const void *p, const void *q)
{
	size_t size = ofs_dtype_swap(t);
	int64_t a, b;

	/* for other dtypes, adjacent codes are not adjacent values */
	if (!(ofs_dtype_is_float(t) || ofs_dtype_is_complex(t)) ||
	    isnan(ofs_dtype_number(t, p)) || isnan(ofs_dtype_number(t, q)))
		return UINT64_MAX;
	a = ordinal(p, size);
	b = ordinal(q, size);
	return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

double ofs_distance(enum ofs_dtype t, const void *p, const void *q, double x,
    double y)
{
	uint64_t sign = t == OFS_INT64 ? (uint64_t)1 << 63 : 0, a, b;

	if (t != OFS_INT64 && t != OFS_UINT64)
		return x == y ? 0 : fabs(x - y);
	a = ofs_le64(p) ^ sign; /* in the order of the values */
	b = ofs_le64(q) ^ sign;
	return (double)(a > b ? a - b : b - a);
}
