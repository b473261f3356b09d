/* families.c - rules for the states of known optimizers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/families.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Only rules that follow from how a state is computed, for any gradients. A
 * momentum alone (SGD, Lion, Muon) may have any finite value, so it has no
 * rule.
 *
 * Adamax        exp_inf is at least b2^k |g| for the gradient g of k steps ago,
 *               and exp_avg is a mean of gradients: Adam's bound with first
 *               powers
 * RMSprop       the square of the mean gradient is at most the mean square
 * Adafactor     the means over rows and over columns of the same squares have
 *               equal means
 * Shampoo,      sums or means of g g' for each dimension: no negative diagonal.
 * SOAP          The means of SOAP have equal trace, and its rotations are
 *               orthonormal */

bool ofs_is_one_of(const char *name, const char *const *list)
{
	for (; *list != NULL; list++)
		if (strcmp(name, *list) == 0)
			return true;
	return false;
}

bool ofs_is_master(const char *name)
{
	static const char *const masters[] = { "fp32", "fp32_param",
		"master_param", NULL };

	return ofs_is_one_of(name, masters);
}

/* The states m and v of p, if all its states are in the list. */
static bool pair_of(const struct ofs_optimizers *s, const struct ofs_param *p,
    const char *const *list, struct ofs_bound_rule *rule)
{
	rule->m = ofs_param_state(s, p, list[0]);
	rule->v = ofs_param_state(s, p, list[1]);
	if (rule->m == NULL || rule->v == NULL ||
	    !ofs_dtype_is_float(rule->m->dtype) ||
	    !ofs_dtype_is_float(rule->v->dtype) ||
	    rule->m->elements != rule->v->elements)
		return false;
	for (size_t i = p->first; i < p->first + p->n; i++)
		if (!ofs_is_one_of(ofs_param_state_name(p, &s->files.file[i]),
			list))
			return false;
	return true;
}

/* If only these states exist, exp_avg and exp_avg_sq are those of Adam.
 * Optimizers with other states (SOAP, Adan, Prodigy) use them differently. */
bool ofs_is_adam(const struct ofs_optimizers *s, const struct ofs_param *p)
{
	static const char *const list[] = { "exp_avg", "exp_avg_sq",
		"max_exp_avg_sq", "step", "mu_product", "fp32", "fp32_param",
		"master_param", "kahan_comp", NULL };
	struct ofs_bound_rule rule;

	return pair_of(s, p, list, &rule);
}

bool ofs_bound_of(const struct ofs_optimizers *s, const struct ofs_param *p,
    struct ofs_bound_rule *rule)
{
	static const char *const adamax[] = { "exp_avg", "exp_inf", "step",
		"fp32", "fp32_param", "master_param", NULL };
	static const char *const rmsprop[] = { "grad_avg", "square_avg", "step",
		"momentum_buffer", "fp32", "fp32_param", "master_param", NULL };
	const struct ofs_param_group *g =
	    p->group == SIZE_MAX ? NULL : &s->group[p->group];

	rule->square = pair_of(s, p, adamax, rule);
	if (!rule->square && !pair_of(s, p, rmsprop, rule))
		return false;
	for (int i = 0; i < 2; i++)
		rule->beta[i] = g == NULL ? NAN
		    : rule->square        ? g->beta[i]
					  : g->alpha;
	return true;
}

/* Means and sums of squares: of Adam, Adafactor, Adagrad, RMSprop, Adadelta,
 * Adamax, AdaBelief; and the steps of Rprop. */
static const char *const never_negative[] = { "exp_avg_sq", "max_exp_avg_sq",
	"exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq_r", "exp_avg_sq_c",
	"exp_avg_res_row", "exp_avg_res_col", "row_var", "col_var", "variance",
	"square_avg", "acc_delta", "sum", "exp_inf", "exp_avg_var", "step_size",
	NULL };

/* Adafactor as in transformers and fairseq, in timm and in PyTorch, and
 * CAME. */
static const char *const twins[][2] = { { "exp_avg_sq_row", "exp_avg_sq_col" },
	{ "exp_avg_sq_r", "exp_avg_sq_c" },
	{ "exp_avg_res_row", "exp_avg_res_col" }, { "row_var", "col_var" } };
#define NTWINS (sizeof(twins) / sizeof(twins[0]))
#define SOAP   (NTWINS + 1)

/* Is name in this directory, as "GG/0" is in "GG"? */
static bool is_in(const char *name, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(name, dir, n) == 0 && name[n] == '/';
}

static bool is_square(const struct ofs_file_info *f)
{
	unsigned long long a, b;
	int end = 0;

	return f->shape != NULL &&
	    sscanf(f->shape, "%llu,%llu%n", &a, &b, &end) == 2 &&
	    f->shape[end] == '\0' && a == b;
}

void ofs_state_rule(const struct ofs_optimizers *s, const struct ofs_param *p,
    const struct ofs_file_info *f, struct ofs_state_rule *rule)
{
	const char *name = ofs_param_state_name(p, f);
	bool soap = is_in(name, "GG");

	*rule = (struct ofs_state_rule){ .no_negative = ofs_is_one_of(name,
					     never_negative) };
	for (unsigned i = 0; i < NTWINS; i++)
		if (strcmp(name, twins[i][0]) == 0 ||
		    strcmp(name, twins[i][1]) == 0)
			rule->twins = i + 1;
	if (!is_square(f))
		return;
	if (soap || strncmp(name, "precond_", 8) == 0 ||
	    strncmp(name, "pre_cond_", 9) == 0)
		rule->no_negative = rule->diagonal = true;
	if (soap)
		rule->twins = SOAP;
	/* Q of PSGD has the same name but is triangular. */
	if (is_in(name, "Q"))
		rule->orthonormal = ofs_param_state(s, p, "GG/0") != NULL ||
		    ofs_param_state(s, p, "GG/1") != NULL;
}
