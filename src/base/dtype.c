/* dtype.c - the table of element types and their names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/dtype.h"

#include <string.h>

#include "base/str.h"

static const struct {
	const char *name;        /* PyTorch's */
	const char *alias;       /* PyTorch's second name */
	const char *storage;     /* typed storage class, up to PyTorch 2.x */
	const char *safetensors; /* safetensors' code */
	const char *npy;         /* descr; V: bytes, which ml_dtypes can view */
	uint8_t size, swap;
} types[OFS_NDTYPES] = {
	[OFS_DTYPE_NONE] = { "unknown", NULL, NULL, NULL, NULL, 0, 1 },
	[OFS_FLOAT64] = { "float64", "double", "DoubleStorage", "F64", "<f8", 8,
	    8 },
	[OFS_FLOAT32] = { "float32", "float", "FloatStorage", "F32", "<f4", 4,
	    4 },
	[OFS_FLOAT16] = { "float16", "half", "HalfStorage", "F16", "<f2", 2,
	    2 },
	[OFS_BFLOAT16] = { "bfloat16", NULL, "BFloat16Storage", "BF16", "<V2",
	    2, 2 },
	[OFS_INT64] = { "int64", "long", "LongStorage", "I64", "<i8", 8, 8 },
	[OFS_INT32] = { "int32", "int", "IntStorage", "I32", "<i4", 4, 4 },
	[OFS_INT16] = { "int16", "short", "ShortStorage", "I16", "<i2", 2, 2 },
	[OFS_INT8] = { "int8", NULL, "CharStorage", "I8", "|i1", 1, 1 },
	[OFS_UINT64] = { "uint64", NULL, NULL, "U64", "<u8", 8, 8 },
	[OFS_UINT32] = { "uint32", NULL, NULL, "U32", "<u4", 4, 4 },
	[OFS_UINT16] = { "uint16", NULL, NULL, "U16", "<u2", 2, 2 },
	[OFS_UINT8] = { "uint8", NULL, "ByteStorage", "U8", "|u1", 1, 1 },
	[OFS_BOOL] = { "bool", NULL, "BoolStorage", "BOOL", "|b1", 1, 1 },
	[OFS_COMPLEX128] = { "complex128", "cdouble", "ComplexDoubleStorage",
	    "C128", "<c16", 16, 8 },
	[OFS_COMPLEX64] = { "complex64", "cfloat", "ComplexFloatStorage", "C64",
	    "<c8", 8, 4 },
	[OFS_COMPLEX32] = { "complex32", "chalf", NULL, NULL, NULL, 4, 2 },
	[OFS_BCOMPLEX32] = { "bcomplex32", NULL, NULL, NULL, NULL, 4, 2 },
	[OFS_FLOAT8_E4M3FN] = { "float8_e4m3fn", NULL, NULL, "F8_E4M3", "<V1",
	    1, 1 },
	[OFS_FLOAT8_E5M2] = { "float8_e5m2", NULL, NULL, "F8_E5M2", "<V1", 1,
	    1 },
	[OFS_FLOAT8_E4M3FNUZ] = { "float8_e4m3fnuz", NULL, NULL, "F8_E4M3FNUZ",
	    "<V1", 1, 1 },
	[OFS_FLOAT8_E5M2FNUZ] = { "float8_e5m2fnuz", NULL, NULL, "F8_E5M2FNUZ",
	    "<V1", 1, 1 },
	[OFS_FLOAT8_E8M0FNU] = { "float8_e8m0fnu", NULL, NULL, "F8_E8M0", "<V1",
	    1, 1 },
	[OFS_FLOAT4_E2M1FN_X2] = { "float4_e2m1fn_x2", NULL, NULL, "F4", NULL,
	    1, 1 },
	[OFS_BITS8] = { "bits8", NULL, NULL, NULL, "|u1", 1, 1 },
	[OFS_BITS16] = { "bits16", NULL, NULL, NULL, "<u2", 2, 2 },
	[OFS_BITS1X8] = { "bits1x8", NULL, NULL, NULL, NULL, 1, 1 },
	[OFS_BITS2X4] = { "bits2x4", NULL, NULL, NULL, NULL, 1, 1 },
	[OFS_BITS4X2] = { "bits4x2", NULL, NULL, NULL, NULL, 1, 1 },
	[OFS_QINT8] = { "qint8", NULL, "QInt8Storage", NULL, "|i1", 1, 1 },
	[OFS_QUINT8] = { "quint8", NULL, "QUInt8Storage", NULL, "|u1", 1, 1 },
	[OFS_QINT32] = { "qint32", NULL, "QInt32Storage", NULL, "<i4", 4, 4 },
	[OFS_QUINT4X2] = { "quint4x2", NULL, "QUInt4x2Storage", NULL, NULL, 1,
	    1 },
	[OFS_QUINT2X4] = { "quint2x4", NULL, "QUInt2x4Storage", NULL, NULL, 1,
	    1 },
};

