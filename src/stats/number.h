/* number.h - elements of any type as doubles */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_NUMBER_H
#define OFS_STATS_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

/* Numbers in an element: 2 for complex types, 0 for those that are bits. */
unsigned ofs_numbers(enum ofs_dtype t);
/* Bits of a number's code, which may be counted: 8 or 16; 0 for the others. */
unsigned ofs_code_bits(enum ofs_dtype t);
/* The smallest normal number of a floating type: smaller ones lose digits. 0:
 * there are no smaller ones. */
double ofs_normal_min(enum ofs_dtype t);
/* What each code of such a type is; kept until the program ends. NULL: no
 * memory. */
const double *ofs_code_values(enum ofs_dtype t);

/* n numbers at p. codes: ofs_code_values, where the type has them.
 * Integers above 2^53 are rounded. */
void ofs_to_double(enum ofs_dtype t, const double *codes, const void *p,
    size_t n, double *out);

/* How many steps of the floating type t the number at p is from that at q;
 * UINT64_MAX where one is NaN, and for other types. */
uint64_t ofs_ulps(enum ofs_dtype t, const void *p, const void *q);

#endif
