/* render_plan.c - which entry goes into which flat parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "format/fsdp/render.h"

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "a view of flat parameters");
}

/* Units. */

static bool same_fqn(const void *ctx, uint32_t i, const void *key, size_t n)
{
	struct ofs_str s = ((const struct ofs_fsdp_files *)ctx)->param[i].fqn;

	return s.len == n && memcmp(s.p, key, n) == 0;
}

uint32_t ofs_fsdp_new_find(const struct ofs_fsdp_files *f, struct ofs_str fqn)
{
	return ofs_map_find(&f->names, ofs_map_hash(fqn.p, fqn.len), same_fqn,
	    f, fqn.p, fqn.len);
}

/* A parameter, or the one that it is another name of. */
static uint32_t find_tied(const struct ofs_fsdp_files *f, struct ofs_str name)
{
	uint32_t param = ofs_fsdp_new_find(f, name);

	for (uint32_t i = 0; i < f->units.nties && param == OFS_NONE; i++) {
		const struct ofs_unit_tie *t = &f->units.tie[i];

		if (t->name.len == name.len &&
		    memcmp(t->name.p, name.p, name.len) == 0)
			param = ofs_fsdp_new_find(f, t->target);
	}
	return param;
}

/* use_orig_params as the view's name says, as the source has it, or true. */
static bool is_orig(const struct ofs_fsdp_files *f)
{
	bool flat = false;

	if (f->to.flat != OFS_FLAT_DEFAULT)
		return f->to.flat == OFS_FLAT_ORIG;
	for (uint32_t i = 0; i < f->units.n; i++) {
		if (f->units.unit[i].orig == 1)
			return true;
		flat = flat || f->units.unit[i].orig == 0;
	}
	return !flat;
}

static int add_params(struct ofs_fsdp_files *f, uint32_t unit,
    struct optimfs_error *err)
{
	const struct ofs_unit *u = &f->units.unit[unit];

	f->unit[unit].param = f->nparams;
	f->unit[unit].nparams = u->flat.nparams;
	for (uint32_t i = 0; i < u->flat.nparams; i++) {
		struct ofs_str fqn = u->param[i].fqn;

		f->param[f->nparams] = (struct ofs_fsdp_new_param){ .fqn = fqn,
			.unit = unit,
			.model = OFS_NONE,
			.id = OFS_NONE };
		if (!ofs_map_add(&f->names, ofs_map_hash(fqn.p, fqn.len),
			f->nparams))
			return no_memory(err);
		f->nparams++;
	}
	return 0;
}

static int read_units(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	int ret = ofs_units_recall(&f->units, f->cat, err);
	uint64_t n = 0;

	if (ret == 1)
		return optimfs_fail(err, EINVAL,
		    "OFS170 a view of flat parameters needs to know the units: "
		    "mount with -o units=FILE (contrib/dump_units.py writes "
		    "one)");
	if (ret == -1)
		return -1;
	for (uint32_t i = 0; i < f->units.n; i++)
		n += f->units.unit[i].flat.nparams;
	f->unit = calloc(f->units.n + 1ull, sizeof(*f->unit));
	f->param = calloc(n + 1, sizeof(*f->param));
	if (f->unit == NULL || f->param == NULL)
		return no_memory(err);
	for (uint32_t i = 0; i < f->units.n; i++)
		if (add_params(f, i, err) == -1)
			return -1;
	f->orig = is_orig(f);
	return 0;
}

/* Entries. */

static bool same_shape(const struct ofs_fsdp_files *f,
    const struct ofs_tensor *t, uint32_t param)
{
	const struct ofs_fsdp_new_param *p = &f->param[param];
	const struct ofs_unit_param *u =
	    &f->units.unit[p->unit].param[param - f->unit[p->unit].param];

	return t->ndim == u->ndim &&
	    memcmp(ofs_tensor_shape(f->cat, t), u->shape,
		t->ndim * sizeof(*u->shape)) == 0;
}

/* A tensor that is to be cut as its parameter is. */
static int check_tensor(const struct ofs_fsdp_files *f, uint32_t entry,
    uint32_t param, struct optimfs_error *err)
{
	const struct ofs_entry *e = &f->cat->entries[entry];
	const struct ofs_tensor *t;

	if (ofs_render_sound(f->cat, e, err) == -1)
		return ofs_render_blame(f->cat, e, err);
	t = ofs_fsdp_new_tensor(f, entry);
	if (same_shape(f, t, param))
		return 0;
	optimfs_fail(err, EOPNOTSUPP,
	    "OFS171 its shape is not that of the parameter in the units, with "
	    "which it would be cut");
	return ofs_render_blame(f->cat, e, err);
}

