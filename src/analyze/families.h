/* families.h - what has to hold of the states of an optimizer, by their names
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_FAMILIES_H
#define OFS_ANALYZE_FAMILIES_H

#include "analyze/optimizers.h"

/* A moment m, and another state v that bounds it: m^2 <= bound * v, or
 * bound * v^2 with square. */
struct ofs_bound_rule {
	const struct ofs_file_info *m, *v;
	double beta[2]; /* NaN: not known */
	bool square;
};

/* What holds of one state alone. */
struct ofs_state_rule {
	bool no_negative;
	bool diagonal;    /* only of the diagonal of a matrix */
	bool orthonormal; /* a rotation */
	/* States of a parameter with the same number are of the same gradients:
	 * their means are equal, or with diagonal their traces. 0: none. */
	unsigned twins;
};

/* Has p moments that are bounded so? Not those of Adam. */
bool ofs_bound_of(const struct ofs_optimizers *s, const struct ofs_param *p,
    struct ofs_bound_rule *rule);
void ofs_state_rule(const struct ofs_optimizers *s, const struct ofs_param *p,
    const struct ofs_file_info *f, struct ofs_state_rule *rule);
/* Are p's exp_avg and exp_avg_sq those of Adam? */
bool ofs_is_adam(const struct ofs_optimizers *s, const struct ofs_param *p);

/* Is it in a list that ends with NULL? */
bool ofs_is_one_of(const char *name, const char *const *list);

#endif
