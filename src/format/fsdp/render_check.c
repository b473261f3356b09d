/* render_check.c - agreement of the parameters of a flat parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/dtype.h"
#include "base/keys.h"
#include "format/fill.h"
#include "format/fsdp/render.h"

/* Model: all parameters of a unit are present, with the same dtype. */

static int check_dtype(struct ofs_fsdp_files *f, uint32_t unit, uint32_t param,
    struct optimfs_error *err)
{
	struct ofs_fsdp_new_unit *u = &f->unit[unit];
	const struct ofs_flat_member *p = &f->m.param[param];
	enum ofs_dtype dtype;

	if (p->model == OFS_NONE)
		return optimfs_fail(err, EUCLEAN,
		    "OFS174 the model lacks %.120s, which the units file has",
		    p->fqn.p);
	dtype = ofs_render_dtype(&f->m.to, ofs_flat_tensor(&f->m, p->model));
	if (u->dtype == OFS_DTYPE_NONE)
		u->dtype = dtype;
	if (u->dtype == dtype)
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS174 %.120s is %s, other parameters of unit \"%.60s\" are %s: a "
	    "flat parameter has one type",
	    p->fqn.p, ofs_dtype_name(dtype), f->units.unit[unit].prefix.p,
	    ofs_dtype_name(u->dtype));
}

static int check_model(struct ofs_fsdp_files *f, uint32_t unit,
    struct optimfs_error *err)
{
	const struct ofs_fsdp_new_unit *u = &f->unit[unit];

	for (uint32_t i = u->param; i < u->param + u->nparams; i++)
		if (check_dtype(f, unit, i, err) == -1)
			return -1;
	return 0;
}

/* Optimizer, without use_orig_params: its parameters are the flat ones. */

/* All parameters of a unit are in one group, or in none. */
static int check_group(const struct ofs_fsdp_files *f, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	const struct ofs_flat_member *p = &f->m.param[a], *q = &f->m.param[b];
	uint32_t i = 0;

	while (p->id != OFS_NONE && i < f->m.groups.n &&
	    p->id >= f->m.groups.v[i].first + f->m.groups.v[i].n)
		i++;
	if (p->id == OFS_NONE ? q->id == OFS_NONE
			      : q->id >= f->m.groups.v[i].first &&
		    q->id < f->m.groups.v[i].first + f->m.groups.v[i].n)
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS174 %.80s and %.80s are of one flat parameter, but not of one "
	    "group of the optimizer (the option orig keeps them separate)",
	    p->fqn.p, q->fqn.p);
}

/* Can the two states be part of one flat parameter's state? */
static int check_pair(const struct ofs_fsdp_files *f, const char *name,
    uint32_t a, uint32_t b, struct optimfs_error *err)
{
	int alike = ofs_flat_alike(&f->m, a, b, err);

	if (alike != 0)
		return alike == 1 ? 0 : -1;
	optimfs_fail(err, EOPNOTSUPP,
	    "OFS174 another type or value of '%.40s' than the other parameters "
	    "of its flat parameter have (the option orig keeps them separate)",
	    name);
	return ofs_render_fail_in(f->m.cat, &f->m.cat->entries[b], err);
}

/* May q lack this state? fill=zero fills it in. A parameter without any state
 * gets the step of the others, as in one flat parameter it would have. */
static bool may_lack(const struct ofs_flat_member *q, const char *name)
{
	return ofs_starts_at_zero(name) ||
	    (q->nstates == 0 && strcmp(name, "step") == 0);
}

/* b must have all state of a, except, with fill, state that can be filled
 * in. */
static int check_has(const struct ofs_fsdp_files *f, uint32_t a, uint32_t b,
    bool fill, struct optimfs_error *err)
{
	const struct ofs_flat_member *p = &f->m.param[a], *q = &f->m.param[b];

	for (uint32_t i = p->state; i < p->state + p->nstates; i++) {
		const struct ofs_flat_state *s = &f->m.state[i];
		const struct ofs_flat_state *t =
		    ofs_flat_find(&f->m, b, s->name);

		if (t == NULL && fill && may_lack(q, s->name))
			continue;
		if (t == NULL)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS174 %.100s has no state '%.40s', %.100s of the "
			    "same flat parameter has (the option orig keeps "
			    "them separate; fill=zero supplies the zeros that "
			    "Adam and momentum begin with)",
			    q->fqn.p, s->name, p->fqn.p);
		if (check_pair(f, s->name, s->entry, t->entry, err) == -1)
			return -1;
	}
	return 0;
}

static int check_flat(struct ofs_fsdp_files *f, uint32_t unit,
    struct optimfs_error *err)
{
	struct ofs_fsdp_new_unit *u = &f->unit[unit];
	uint32_t end = u->param + u->nparams;

	for (uint32_t i = u->param; i < end; i++)
		if (f->m.param[i].nstates > f->m.param[u->primary].nstates)
			u->primary = i;
	for (uint32_t i = u->param; i < end; i++)
		if (check_group(f, u->primary, i, err) == -1 ||
		    check_has(f, u->primary, i, f->m.to.fill_zero, err) == -1 ||
		    (f->m.param[i].nstates > 0 &&
			check_has(f, i, u->primary, false, err) == -1))
			return -1;
	return 0;
}

/* With use_orig_params, no rank has a parameter without elements, and its state
 * would be lost. */
static int check_empty(const struct ofs_fsdp_files *f, uint32_t unit,
    struct optimfs_error *err)
{
	const struct ofs_fsdp_new_unit *u = &f->unit[unit];

	for (uint32_t i = 0; i < u->nparams; i++)
		if (f->m.param[u->param + i].nstates > 0 &&
		    f->units.unit[unit].numel[i] == 0)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS174 %.120s has state but no elements: no rank "
			    "would have it",
			    f->m.param[u->param + i].fqn.p);
	return 0;
}

/* A module has one flat parameter, whose key is made from its name. */
static int check_modules(const struct ofs_fsdp_files *f,
    struct optimfs_error *err)
{
	struct ofs_keys keys = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < f->units.n && ret == 0; i++) {
		struct ofs_str prefix = f->units.unit[i].prefix;
		uint32_t unit = ofs_keys_add(&keys, prefix, err);

		if (unit == OFS_NONE)
			ret = -1;
		else if (unit < i)
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS163 units %u and %u are both of the module "
			    "\"%.100s\"",
			    unit, i, prefix.p);
	}
	ofs_keys_fini(&keys);
	return ret;
}

int ofs_fsdp_new_check(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	if (f->nmodel > 0 && !f->whole && check_modules(f, err) == -1)
		return -1;
	for (uint32_t i = 0; i < f->units.n; i++) {
		f->unit[i].primary = f->unit[i].param;
		if (f->nmodel > 0 && check_model(f, i, err) == -1)
			return -1;
		if (f->m.has_optim && !f->orig && check_flat(f, i, err) == -1)
			return -1;
		if (f->m.has_optim && f->orig && !f->whole &&
		    check_empty(f, i, err) == -1)
			return -1;
	}
	return 0;
}
