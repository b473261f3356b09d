/* render_plan.c - the flat parameter of each entry */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/fsdp/render.h"

/* Units. */

uint32_t ofs_fsdp_new_find(const struct ofs_fsdp_files *f, struct ofs_str fqn)
{
	return ofs_keys_find(&f->units.names, fqn.p, fqn.len);
}

/* The parameter of this name, or of a name that is tied to it. */
static uint32_t find_tied(const struct ofs_fsdp_files *f, struct ofs_str name)
{
	uint32_t param = ofs_fsdp_new_find(f, name);

	for (uint32_t i = 0; i < f->units.nties && param == OFS_NONE; i++) {
		const struct ofs_unit_tie *t = &f->units.tie[i];

		if (ofs_str_equal(t->name, name))
			param = ofs_fsdp_new_find(f, t->target);
	}
	return param;
}

/* use_orig_params: from the view's name, else from the source, else true. */
static bool is_orig(const struct ofs_fsdp_files *f)
{
	bool flat = false;

	if (f->m.to.flat != OFS_FLAT_DEFAULT)
		return f->m.to.flat == OFS_FLAT_ORIG;
	for (uint32_t i = 0; i < f->units.n; i++) {
		if (f->units.unit[i].orig == 1)
			return true;
		flat = flat || f->units.unit[i].orig == 0;
	}
	return !flat;
}

static void add_params(struct ofs_fsdp_files *f, uint32_t unit)
{
	const struct ofs_unit *u = &f->units.unit[unit];

	f->unit[unit].param = u->first;
	f->unit[unit].nparams = u->flat.nparams;
	for (uint32_t i = 0; i < u->flat.nparams; i++)
		f->m.param[u->first + i] =
		    (struct ofs_flat_member){ .fqn = u->param[i].fqn,
			    .flat = unit,
			    .model = OFS_NONE,
			    .id = OFS_NONE,
			    .shape = u->param[i].shape,
			    .ndim = u->param[i].ndim };
}

static int read_units(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	int ret = ofs_units_recall(&f->units, f->m.cat, err);

	if (ret == 1) {
		optimfs_fail(err, EINVAL,
		    "OFS170 units of flat parameters unknown: give -o "
		    "units=FILE, which " OFS_DUMP_UNITS
		    " writes in a training job");
		return ofs_mark_lost(err, OPTIMFS_LOST_UNITS);
	}
	if (ret == -1)
		return -1;
	f->m.nparams = f->units.names.n;
	f->unit = calloc(f->units.n + 1ull, sizeof(*f->unit));
	f->m.param = calloc(f->m.nparams + 1ull, sizeof(*f->m.param));
	if (f->unit == NULL || f->m.param == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->units.n; i++)
		add_params(f, i);
	f->orig = is_orig(f);
	return 0;
}

/* Entries. */

static int add_model(struct ofs_fsdp_files *f, uint32_t i,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &f->m.cat->entries[f->model[i]];
	uint32_t n, param;
	const uint32_t *c = ofs_catalog_components(f->m.cat, e->tree, &n);
	struct ofs_str name;

	if (n != 2) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS171 a model of flat parameters is one dict without "
		    "nested dicts");
		return ofs_render_fail_in(f->m.cat, e, err);
	}
	name = ofs_catalog_string(f->m.cat, OFS_PATH_STR(c[1]));
	param = find_tied(f, name);
	f->model_param[i] = param;
	if (param == OFS_NONE)
		return 0;
	if (e->kind != OFS_ENTRY_TENSOR) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS171 the units have it, but it is not a tensor");
		return ofs_render_fail_in(f->m.cat, e, err);
	}
	if (ofs_fsdp_new_find(f, name) == param)
		f->m.param[param].model = f->model[i];
	return ofs_flat_check(&f->m, param, f->model[i], err);
}

/* Is name in the module prefix? */
static bool is_within(struct ofs_str name, struct ofs_str prefix)
{
	return prefix.len == 0 ||
	    (name.len > prefix.len && name.p[prefix.len] == '.' &&
		memcmp(name.p, prefix.p, prefix.len) == 0);
}

/* A flat parameter's key is the first of its module, or the last with
 * use_orig_params. */
static void place_flat(struct ofs_fsdp_files *f, uint32_t unit)
{
	struct ofs_str prefix = f->units.unit[unit].prefix;

	f->unit[unit].at = OFS_NONE;
	for (uint32_t i = 0; i < f->nmodel && f->unit[unit].nparams > 0; i++) {
		uint32_t k = f->orig ? f->nmodel - 1 - i : i, n;
		const uint32_t *c = ofs_catalog_components(f->m.cat,
		    f->m.cat->entries[f->model[k]].tree, &n);

		if (!is_within(ofs_catalog_string(f->m.cat, OFS_PATH_STR(c[1])),
			prefix))
			continue;
		f->unit[unit].at = f->model[k];
		return;
	}
}

static int read_model(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	if (ofs_render_entries(&f->m.from, &f->m.to, "model", &f->model,
		&f->nmodel, err) == -1)
		return -1;
	f->model_param = calloc(f->nmodel + 1ull, sizeof(*f->model_param));
	if (f->model_param == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->nmodel; i++)
		if (add_model(f, i, err) == -1)
			return -1;
	for (uint32_t i = 0; i < f->units.n; i++)
		place_flat(f, i);
	return 0;
}

/* The optimizer. */

static int in_no_unit(struct ofs_str name, struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS172 %.120s is a parameter of the optimizer, but in no unit of "
	    "the units file",
	    name.p);
}

/* With use_orig_params an ID is a parameter. Without, it is a flat parameter,
 * in the place of the first of its parameters. */
static int number_params(struct ofs_fsdp_files *f, uint32_t *of_id,
    struct optimfs_error *err)
{
	uint32_t n = f->m.groups.names.n;

	f->id = calloc(n + 1ull, sizeof(*f->id));
	f->by_id = calloc(n + 1ull, sizeof(*f->by_id));
	if (f->id == NULL || f->by_id == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->units.n; i++)
		f->unit[i].id = OFS_NONE;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t param = ofs_fsdp_new_find(f, f->m.groups.names.v[i]);
		uint32_t unit;

		if (param == OFS_NONE)
			return in_no_unit(f->m.groups.names.v[i], err);
		f->m.param[param].id = i;
		unit = f->m.param[param].flat;
		of_id[i] = param;
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
	uint32_t *of_id;
	int ret;

	if (ofs_flat_read_groups(&f->m,
		"OFS173 rank files of flat parameters hold one optimizer, "
		"with param_groups; this checkpoint has several, or none "
		"(only=model leaves them out)",
		err) == -1)
		return -1;
	if (!f->m.has_optim)
		return 0;
	of_id = calloc(f->m.groups.names.n + 1ull, sizeof(*of_id));
	if (of_id == NULL)
		return ofs_no_memory(err);
	ret = number_params(f, of_id, err);
	if (ret == 0)
		ret = ofs_flat_read_states(&f->m, of_id, NULL, NULL, err);
	free(of_id);
	return ret;
}

/* Layouts. */

/* 16 bytes divided by the element size of the type in the forward pass: as in a
 * unit that is aligned already, else from the dtype of the unit's record, else
 * from the stored type. */
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
	uint32_t world = f->whole ? f->world : f->m.to.shards;

	for (uint32_t i = 0; i < f->units.n; i++) {
		struct ofs_fsdp_new_unit *u = &f->unit[i];

		if (ofs_unit_lay(&f->units.unit[i], u->nparams, f->whole,
			align_of(f, i), world, &u->flat, err) == -1)
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
