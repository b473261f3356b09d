/* render_optim.c - optim_rankR.pt: the raw optimizer.state_dict() of a rank */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/render.h"
#include "pickle/write.h"

struct writer {
	const struct ofs_fsdp_files *f;
	uint32_t rank;
	struct ofs_state_pickler p;
};

static uint32_t entry_of(const struct ofs_fsdp_files *f, uint32_t param,
    const char *name)
{
	const struct ofs_flat_state *s = ofs_flat_find(&f->m, param, name);

	return s == NULL ? OFS_NONE : s->entry;
}

static int put_vector(struct writer *w, uint32_t entry, uint64_t n)
{
	enum ofs_dtype dtype =
	    ofs_render_dtype(&w->f->m.to, ofs_flat_tensor(&w->f->m, entry));

	return ofs_pkw_tensor(&w->p.w, dtype, w->p.a->nstorages - 1, &n, 1,
	    w->p.err);
}

/* Writes the rank's elements of a parameter, without padding. */
static int put_slice(struct writer *w, uint32_t entry,
    const struct ofs_flat_slice *s)
{
	struct ofs_torch_part part = { .tensor =
					   w->f->m.cat->entries[entry].ref,
		.first = s->first,
		.count = s->count };

	if (ofs_torch_new_storage(w->p.a, w->p.err) == -1 ||
	    ofs_torch_new_part(w->p.a, w->f->m.cat, &part, w->p.err) == -1)
		return -1;
	return put_vector(w, entry, s->count);
}

/* Writes the shard of a flat parameter's state. */
static int put_shard(struct writer *w, uint32_t unit, uint32_t entry,
    const char *name)
{
	if (ofs_fsdp_new_flat(w->f, unit, w->rank, entry_of, name, 0, w->p.a,
		w->p.err) == -1)
		return -1;
	return put_vector(w, entry, w->f->unit[unit].flat.shard);
}

/* Writes the state of a parameter, whose slice s the rank has, or of its flat
 * parameter, whose parameters all have the same states. */
static int put_states(struct writer *w, const struct ofs_flat_member *p,
    const struct ofs_flat_slice *s)
{
	const struct ofs_fsdp_files *f = w->f;

	ofs_pkw_lit(&w->p.w, "{");
	for (uint32_t i = 0; i < p->nstates; i++) {
		const struct ofs_flat_state *v = &f->m.state[p->state + i];
		int ret;

		ofs_pkw_lit(&w->p.w, "'%s': ", v->name);
		if (!ofs_flat_is_cut(&f->m, v->entry) || (f->whole && f->orig))
			ret = ofs_state_put_entry(&w->p,
			    &f->m.cat->entries[v->entry]);
		else if (f->orig)
			ret = put_slice(w, v->entry, s);
		else
			ret = put_shard(w, p->flat, v->entry, v->name);
		if (ret == -1)
			return ofs_render_fail_in(f->m.cat,
			    &f->m.cat->entries[v->entry], w->p.err);
		ofs_pkw_lit(&w->p.w, ",");
	}
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

/* The parameter whose state names are those of an ID; OFS_NONE: the rank has no
 * state of it. */
static uint32_t holder(const struct writer *w, uint32_t id,
    struct ofs_flat_slice *s)
{
	const struct ofs_fsdp_files *f = w->f;
	const struct ofs_fsdp_new_unit *u;
	uint32_t at = f->by_id[id];

	if (f->orig) {
		u = &f->unit[f->m.param[at].flat];
		*s = ofs_flat_slice(&u->flat, at - u->param,
		    ofs_fsdp_new_shard(f, w->rank));
		if (!f->whole && s->count == 0)
			return OFS_NONE;
	} else {
		at = f->unit[at].primary;
	}
	return f->m.param[at].nstates == 0 ? OFS_NONE : at;
}

static int put_all(struct writer *w)
{
	const struct ofs_fsdp_files *f = w->f;
	struct ofs_flat_slice s = { 0 };

	ofs_pkw_lit(&w->p.w, "{");
	for (uint32_t id = 0; id < f->nids; id++) {
		uint32_t param = holder(w, id, &s);

		if (param == OFS_NONE)
			continue;
		ofs_pkw_lit(&w->p.w, "%u: ", id);
		if (put_states(w, &f->m.param[param], &s) == -1)
			return -1;
		ofs_pkw_lit(&w->p.w, ",");
	}
	ofs_pkw_lit(&w->p.w, "}");
	return 0;
}

int ofs_fsdp_new_optim(const struct ofs_fsdp_files *f, uint32_t rank,
    struct ofs_torch_new *a, struct ofs_buf *pickle, struct optimfs_error *err)
{
	struct writer w = {
		.f = f,
		.rank = rank,
	};

	ofs_state_pickler_init(&w.p, &f->m.optim, &f->m.from, pickle, a, err);
	ofs_pkw_begin(&w.p.w);
	ofs_pkw_lit(&w.p.w, "{'state': ");
	if (put_all(&w) == -1)
		return -1;
	ofs_pkw_lit(&w.p.w, ", 'param_groups': ");
	if (ofs_state_put_groups(&w.p, &f->m.groups, f->id) == -1)
		return -1;
	ofs_pkw_lit(&w.p.w, "}");
	return ofs_pkw_end(&w.p.w, err);
}
