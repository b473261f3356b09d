/* round.h - doubles rounded to elements of any floating type */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_ROUND_H
#define OFS_DERIVE_ROUND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "derive/lanes.h"

/* The type of one number of an element: of a complex one, that of its parts. */
enum ofs_dtype ofs_number_type(enum ofs_dtype t);
/* The floating type t of one or two bytes. */
const struct ofs_short *ofs_short_of(enum ofs_dtype t);
/* Changes n numbers of size bytes from the order of the machine to that of
 * elements, which is little-endian, or back. */
void ofs_order_bytes(void *p, size_t n, size_t size);
/* Can doubles be rounded to numbers of this type? To floating types, and the
 * complex ones that are two of them. */
bool ofs_rounds_to(enum ofs_dtype t);
/* Rounds n numbers to nearest, ties to even, once, whatever the type: not by way
 * of float32. Overflow gives infinity, or NaN if the type has none. n counts the
 * numbers: of a complex type, an element is two of them. */
void ofs_round(const double *v, size_t n, enum ofs_dtype to, void *out);

#endif