static int add_model(struct ofs_fsdp_files *f, uint32_t i,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &f->cat->entries[f->model[i]];
	uint32_t n, param;
	const uint32_t *c = ofs_catalog_components(f->cat, e->tree, &n);
	struct ofs_str name;

	if (n != 2) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS171 a model of flat parameters is one dict, in which "
		    "nothing nests");
		return ofs_render_blame(f->cat, e, err);
	}
	name = ofs_catalog_string(f->cat, OFS_PATH_STR(c[1]));
	param = find_tied(f, name);
	f->model_param[i] = param;
	if (param == OFS_NONE)
		return 0;
	if (e->kind != OFS_ENTRY_TENSOR) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS171 the units have it, but it is no tensor");
		return ofs_render_blame(f->cat, e, err);
	}
	if (ofs_fsdp_new_find(f, name) == param)
		f->param[param].model = f->model[i];
	return check_tensor(f, f->model[i], param, err);
}

/* Is name in the module that is called prefix? */
static bool is_within(struct ofs_str name, struct ofs_str prefix)
{
	return prefix.len == 0 ||
	    (name.len > prefix.len && name.p[prefix.len] == '.' &&
		memcmp(name.p, prefix.p, prefix.len) == 0);
}

/* A flat parameter's key is the first of its module's, or the last with
 * use_orig_params. */
static void place_flat(struct ofs_fsdp_files *f, uint32_t unit)
{
	struct ofs_str prefix = f->units.unit[unit].prefix;

	f->unit[unit].at = OFS_NONE;
	for (uint32_t i = 0; i < f->nmodel && f->unit[unit].nparams > 0; i++) {
		uint32_t k = f->orig ? f->nmodel - 1 - i : i, n;
		const uint32_t *c = ofs_catalog_components(f->cat,
		    f->cat->entries[f->model[k]].tree, &n);

		if (!is_within(ofs_catalog_string(f->cat, OFS_PATH_STR(c[1])),
			prefix))
			continue;
		f->unit[unit].at = f->model[k];
		return;
	}
}

static int read_model(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	if (ofs_render_entries(&f->from, &f->to, "model", &f->model, &f->nmodel,
		err) == -1)
		return -1;
	f->model_param = calloc(f->nmodel + 1ull, sizeof(*f->model_param));
	if (f->model_param == NULL)
		return no_memory(err);
	for (uint32_t i = 0; i < f->nmodel; i++)
		if (add_model(f, i, err) == -1)
			return -1;
	for (uint32_t i = 0; i < f->units.n; i++)
		place_flat(f, i);
	return 0;
}

/* The optimizer. */

static bool is_cut(const struct ofs_fsdp_files *f, uint32_t entry)
{
	return entry != OFS_NONE &&
	    f->cat->entries[entry].kind == OFS_ENTRY_TENSOR &&
	    ofs_fsdp_new_tensor(f, entry)->ndim > 0;
}

static int add_state(struct ofs_fsdp_files *f, uint32_t param, uint32_t node,
    struct optimfs_error *err)
{
	uint32_t entry = f->optim.node[node].entry;
	struct ofs_str name = ofs_state_key(&f->optim, node);
	struct ofs_fsdp_new_param *p = &f->param[param];

	if (entry == OFS_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS171 %.120s: its state '%.40s' has parts, which cannot "
		    "be cut",
		    p->fqn.p, name.p);
	if (f->nstates == f->state_cap) {
		uint32_t cap = f->state_cap == 0 ? 64 : f->state_cap * 2;
		struct ofs_fsdp_new_state *grown =
		    reallocarray(f->state, cap, sizeof(*grown));

		if (grown == NULL)
			return no_memory(err);
		f->state = grown;
		f->state_cap = cap;
	}
	f->state[f->nstates++] = (struct ofs_fsdp_new_state){ name.p, entry };
	p->nstates++;
	return is_cut(f, entry) ? check_tensor(f, entry, param, err) : 0;
}

