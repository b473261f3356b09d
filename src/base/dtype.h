/* dtype.h - element types and how each framework spells them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_DTYPE_H
#define OFS_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/* The values are internal: never stored. */
enum ofs_dtype {
	OFS_DTYPE_NONE, /* unknown or unsupported */
	OFS_FLOAT64,
	OFS_FLOAT32,
	OFS_FLOAT16,
	OFS_BFLOAT16,
	OFS_INT64,
	OFS_INT32,
	OFS_INT16,
	OFS_INT8,
	OFS_UINT64,
	OFS_UINT32,
	OFS_UINT16,
	OFS_UINT8,
	OFS_BOOL,
	OFS_COMPLEX128,
	OFS_COMPLEX64,
	OFS_COMPLEX32,
	OFS_BCOMPLEX32,
	OFS_FLOAT8_E4M3FN,
	OFS_FLOAT8_E5M2,
	OFS_FLOAT8_E4M3FNUZ,
	OFS_FLOAT8_E5M2FNUZ,
	OFS_FLOAT8_E8M0FNU,
	OFS_FLOAT4_E2M1FN_X2,
	OFS_BITS8,
	OFS_BITS16,
	OFS_BITS1X8,
	OFS_BITS2X4,
	OFS_BITS4X2,
	OFS_QINT8,
	OFS_QUINT8,
	OFS_QINT32,
	OFS_QUINT4X2,
	OFS_QUINT2X4,
	OFS_NDTYPES
};

/* Bytes of one element as stored; 0 for OFS_DTYPE_NONE. */
size_t ofs_dtype_size(enum ofs_dtype t);
/* "float32": PyTorch's name, which is also user.optimfs.dtype. */
const char *ofs_dtype_name(enum ofs_dtype t);
/* The type with PyTorch's name name[0..n), with or without "torch.";
 * OFS_DTYPE_NONE when there is none. */
enum ofs_dtype ofs_dtype_of_name(const char *name, size_t n);
/* The same for a storage class ("FloatStorage") and a safetensors code. */
enum ofs_dtype ofs_dtype_of_storage(const char *name, size_t n);
enum ofs_dtype ofs_dtype_of_safetensors(const char *name, size_t n);
/* The other way; NULL where there is none. */
const char *ofs_dtype_storage(enum ofs_dtype t);
const char *ofs_dtype_safetensors(enum ofs_dtype t);
/* NumPy's descr of .npy files ("<f4", "<V2" for bfloat16 ...; ml_dtypes' name
 * where it has one); NULL when NumPy cannot hold it. */
const char *ofs_dtype_npy(enum ofs_dtype t);
/* The type of a NumPy code, "f4" or with its byte order "<f4"; *swap is whether
 * elements have to be turned. OFS_DTYPE_NONE for codes that say less than a
 * type: records, texts, bytes. */
enum ofs_dtype ofs_dtype_of_npy(struct ofs_str code, bool *swap);
/* Two numbers an element. */
bool ofs_dtype_is_complex(enum ofs_dtype t);
/* One number of a sign, an exponent and a fraction: neither a complex type nor
 * float8_e8m0fnu, which has no fraction. */
bool ofs_dtype_is_float(enum ofs_dtype t);
/* Bytes that swap together on a big-endian writer: half an element for
 * complex types, 1 where order has no meaning. */
size_t ofs_dtype_swap(enum ofs_dtype t);

/* The element at p (little-endian) as text that parses back to the same bits
 * (any NaN to the usual one): for floats the shortest decimal of the double
 * that it equals, as Python's item() prints it ("0.1", "1e-08", "NaN",
 * "Infinity"; float32's 0.1 is "0.10000000149011612"), digits for
 * integers, true or false, "(re+imj)" for complex types, hexadecimal for bit
 * types. Returns its length, at most 79; text is NUL-terminated. */
size_t ofs_dtype_print(enum ofs_dtype t, const void *p, char text[80]);
/* The inverse: text[0..n) without its newline into the element at p.
 * 0, or EINVAL when it does not parse, ERANGE when it does not fit. */
int ofs_dtype_parse(enum ofs_dtype t, const char *text, size_t n, void *p);
/* The number at p: an element, or half of a complex one. Integers above 2^53
 * are rounded; NaN for the types that are bits. */
double ofs_dtype_number(enum ofs_dtype t, const void *p);
/* A double as above ("1.0", "1e-08", "NaN"). */
size_t ofs_print_double(double v, char text[80]);

#endif
