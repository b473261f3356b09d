/* moments.h - states that are smaller than their parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_MOMENTS_H
#define OFS_NAMING_MOMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Low-rank optimizers (GaLore, APOLLO) keep the moments of a projected gradient:
 * one dimension or more has become the rank. Others keep one number for a row
 * or a block. docs/naming.md, "Smaller states". */

struct ofs_shape {
	const uint64_t *v;
	unsigned n;
};

/* Does a state with this name hold a projection? */
bool ofs_is_projection(struct ofs_str name);
/* May a moment of this shape belong to the parameter? projected: its state has a
 * projection, or its group a rank. Without these signs a smaller dimension
 * must be at most half of the parameter's: a parameter that has lost a few rows
 * since is not one that was projected. */
bool ofs_moment_fits(struct ofs_shape param, struct ofs_shape moment,
    bool projected);
/* May these be means of its squares over rows and over columns, as Adafactor
 * and CAME keep them: with one dimension less each, or 1 in its place? */
bool ofs_factors_fit(struct ofs_shape param, struct ofs_shape row,
    struct ofs_shape col);

#endif
