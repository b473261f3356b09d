/* cast.h - floating elements rounded to a smaller or a larger type */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_CAST_H
#define OFS_PLAN_CAST_H

#include <stddef.h>

#include "catalog/catalog.h"

/* The element type of t after a conversion of floating types to the type to: to
 * for float64, float32, bfloat16 and float16. All other types stay, as does a
 * tensor without dimensions (a step counted in bfloat16 would stop at 256), and
 * all when to is OFS_DTYPE_NONE. */
enum ofs_dtype ofs_cast_type(const struct ofs_tensor *t, enum ofs_dtype to);

/* Is this a floating type whose elements are shorter than float32 and all fit
 * in it? */
bool ofs_cast_is_short(enum ofs_dtype t);
/* Must be called once before elements of such a type are cast. ENOMEM. */
int ofs_cast_prepare(enum ofs_dtype t, struct optimfs_error *err);

/* Convert n elements, little-endian, of one of the four types or of a short
 * one, to float32, bfloat16 or float16: to nearest, ties to even, as PyTorch's
 * Tensor.to() rounds (which converts float64 to a half type by way of float32).
 * Overflow gives infinity. A NaN stays a NaN: as bfloat16 it is 0x7fc0, as
 * float16 0x7e00 with its sign; as float32 it keeps its upper bits and becomes
 * quiet, except that bfloat16 is widened bit by bit. src and dst must not
 * overlap. */
void ofs_cast(enum ofs_dtype from, const void *src, enum ofs_dtype to,
    void *dst, size_t n);

#endif
