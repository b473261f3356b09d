/* round.h - doubles rounded to elements of any floating type */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_ROUND_H
#define OFS_DERIVE_ROUND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"

/* Can doubles be rounded to numbers of this type? To floating types, and the
 * complex ones that are two of them. */
bool ofs_rounds_to(enum ofs_dtype t);
/* Rounds n numbers to nearest, ties to even, once, whatever the type: not by way
 * of float32. Overflow gives infinity, or NaN if the type has none. For a complex
 * type, an element is two numbers. */
void ofs_round(const double *v, size_t n, enum ofs_dtype to, void *out);

#endif