size_t ofs_dtype_size(enum ofs_dtype t)
{
	return types[t].size;
}

size_t ofs_dtype_swap(enum ofs_dtype t)
{
	return types[t].swap;
}

bool ofs_dtype_is_complex(enum ofs_dtype t)
{
	return t == OFS_COMPLEX128 || t == OFS_COMPLEX64 ||
	    t == OFS_COMPLEX32 || t == OFS_BCOMPLEX32;
}

bool ofs_dtype_is_quantized(enum ofs_dtype t)
{
	return t >= OFS_QINT8 && t <= OFS_QUINT2X4;
}

bool ofs_dtype_is_float(enum ofs_dtype t)
{
	switch (t) {
	case OFS_FLOAT64:
	case OFS_FLOAT32:
	case OFS_FLOAT16:
	case OFS_BFLOAT16:
	case OFS_FLOAT8_E4M3FN:
	case OFS_FLOAT8_E5M2:
	case OFS_FLOAT8_E4M3FNUZ:
	case OFS_FLOAT8_E5M2FNUZ:
		return true;
	default:
		return false;
	}
}

const char *ofs_dtype_name(enum ofs_dtype t)
{
	return types[t].name;
}

const char *ofs_dtype_npy(enum ofs_dtype t)
{
	return types[t].npy;
}

enum ofs_dtype ofs_dtype_of_npy(struct ofs_str code, bool *swap)
{
	bool big = code.len > 0 && *code.p == '>';

	if (code.len > 1 && memchr("<>|=", *code.p, 4) != NULL)
		code = ofs_str_after(code, 1);
	for (unsigned t = 1; t < OFS_NDTYPES; t++)
		if (types[t].npy != NULL && types[t].npy[1] != 'V' &&
		    ofs_str_is(code, types[t].npy + 1)) {
			*swap = big && types[t].swap > 1;
			return (enum ofs_dtype)t;
		}
	return OFS_DTYPE_NONE;
}

static bool same(const char *want, const char *s, size_t n)
{
	return want != NULL && strlen(want) == n && memcmp(want, s, n) == 0;
}

enum ofs_dtype ofs_dtype_of_name(const char *name, size_t n)
{
	static const char module[] = "torch.";
	const size_t m = sizeof(module) - 1;

	if (n > m && memcmp(name, module, m) == 0) {
		name += m;
		n -= m;
	}
	for (unsigned t = 1; t < OFS_NDTYPES; t++)
		if (same(types[t].name, name, n) ||
		    same(types[t].alias, name, n))
			return (enum ofs_dtype)t;
	return OFS_DTYPE_NONE;
}

enum ofs_dtype ofs_dtype_of_storage(const char *name, size_t n)
{
	for (unsigned t = 1; t < OFS_NDTYPES; t++)
		if (same(types[t].storage, name, n))
			return (enum ofs_dtype)t;
	return OFS_DTYPE_NONE;
}

enum ofs_dtype ofs_dtype_of_safetensors(const char *name, size_t n)
{
	for (unsigned t = 1; t < OFS_NDTYPES; t++)
		if (same(types[t].safetensors, name, n))
			return (enum ofs_dtype)t;
	return OFS_DTYPE_NONE;
}

const char *ofs_dtype_storage(enum ofs_dtype t)
{
	return types[t].storage;
}

const char *ofs_dtype_safetensors(enum ofs_dtype t)
{
	return types[t].safetensors;
}
