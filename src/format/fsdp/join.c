/* join.c - parameters and their state, joined from flat shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/fsdp.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/fsdp/optim.h"
#include "naming/ids_file.h"
#include "naming/naming.h"

/* Names. */

struct ofs_unit_place ofs_fsdp_find(const struct ofs_fsdp *f,
    struct ofs_str fqn)
{
	uint32_t number = ofs_keys_find(&f->units->names, fqn.p, fqn.len);

	return number == OFS_NONE ? (struct ofs_unit_place){ OFS_NONE, 0 }
				  : f->at[number];
}

bool ofs_fsdp_knows(const struct ofs_fsdp *f, struct ofs_str fqn)
{
	return ofs_keys_has(&f->order, fqn);
}

uint32_t ofs_fsdp_clean(struct ofs_fsdp *f, struct ofs_str s,
    struct optimfs_error *err)
{
	char *clean = malloc(s.len + 1ull);
	uint32_t str = OFS_NONE;

	if (clean == NULL)
		ofs_no_memory(err);
	else
		str = ofs_catalog_str(f->set->cat, clean,
		    ofs_clean_fqn(s.p, s.len, clean), err);
	free(clean);
	return str;
}

static int collect_names(struct ofs_fsdp *f, struct optimfs_error *err)
{
	const struct ofs_units *u = f->units;
	uint32_t n = 0;

	f->at = calloc(u->names.n + 1ull, sizeof(*f->at));
	if (f->at == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < u->n; i++)
		for (uint32_t k = 0; k < u->unit[i].flat.nparams; k++)
			f->at[n++] = (struct ofs_unit_place){ i, k };
	for (uint32_t i = 0; i < u->norder; i++)
		if (ofs_keys_add(&f->order, u->order[i], err) == OFS_NONE)
			return -1;
	return 0;
}

/* Tensors. */

struct ofs_flat_slice ofs_fsdp_slice(const struct ofs_fsdp *f,
    const struct ofs_ranks_file *file, struct ofs_unit_place at)
{
	const struct ofs_flat *flat = &f->units->unit[at.unit].flat;
	uint32_t rank = file->rank < 0 ? 0 : (uint32_t)file->rank;

	return ofs_flat_slice(flat, at.param, rank % flat->world);
}

int ofs_fsdp_begin(struct ofs_pieces *x, struct ofs_fsdp *f,
    struct ofs_unit_place at, struct optimfs_error *err)
{
	const struct ofs_unit_param *p = ofs_fsdp_param(f, at);

	return ofs_pieces_begin(x, f->set, p->shape, p->ndim,
	    f->units->unit[at.unit].numel[at.param], err);
}

static int read_ids(struct ofs_fsdp *f, struct ofs_ids_file *ids,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	if (f->units == NULL || opt == NULL || opt->ids == NULL ||
	    strcmp(opt->ids, "model") == 0)
		return 0;
	f->ids = ids;
	return ofs_ids_file_read(ids, opt->ids, err);
}

/* Records in the catalog what the units hold about each parameter. The model's
 * and the optimizer's sets of one checkpoint record the same. */
static int record(struct ofs_fsdp *f, struct optimfs_error *err)
{
	struct ofs_catalog *cat = f->set->cat;
	uint32_t n = f->units->names.n;
	struct ofs_flat_param *v;

	if (cat->nflat > 0)
		return 0;
	v = ofs_arena_alloc(&cat->arena, (n + 1ull) * sizeof(*v));
	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_unit_place at = f->at[i];
		struct ofs_str fqn = f->units->names.v[i];
		struct ofs_str prefix = f->units->unit[at.unit].prefix;

		v[i] = (struct ofs_flat_param){
			.name = ofs_catalog_str(cat, fqn.p, fqn.len, err),
			.unit = ofs_catalog_str(cat, prefix.p, prefix.len, err),
			.index = at.param,
			.grad = ofs_fsdp_param(f, at)->grad,
		};
		if (v[i].name == OFS_NONE || v[i].unit == OFS_NONE)
			return -1;
	}
	ofs_catalog_set_flat(cat, v, n);
	return 0;
}

static int record_ties(struct ofs_fsdp *f, struct optimfs_error *err)
{
	const struct ofs_units *u = f->units;
	struct ofs_catalog *cat = f->set->cat;
	struct ofs_name_tie *v;

	if (cat->nties > 0)
		return 0;
	v = ofs_arena_alloc(&cat->arena, (u->nties + 1ull) * sizeof(*v));
	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < u->nties; i++) {
		struct ofs_str name = u->tie[i].name, to = u->tie[i].target;

		v[i].name = ofs_catalog_str(cat, name.p, name.len, err);
		v[i].target = ofs_catalog_str(cat, to.p, to.len, err);
		if (v[i].name == OFS_NONE || v[i].target == OFS_NONE)
			return -1;
	}
	cat->ties = v;
	cat->nties = u->nties;
	return 0;
}

int ofs_fsdp_begin_units(struct ofs_fsdp *f, const struct ofs_units *units,
    struct optimfs_error *err)
{
	f->units = units;
	return collect_names(f, err) == -1 || record(f, err) == -1 ||
		record_ties(f, err) == -1
	    ? -1
	    : 0;
}

void ofs_fsdp_end(struct ofs_fsdp *f)
{
	free(f->at);
	ofs_keys_fini(&f->order);
}

static int find_units(struct ofs_fsdp *f, struct ofs_units *units,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	int ret = opt != NULL && opt->units != NULL
	    ? 1
	    : ofs_handles_units(units, f->set, err);

	if (ret == 1)
		ret = ofs_units_of(units, f->set->cat, f->set->file[0].rel, opt,
		    err);
	if (ret == 0)
		ret = ofs_fsdp_begin_units(f, units, err);
	return ret == -1 ? -1 : 0;
}

int ofs_fsdp_claim(struct ofs_ranks *set, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_fsdp f = { .set = set };
	struct ofs_ids_file ids = { 0 };
	struct ofs_units units = { 0 };
	int ret = find_units(&f, &units, opt, err);

	if (ret == 0)
		ret = read_ids(&f, &ids, opt, err);
	if (ret == 0 && f.units != NULL)
		ret = ofs_handles_model(&f, err);
	if (ret == 0)
		ret = ofs_fsdp_model(&f, err);
	if (ret == 0)
		ret = ofs_fsdp_optims(&f, err);
	ofs_fsdp_end(&f);
	ofs_ids_file_fini(&ids);
	ofs_units_fini(&units);
	return ret;
}
