/* render_universal.c - a universal checkpoint: files per parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/zero/render.h"
#include "format/zero/zero.h"
#include "pickle/write.h"

static int add_file(struct ofs_zero_new *z, uint32_t param, const char *name,
    uint32_t entry, struct optimfs_error *err)
{
	if (ofs_grow(z->file, z->nfiles, z->file_cap, err) == -1)
		return -1;
	z->file[z->nfiles++] = (struct ofs_zero_new_file){ param, name, entry };
	return 0;
}

static int add_state(struct ofs_zero_new *z, uint32_t param,
    const struct ofs_flat_state *s, struct optimfs_error *err)
{
	bool step = strcmp(s->name, "step") == 0;

	/* stage 3's form has the step beside the options */
	if (step && z->stage == 3 && !ofs_flat_is_cut(&z->m, s->entry))
		return 0;
	if (!ofs_zero_fits_name(ofs_str_of(s->name), 252) ||
	    (!step && !ofs_flat_is_cut(&z->m, s->entry) &&
		ofs_flat_tensor(&z->m, z->m.param[param].model)->ndim > 0)) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS684 in a universal checkpoint a state has the shape of "
		    "its parameter, or is step");
		return ofs_render_fail_in(z->m.cat,
		    &z->m.cat->entries[s->entry], err);
	}
	return add_file(z, param, s->name, s->entry, err);
}

int ofs_zero_new_list(struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->m.groups.names.n; i++) {
		const struct ofs_flat_member *p = &z->m.param[i];

		if (z->master[i].frozen)
			continue;
		if (!ofs_zero_fits_name(p->fqn, 255))
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS684 %.120s cannot be the name of a directory, "
			    "which a universal checkpoint has for each "
			    "parameter",
			    p->fqn.p);
		if (add_file(z, i, "fp32", z->master[i].fp32, err) == -1)
			return -1;
		for (uint32_t k = p->state; k < p->state + p->nstates; k++)
			if (add_state(z, i, &z->m.state[k], err) == -1)
				return -1;
	}
	return 0;
}

/* Writes {cat_dim, param: tensor}; in stage 3's form only the elements. */
static int put_tensor(struct ofs_zero_writer *w,
    const struct ofs_zero_new_file *file)
{
	const struct ofs_zero_new *z = w->z;
	const struct ofs_tensor *t = ofs_flat_tensor(&z->m, file->entry);
	uint64_t n = ofs_tensor_numel(z->m.cat, t);
	bool flat = z->stage == 3;
	struct ofs_torch_part whole = {
		.tensor = z->m.cat->entries[file->entry].ref, .count = n
	};
	struct ofs_pkw_view v = { .dtype = ofs_zero_new_dtype(z, file->param,
				      file->entry, &whole.cast),
		.storage = n,
		.shape = flat ? &n : ofs_tensor_shape(z->m.cat, t),
		.ndim = flat ? 1 : t->ndim,
		.grad = file->entry == z->master[file->param].fp32 };

	if (ofs_torch_new_storage(w->p.a, w->p.err) == -1 ||
	    ofs_torch_new_part(w->p.a, z->m.cat, &whole, w->p.err) == -1)
		return -1;
	if (flat)
		return ofs_pkw_view(&w->p.w, &v, w->p.err);
	ofs_pkw_lit(&w->p.w, "{'cat_dim': 0, 'param': ");
	if (ofs_pkw_view(&w->p.w, &v, w->p.err) == -1)
		return -1;
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

int ofs_zero_new_one(const struct ofs_zero_new *z,
    const struct ofs_zero_new_file *file, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err)
{
	const struct ofs_entry *e = &z->m.cat->entries[file->entry];
	struct ofs_zero_writer w = {
		.z = z,
	};
	bool step = strcmp(file->name, "step") == 0 &&
	    !ofs_flat_is_cut(&z->m, file->entry);
	int ret;

	ofs_state_pickler_init(&w.p, &z->m.optim, &z->m.from, pickle, a, err);
	ofs_pkw_begin(&w.p.w);
	ret = step ? ofs_state_put_entry(&w.p, e) : put_tensor(&w, file);
	if (ret == -1)
		return ofs_render_fail_in(z->m.cat, e, err);
	return ofs_pkw_end(&w.p.w, err);
}

/* What stage 3's loader reads: {state: {group: {step}}, param_groups}. */

static const struct ofs_flat_state *step_of(const struct ofs_zero_new *z,
    uint32_t group)
{
	uint32_t first = z->shapes.first[group];

	if (first == z->shapes.first[group + 1])
		return NULL;
	return ofs_flat_find(&z->m, z->order[first], "step");
}

static int put_steps(struct ofs_zero_writer *w)
{
	const struct ofs_zero_new *z = w->z;

	ofs_pkw_lit(&w->p.w, "{*");
	for (uint32_t g = 0; g < z->shapes.ngroups; g++) {
		const struct ofs_flat_state *step = step_of(z, g);

		if (step == NULL)
			continue;
		ofs_pkw_lit(&w->p.w, "%u: {'step': ", g);
		if (ofs_state_put_entry(&w->p,
			&z->m.cat->entries[step->entry]) == -1)
			return -1;
		ofs_pkw_lit(&w->p.w, "},");
	}
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

static int put_stage3(struct ofs_zero_writer *w)
{
	ofs_pkw_lit(&w->p.w,
	    "'partition_count': %u, 'optimizer_state_dict': ", w->z->world);
	return ofs_zero_new_put_base(w, put_steps);
}

int ofs_zero_new_globals(const struct ofs_zero_new *z, struct ofs_torch_new *a,
    struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct ofs_zero_writer w;

	ofs_zero_new_begin(&w, z, 0, a, pickle, err);
	if (ofs_zero_new_put_scaler(&w) == -1 ||
	    (z->stage == 3 && put_stage3(&w) == -1))
		return -1;
	ofs_zero_new_put_version(&w);
	ofs_pkw_lit(&w.p.w, "'param_groups': ");
	if (ofs_zero_new_put_groups(&w) == -1)
		return -1;
	return ofs_zero_new_end(&w);
}
