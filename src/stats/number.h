/* number.h - elements of any dtype as doubles */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATS_NUMBER_H
#define OFS_STATS_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/dtype.h"

/* Numbers in an element: 2 for complex dtypes, 0 for raw bits. */
unsigned ofs_numbers(enum ofs_dtype t);
/* Bits of a number whose codes can be counted: 8 or 16; 0 for other dtypes. */
unsigned ofs_code_bits(enum ofs_dtype t);
/* The smallest normal number of a floating dtype; 0: it has no denormal
 * numbers. */
double ofs_normal_min(enum ofs_dtype t);
/* The value of each code of such a dtype; kept until the program ends. NULL: no
 * memory. */
const double *ofs_code_values(enum ofs_dtype t);
/* Makes these, of a dtype that has them, so that later calls do not fail.
 * ENOMEM. */
int ofs_code_prepare(enum ofs_dtype t, struct optimfs_error *err);

/* Converts n numbers at p. codes: ofs_code_values, for dtypes that have them.
 * Integers above 2^53 are rounded. */
void ofs_to_double(enum ofs_dtype t, const double *codes, const void *p,
    size_t n, double *out);

/* The distance in steps of the floating dtype t between the numbers at p and q;
 * UINT64_MAX if one is NaN, and for other dtypes. */
uint64_t ofs_ulps(enum ofs_dtype t, const void *p, const void *q);
/* The difference between the numbers at p and q, which are x and y as doubles.
 * That of integers is exact before it is rounded, also above 2^53. */
double ofs_distance(enum ofs_dtype t, const void *p, const void *q, double x,
    double y);

#endif
