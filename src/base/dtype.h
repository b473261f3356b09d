/* dtype.h - element types and how each framework spells them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_DTYPE_H
#define OFS_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/types.h"

/* The values are internal and never stored. */
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
/* PyTorch's name, such as "float32"; "unknown" for OFS_DTYPE_NONE.
 * user.optimfs.dtype has it too. */
const char *ofs_dtype_name(enum ofs_dtype t);
/* The type that PyTorch calls name[0..n), with or without "torch.";
 * OFS_DTYPE_NONE when the name is unknown. */
enum ofs_dtype ofs_dtype_of_name(const char *name, size_t n);
/* As above, of a storage class ("FloatStorage") and of a safetensors code. */
enum ofs_dtype ofs_dtype_of_storage(const char *name, size_t n);
enum ofs_dtype ofs_dtype_of_safetensors(const char *name, size_t n);
/* The inverse of these; NULL where the type has no such name. */
const char *ofs_dtype_storage(enum ofs_dtype t);
const char *ofs_dtype_safetensors(enum ofs_dtype t);
/* The descr of .npy files: "<f4"; "<V2" for bfloat16; the name in ml_dtypes
 * where it has one. NULL when NumPy cannot hold the type. */
const char *ofs_dtype_npy(enum ofs_dtype t);
/* The type of a NumPy code, "f4" or with its byte order "<f4". *swap: the bytes
 * of an element must be reversed. OFS_DTYPE_NONE for codes that are not of one
 * element type: records, texts, bytes. */
enum ofs_dtype ofs_dtype_of_npy(struct ofs_str code, bool *swap);
/* An element is two numbers. */
bool ofs_dtype_is_complex(enum ofs_dtype t);
/* Elements are integers that have no meaning without a scale. */
bool ofs_dtype_is_quantized(enum ofs_dtype t);
/* An element is one number with a sign, an exponent and a fraction: no complex
 * type, and not float8_e8m0fnu, which has no fraction. */
bool ofs_dtype_is_float(enum ofs_dtype t);
/* The bytes of a number, which are reversed when a big-endian machine wrote
 * them: half an element for complex types, else an element. */
size_t ofs_dtype_swap(enum ofs_dtype t);

/* Print the element at p, which is little-endian, as text that parses back to
 * the same bits; every NaN becomes the usual one. A float is printed as
 * Python's item() does, as the shortest decimal of the double that it equals:
 * "0.1", "1e-08", "NaN", "Infinity"; float32's 0.1 is "0.10000000149011612".
 * Integers are digits, booleans true or false, complex numbers "(1-2j)", bit
 * types hexadecimal. Returns the length, at most 79; text is NUL-terminated. */
size_t ofs_dtype_print(enum ofs_dtype t, const void *p, char text[80]);
/* The inverse: parse text[0..n), which has no newline, into the element at p.
 * 0, EINVAL when it does not parse, ERANGE when it does not fit. */
int ofs_dtype_parse(enum ofs_dtype t, const char *text, size_t n, void *p);
/* The number at p: an element, or half of a complex one. Integers above 2^53
 * are rounded; bit types give NaN. */
double ofs_dtype_number(enum ofs_dtype t, const void *p);
/* A decimal number: +-0.DDD * 10^point, of n digits that do not end with 0. */
struct ofs_decimal {
	char d[24];
	int n, point;
	bool negative;
};
/* The shortest decimal that parses back to the same element of t: 0.1 for
 * float32's 0.1. p is as for ofs_dtype_number. False: it is NaN or infinite, or
 * the type has no exponent. */
bool ofs_dtype_decimal(enum ofs_dtype t, const void *p,
    struct ofs_decimal *out);
/* Print a double as above ("1.0", "1e-08", "NaN"). */
size_t ofs_print_double(double v, char text[80]);
/* The same for a complex number, as Python prints it ("(1-2j)", "2j"). */
size_t ofs_print_complex(double re, double im, char text[80]);

#endif
