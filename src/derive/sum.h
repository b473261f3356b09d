/* sum.h - weighted sums of tensors of several catalogs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_SUM_H
#define OFS_DERIVE_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "read/reader.h"

/* One summand: tensors that reader reads, times weight. name tells people which
 * of the sources it is ("step 1000"). */
struct ofs_summand {
	struct ofs_reader *reader;
	const char *name;
	double weight;
};

/* What the sums of one catalog share: (w1 x1 + w2 x2 + ...) / divisor. */
struct ofs_combination {
	double divisor;
	uint32_t n;
	const struct ofs_summand *source;
};

/* Can tensors of this type be summed to a tensor of type to? Floating types to
 * floating types, complex ones to complex ones, integers and booleans to
 * int64. */
bool ofs_sum_fits(enum ofs_dtype from, enum ofs_dtype to);

/* Makes a tensor of cat, which is being built, the sum of tensors of[i] of the
 * sources: they must have its shape. sum must live as long as cat. Numbers are
 * added as float64 in the order of the sources, divided, and rounded once to the
 * dtype of the tensor; integers, whose weights must be integers, are added
 * modulo 2^64. A tensor with an error in one source fails reads with it. */
int ofs_sum_derive(struct ofs_catalog *cat, uint32_t tensor,
    const struct ofs_combination *sum, const uint32_t *of,
    struct optimfs_error *err);

#endif
