/* families.h - rules for the states of known optimizers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_FAMILIES_H
#define OFS_ANALYZE_FAMILIES_H

#include "analyze/optimizers.h"

/* A moment m and a state v that bounds it: m^2 <= bound * v, or bound * v^2
 * with square. */
struct ofs_bound_rule {
	const struct ofs_file_info *m, *v;
	double beta[2]; /* NaN: unknown */
	bool square;
};

/* Rules for a single state. */
struct ofs_state_rule {
	bool no_negative;
	bool diagonal;    /* the rule is for the diagonal only */
	bool orthonormal; /* a rotation */
	/* States of a parameter with the same number derive from the same
	 * gradients: their means are equal, or with diagonal their traces. 0:
	 * none. */
	unsigned twins;
};

/* The bound rule of p, if it has one; not for Adam. */
bool ofs_bound_of(const struct ofs_optimizers *s, const struct ofs_param *p,
    struct ofs_bound_rule *rule);
void ofs_state_rule(const struct ofs_optimizers *s, const struct ofs_param *p,
    const struct ofs_file_info *f, struct ofs_state_rule *rule);
/* Do exp_avg and exp_avg_sq of p follow Adam's rules? */
bool ofs_is_adam(const struct ofs_optimizers *s, const struct ofs_param *p);

/* Is it the name of an optimizer's own weights? */
bool ofs_is_master(const char *name);
/* Is name in list, which ends with NULL? */
bool ofs_is_one_of(const char *name, const char *const *list);

#endif
