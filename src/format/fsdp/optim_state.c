/* optim_state.c - entries of a raw optimizer's state, by parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/memory.h"
#include "format/fsdp/fsdp.h"
#include "format/fsdp/optim.h"
#include "pickle/write.h"

/* The path [parent..., "state", fqn, components after the ID in g's path]. */
static uint32_t path_of(struct ofs_fsdp_optim *o, struct ofs_str fqn,
    const struct ofs_ranks_group *g, struct optimfs_error *err)
{
	struct ofs_catalog *cat = o->f->set->cat;
	uint32_t n, path = OFS_NONE, *id;
	uint32_t *copy = ofs_catalog_copy_components(cat, g->path, &n, err);

	if (copy == NULL)
		return OFS_NONE;
	id = copy + o->nparent + 1;
	*id = ofs_catalog_str(cat, fqn.p, fqn.len, err);
	if (*id != OFS_NONE)
		path = ofs_catalog_path(cat, copy, n, err);
	free(copy);
	return path;
}

/* Checks that a rank with elements of a parameter has every state of it. */
static void check_present(struct ofs_fsdp_optim *o, struct ofs_pieces *x,
    const struct ofs_ranks_group *g, struct ofs_unit_place at)
{
	const struct ofs_ranks *set = o->f->set;
	uint32_t i = g->first;

	for (uint32_t k = 0; k < set->nfiles && x->why.code == 0; k++) {
		bool has = i < g->first + g->n && set->leaf[i].file == k;
		uint64_t want = o->packed
		    ? o->f->units->unit[at.unit].flat.shard
		    : ofs_fsdp_slice(o->f, &set->file[k], at).count;

		i += has;
		if (set->file[k].surplus || has == (want > 0))
			continue;
		optimfs_fail(&x->why, EUCLEAN,
		    has ? "OFS165 rank %d has this state, but no elements of "
			  "the parameter (%" PRIu64 ")"
			: "OFS165 rank %d does not have this state of its "
			  "%" PRIu64 " elements, other ranks have",
		    set->file[k].rank, want);
	}
}

static int add_leaf(struct ofs_fsdp_optim *o, struct ofs_pieces *x,
    const struct ofs_ranks_leaf *leaf, struct ofs_unit_place at,
    struct optimfs_error *err)
{
	const struct ofs_ranks_file *file = &o->f->set->file[leaf->file];
	struct ofs_flat_slice s = ofs_fsdp_slice(o->f, file, at);
	uint64_t have = o->f->units->unit[at.unit].flat.shard;
	struct ofs_torch_tensor t;

	if (file->surplus)
		return 0;
	if (!o->packed) {
		if (ofs_fsdp_shape(o->f, leaf, &t) &&
		    ofs_fsdp_is_whole(o->f, at, &t))
			return ofs_pieces_whole(x, leaf, err);
		s.at = 0;
		have = s.count;
	}
	return ofs_pieces_add(x, leaf, leaf->node, have, &s, err);
}

static int add_tensor(struct ofs_fsdp_optim *o, const struct ofs_ranks_group *g,
    struct ofs_unit_place at, struct optimfs_error *err)
{
	struct ofs_pieces x;
	uint32_t ref;

	if (ofs_fsdp_begin(&x, o->f, at, err) == -1)
		return -1;
	check_present(o, &x, g, at);
	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (add_leaf(o, &x, &o->f->set->leaf[i], at, err) == -1)
			return -1;
	return ofs_pieces_end(&x,
	    path_of(o, ofs_fsdp_param(o->f, at)->fqn, g, err), &ref, err);
}

/* Adds a group like that one to the set, at path, for the generic merge: for
 * values, which are the same for all parameters of a unit. */
static int add_group(struct ofs_fsdp *f, const struct ofs_ranks_group *like,
    uint32_t path, struct optimfs_error *err)
{
	struct ofs_ranks *set = f->set;
	struct ofs_ranks_group g = *like;
	uint32_t from = g.first;

	if (ofs_grow(set->group, set->ngroups, f->group_cap, err) == -1)
		return -1;
	g.path = path;
	g.first = set->nleaves;
	for (uint32_t i = from; i < from + g.n; i++)
		if (ofs_ranks_leaf(set, path, set->leaf[i].file,
			set->leaf[i].node, err) == -1)
			return -1;
	g.taken = false;
	g.partial = true;
	set->group[set->ngroups++] = g;
	return 0;
}

