/* numbers.h - numbers as NumPy prints them: alone, and in arrays */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_NUMBERS_H
#define OFS_CLI_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/dtype.h"

/* The form in which an array shows its numbers, or the parts of complex ones:
 * as FloatingFormat of NumPy's arrayprint.py. */
struct ofs_number_form {
	bool plus;           /* also positive numbers have a sign */
	bool exponent;       /* 1.5e-05 */
	int left, right;     /* columns before and after the point */
	int fraction;        /* with an exponent: digits after the point */
	int exponent_digits; /* with an exponent */
};
struct ofs_numbers {
	enum ofs_dtype t;
	struct ofs_number_form part[2]; /* floating-point types */
	int width;                      /* other types */
};

/* Finds the form for n elements at p. */
void ofs_numbers_init(struct ofs_numbers *f, enum ofs_dtype t, const void *p,
    size_t n);
/* Appends an element in that form; all of them have one width. */
void ofs_numbers_put(const struct ofs_numbers *f, const void *p,
    struct ofs_buf *b);
/* Appends an element that stands alone, with all its digits. */
void ofs_number_put(enum ofs_dtype t, const void *p, struct ofs_buf *b);

#endif
