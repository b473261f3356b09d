/* cast.h - floating elements rounded to a smaller or a larger type */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_CAST_H
#define OFS_PLAN_CAST_H

#include <stddef.h>

#include "catalog/catalog.h"

/* The type of t's elements where floating ones are to be type to: to for
 * float64, float32, bfloat16 and float16; t's own for every other type, for a
 * tensor without dimensions (a step that is counted in bfloat16 stops at 256)
 * and where to is OFS_DTYPE_NONE. */
enum ofs_dtype ofs_cast_type(const struct ofs_tensor *t, enum ofs_dtype to);

/* Does float32 have more bits for each element of this floating type, and all
 * of its values? */
bool ofs_cast_is_short(enum ofs_dtype t);
/* To be called once before elements of such a type are cast. ENOMEM. */
int ofs_cast_prepare(enum ofs_dtype t, struct optimfs_error *err);

/* n elements, little-endian, of one of the four types, or of a short one, as float32,
 * bfloat16 or float16: to the nearest, ties to even, as PyTorch's Tensor.to() rounds (which takes
 * float64 to a half type by way of float32). What is too large is infinite. A
 * NaN stays one: as bfloat16 it is 0x7fc0, as float16 0x7e00 with its sign;
 * otherwise it keeps its upper bits and is quiet, but that of a bfloat16
 * becomes its float32 bit by bit. src and dst are apart. */
void ofs_cast(enum ofs_dtype from, const void *src, enum ofs_dtype to,
    void *dst, size_t n);

#endif