/* Adds a state of a parameter. Values go to the generic merge, and so do
 * tensors in nested state, such as preconditioners, if they are not the ranks'
 * slices. */
static int add_param(struct ofs_fsdp_optim *o, const struct ofs_fsdp_state *s,
    struct ofs_unit_place at, struct optimfs_error *err)
{
	/* a copy: adding groups may move them */
	struct ofs_ranks_group g = o->f->set->group[s->group];
	uint32_t path;

	if (s->tensor && (!s->nested || ofs_fsdp_fits(o, &g, at)))
		return add_tensor(o, &g, at, err);
	path = path_of(o, ofs_fsdp_param(o->f, at)->fqn, &g, err);
	return path == OFS_NONE ? -1 : add_group(o->f, &g, path, err);
}

/* Adds state of a parameter that FSDP ignored: each rank has all of it. */
static int add_ignored(struct ofs_fsdp_optim *o, const struct ofs_fsdp_state *s,
    struct optimfs_error *err)
{
	struct ofs_ranks_group g = o->f->set->group[s->group];
	uint32_t path = path_of(o, o->ignored[s->id], &g, err);

	return path == OFS_NONE ? -1 : add_group(o->f, &g, path, err);
}

static int add_state(struct ofs_fsdp_optim *o, const struct ofs_fsdp_state *s,
    struct optimfs_error *err)
{
	struct ofs_unit_place at = o->name[s->id];
	uint32_t n = 1;

	o->f->set->group[s->group].taken = true;
	if (at.unit == OFS_NONE)
		return add_ignored(o, s, err);
	if (o->packed)
		n = o->f->units->unit[at.unit].flat.nparams;
	for (uint32_t i = 0; i < n; i++) {
		if (o->packed)
			at.param = i;
		if (add_param(o, s, at, err) == -1)
			return -1;
	}
	return 0;
}

/* A group's list of parameters, by name. */

static void put_name(struct ofs_pkw *w, struct ofs_str s)
{
	ofs_pkw_str(w, s.p, s.len);
}

/* The integer of id in the file. */
static int64_t number_of(const struct ofs_fsdp_optim *o, uint32_t id)
{
	uint32_t i = 0;

	while (o->number[i].id != id)
		i++;
	return o->number[i].value;
}

static void put_id(const struct ofs_fsdp_optim *o, struct ofs_pkw *w,
    uint32_t id)
{
	struct ofs_unit_place at = o->name[id];

	if (o->ignored[id].p != NULL)
		put_name(w, o->ignored[id]);
	else if (at.unit == OFS_NONE)
		ofs_pkw_int(w, number_of(o, id));
	else if (!o->packed)
		put_name(w, ofs_fsdp_param(o->f, at)->fqn);
	else
		for (; at.param < o->f->units->unit[at.unit].flat.nparams;
		     at.param++)
			put_name(w, ofs_fsdp_param(o->f, at)->fqn);
}

/* Adds the list as FSDP.optim_state_dict has it: a pickle, like all values. */
static int add_names(struct ofs_fsdp_optim *o, uint32_t list, uint32_t first,
    struct optimfs_error *err)
{
	struct ofs_ranks_group *g = &o->f->set->group[o->params[list]];
	struct ofs_buf b = { 0 };
	struct ofs_pkw w = { .out = &b, .plain = true };

	ofs_pkw_begin(&w);
	ofs_pkw_op(&w, OFS_PKW_LIST);
	ofs_pkw_op(&w, OFS_PKW_MARK);
	for (uint32_t i = 0; i < o->size[list]; i++)
		put_id(o, &w, first + i);
	ofs_pkw_op(&w, OFS_PKW_APPENDS);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	g->taken = true;
	return ofs_ranks_value(o->f->set, g->path, &b, err);
}

int ofs_fsdp_states(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < o->nstates; i++)
		if (add_state(o, &o->state[i], err) == -1)
			return -1;
	for (uint32_t i = 0; i < o->nlists; i++) {
		if (add_names(o, i, first, err) == -1)
			return -1;
		first += o->size[i];
	}
	return 0;
}