static int in_no_unit(struct ofs_str name, struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS172 %.120s is the optimizer's, but in no unit of the units "
	    "file",
	    name.p);
}

static int read_states(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	const struct ofs_state_node *v = f->optim.node;
	uint32_t state = ofs_state_child(&f->optim, 0, "state");
	uint32_t i = state == OFS_NONE ? OFS_NONE : v[state].child;

	for (; i != OFS_NONE; i = v[i].next) {
		struct ofs_str fqn = ofs_state_key(&f->optim, i);
		uint32_t param = ofs_fsdp_new_find(f, fqn);

		if (param == OFS_NONE)
			return in_no_unit(fqn, err);
		f->param[param].state = f->nstates;
		/* as PyTorch's optimizers do: step comes first */
		for (int cut = 0; cut <= 1; cut++)
			for (uint32_t k = v[i].child; k != OFS_NONE;
			     k = v[k].next)
				if (is_cut(f, v[k].entry) == (cut == 1) &&
				    add_state(f, param, k, err) == -1)
					return -1;
		if (f->param[param].id == OFS_NONE)
			return optimfs_fail(err, EUCLEAN,
			    "OFS452 %.120s has state, but no group of the "
			    "optimizer lists it, so that it has no ID",
			    fqn.p);
	}
	return 0;
}

/* With use_orig_params an ID is a parameter; without, a flat parameter, which
 * takes the place of its first one. */
static int number_params(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	uint32_t n = f->groups.nnames;

	f->id = calloc(n + 1ull, sizeof(*f->id));
	f->by_id = calloc(n + 1ull, sizeof(*f->by_id));
	if (f->id == NULL || f->by_id == NULL)
		return no_memory(err);
	for (uint32_t i = 0; i < f->units.n; i++)
		f->unit[i].id = OFS_NONE;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t param = ofs_fsdp_new_find(f, f->groups.name[i]);
		uint32_t unit;

		if (param == OFS_NONE)
			return in_no_unit(f->groups.name[i], err);
		f->param[param].id = i;
		unit = f->param[param].unit;
		f->id[i] = -1;
		if (!f->orig && f->unit[unit].id != OFS_NONE)
			continue;
		f->unit[unit].id = f->nids;
		f->id[i] = f->nids;
		f->by_id[f->nids++] = f->orig ? param : unit;
	}
	return 0;
}

static int read_optim(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	uint32_t groups;

	if (ofs_state_build(&f->optim, &f->from, &f->to, "optim", err) == -1)
		return -1;
	if (f->optim.n <= 1)
		return 0;
	groups = ofs_optim_groups_of(&f->optim, 0);
	if (groups == OFS_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS173 rank files of flat parameters hold one optimizer, "
		    "with param_groups; this checkpoint has several, or none "
		    "(only=model leaves them out)");
	if (ofs_optim_groups_build(&f->groups, &f->optim, groups, &f->from,
		err) == -1)
		return -1;
	f->has_optim = true;
	return number_params(f, err) == -1 ? -1 : read_states(f, err);
}

/* Layouts. */

/* 16 bytes over the size of an element of the type that the forward pass
 * uses, which a unit that was flattened so tells; else that of the type that
 * is stored. */
static uint32_t align_of(const struct ofs_fsdp_files *f, uint32_t unit)
{
	const struct ofs_unit *u = &f->units.unit[unit];
	size_t size = ofs_dtype_size(u->dtype);

	if (!f->orig)
		return OFS_FLAT_PACKED;
	if (u->align != OFS_FLAT_PACKED)
		return u->align;
	if (size == 0)
		size = ofs_dtype_size(f->unit[unit].dtype);
	return size == 0 || size > 16 ? 4 : 16 / (uint32_t)size;
}

static int lay_units(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	uint32_t world = f->whole ? f->world : f->to.shards;

	for (uint32_t i = 0; i < f->units.n; i++) {
		struct ofs_fsdp_new_unit *u = &f->unit[i];

		u->align = align_of(f, i);
		if (ofs_unit_lay(&f->units.unit[i], u->nparams, f->whole,
			u->align, world, &u->flat, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_fsdp_new_plan(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	if (read_units(f, err) == -1 || read_model(f, err) == -1 ||
	    read_optim(f, err) == -1 || ofs_fsdp_new_check(f, err) == -1)
		return -1;
	return lay_units(f, err);
}
