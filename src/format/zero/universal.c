/* universal.c - DeepSpeed Universal Checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/globals.h"
#include "format/zero/zero.h"

/* docs/formats/deepspeed.md, "Universal checkpoints" */

#define FILES_MAX (1u << 20)
#define OPTIMIZER "optimizer_state.pt"

/* zero/NAME/STATE.pt */
struct state {
	char *rel;
	struct ofs_str fqn, state; /* parts of rel */
	uint32_t file;             /* in the set; OFS_NONE: unreadable */
	struct optimfs_error why;
};

struct ofs_universal {
	struct ofs_zero *z;
	struct state *state;
	size_t n, cap;
	uint32_t optimizer; /* file of the set; OFS_NONE: none */
	char *optimizer_rel;
	uint32_t *master; /* of each parameter: its fp32 state, or OFS_NONE */
};

/* Listing. */

static int add_state(struct ofs_universal *u, const char *dir, const char *fqn,
    const char *name, struct optimfs_error *err)
{
	size_t n = strlen(name);
	struct state *s;

	if (n < 4 || strcmp(name + n - 3, ".pt") != 0)
		return 0;
	if (u->n == FILES_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS624 more than %u files in %s", FILES_MAX, dir);
	if (ofs_grow(u->state, u->n, u->cap, err) == -1)
		return -1;
	s = &u->state[u->n];
	*s =
	    (struct state){ .rel = ofs_path_join(dir, name), .file = OFS_NONE };
	if (s->rel == NULL)
		return ofs_no_memory(err);
	s->state.len = (uint32_t)n - 3;
	s->state.p = s->rel + strlen(s->rel) - n;
	s->fqn.len = (uint32_t)strlen(fqn);
	s->fqn.p = s->state.p - 1 - s->fqn.len;
	u->n++;
	return 0;
}

static int list_param(struct ofs_universal *u, const char *zero,
    const char *fqn, struct optimfs_error *err)
{
	char *rel = ofs_path_join(zero, fqn);
	struct ofs_names names = { 0 };
	int ret;

	if (rel == NULL)
		return ofs_no_memory(err);
	ret = ofs_dir_list_sub(&u->z->cat->dir, rel, &names, err);
	for (size_t i = 0; i < names.n && ret == 0; i++)
		ret = add_state(u, rel, fqn, names.name[i], err);
	ofs_names_free(&names);
	free(rel);
	return ret;
}

static int list_params(struct ofs_universal *u, const char *zero,
    struct optimfs_error *err)
{
	const struct ofs_dir *dir = &u->z->cat->dir;
	struct ofs_names names = { 0 };
	struct ofs_dir sub;
	int ret;

	if (ofs_dir_open_sub(dir, zero, &sub, err) == -1)
		return -1;
	ret = ofs_dir_list(&sub, &names, err);
	for (size_t i = 0; ret == 0 && i < names.n; i++)
		if (ofs_probe_is_dir(&sub, names.name[i]))
			ret = list_param(u, zero, names.name[i], err);
	if (ret == 0 && ofs_probe_is_file(&sub, OPTIMIZER)) {
		u->optimizer_rel = ofs_path_join(zero, OPTIMIZER);
		if (u->optimizer_rel == NULL)
			ret = ofs_no_memory(err);
	}
	ofs_dir_close(&sub);
	ofs_names_free(&names);
	return ret;
}

/* Opening. */

static int open_one(struct ofs_universal *u, const char *rel, uint32_t *file,
    struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_ranks *set = &u->z->optim;

	*why = (struct optimfs_error){ 0 };
	if (ofs_ranks_open(set, rel, -1, false, why) == 0) {
		*file = set->nfiles - 1;
		return 0;
	}
	return ofs_ranks_must_fail(why) ? optimfs_fail_with(err, why) : 0;
}

static int open_all(struct ofs_universal *u, struct optimfs_error *err)
{
	struct optimfs_error why;

	if (ofs_ranks_begin(&u->z->optim, u->z->cat, u->n + 1, err) == -1)
		return -1;
	for (size_t i = 0; i < u->n; i++)
		if (open_one(u, u->state[i].rel, &u->state[i].file,
			&u->state[i].why, err) == -1)
			return -1;
	u->optimizer = OFS_NONE;
	if (u->optimizer_rel == NULL)
		return 0;
	if (open_one(u, u->optimizer_rel, &u->optimizer, &why, err) == -1)
		return -1;
	if (u->optimizer != OFS_NONE)
		return 0;
	return ofs_catalog_note_as(u->z->cat, OFS_NOTE_MISSING, &why, err);
}

/* The content of a file: {param: tensor, ...}, or a bare object. */
static uint32_t content(const struct ofs_universal *u, uint32_t file)
{
	const struct ofs_pickle *doc = u->z->optim.file[file].doc;
	uint32_t root = ofs_pickle_root(doc);
	uint32_t param = ofs_pk_get(doc, root, "param");

	return param == OFS_NONE ? root : param;
}

/* Entries. */

static int add_damaged(struct ofs_universal *u, const struct state *s,
    uint32_t path, struct optimfs_error *err)
{
	struct ofs_catalog *cat = u->z->cat;
	struct ofs_item item = { .at.object =
				     ofs_catalog_object(cat, s->rel, -1, err) };

	item.error = ofs_catalog_error(cat, &s->why, err);
	if (item.error == OFS_NONE || item.at.object == OFS_NONE)
		return -1;
	return ofs_catalog_add(cat, path, OFS_ENTRY_ITEM,
	    ofs_catalog_item(cat, &item, err), OFS_KEY_FREE, err);
}

/* Adds the elements of a bare tensor. Before 0.18.6 stage 3 may have left other
 * elements after them. */
static int add_bare(struct ofs_universal *u, struct ofs_pieces *x,
    uint32_t file, struct optimfs_error *err)
{
	struct ofs_ranks_leaf leaf = { .file = file, .node = content(u, file) };
	struct ofs_flat_slice s = { 0, x->numel, 0 };
	struct ofs_torch_tensor t;
	struct ofs_extent at;

	if (ofs_pieces_get(x, &leaf, leaf.node, &t, &at) == -1)
		return 0;
	if (t.ndim == 1 && t.shape[0] >= x->numel)
		return ofs_pieces_slice(x, &leaf, &t, &at, &s, err);
	if (t.ndim == x->ndim &&
	    memcmp(t.shape, x->shape, t.ndim * sizeof(*t.shape)) == 0)
		return ofs_pieces_whole(x, &leaf, err);
	optimfs_fail(&x->why, EUCLEAN,
	    "OFS160 %" PRIu64 " elements in %u dimensions, the parameter has "
	    "%" PRIu64,
	    t.ndim == 0 ? 1 : t.shape[0], t.ndim, x->numel);
	return 0;
}

/* Has the file a one-dimensional tensor instead of one with the parameter's
 * shape? */
static bool is_bare(const struct ofs_universal *u, uint32_t file,
    uint32_t param)
{
	const struct ofs_pickle *doc = u->z->optim.file[file].doc;
	struct ofs_torch_tensor t;

	return param != OFS_NONE && content(u, file) == ofs_pickle_root(doc) &&
	    ofs_torch_tensor(doc, ofs_pickle_root(doc), &t, NULL) == 1 &&
	    t.ndim == 1;
}

static int add_entry(struct ofs_universal *u, const struct state *s,
    struct optimfs_error *err)
{
	struct ofs_zero *z = u->z;
	uint32_t path = ofs_zero_state_path(z, &s->fqn, &s->state, err);
	uint32_t param = ofs_zero_find(&z->shapes, s->fqn), ref;
	struct ofs_pieces x;

	if (path == OFS_NONE)
		return -1;
	if (s->file == OFS_NONE)
		return add_damaged(u, s, path, err);
	if (!is_bare(u, s->file, param))
		return ofs_torch_leaf(&z->optim.file[s->file].leaves,
		    content(u, s->file), path, err);
	if (ofs_pieces_begin(&x, &z->optim, z->shapes.param[param].shape,
		z->shapes.param[param].ndim, z->shapes.numel[param],
		err) == -1 ||
	    add_bare(u, &x, s->file, err) == -1)
		return -1;
	return ofs_pieces_end(&x, path, &ref, err);
}

static void no_master(const struct ofs_zero *z, uint32_t param,
    struct optimfs_error *why)
{
	const struct ofs_str name = z->shapes.param[param].name;
	char file[300];

	snprintf(file, sizeof(file), "zero/%.*s/fp32.pt",
	    OFS_STR_ARGS(name, 280u));
	ofs_fail_lost(why, EIO, OPTIMFS_LOST_MISSING, "OFS140", file,
	    " is missing");
}

static int universal_master(struct ofs_zero *z, uint32_t param,
    struct ofs_pieces *x, struct optimfs_error *err)
{
	struct ofs_universal *u = z->universal;
	uint32_t i = u->master[param];

	if (i == OFS_NONE) {
		no_master(z, param, &x->why);
		return 0;
	}
	if (u->state[i].file == OFS_NONE) {
		x->why = u->state[i].why;
		return 0;
	}
	return add_bare(u, x, u->state[i].file, err);
}

static int find_masters(struct ofs_universal *u, struct optimfs_error *err)
{
	struct ofs_zero *z = u->z;

	z->master = universal_master;
	z->universal = u;
	u->master = malloc((z->shapes.n + 1ull) * sizeof(*u->master));
	if (u->master == NULL)
		return ofs_no_memory(err);
	memset(u->master, 0xff, (z->shapes.n + 1ull) * sizeof(*u->master));
	for (size_t i = 0; i < u->n; i++) {
		uint32_t p = ofs_zero_find(&z->shapes, u->state[i].fqn);

		if (p != OFS_NONE && ofs_str_is(u->state[i].state, "fp32"))
			u->master[p] = (uint32_t)i;
	}
	for (uint32_t p = 0; p < z->shapes.n; p++) {
		struct optimfs_error why;

		if (u->master[p] != OFS_NONE)
			continue;
		no_master(z, p, &why);
		if (ofs_catalog_note_as(z->cat, OFS_NOTE_MISSING, &why, err) ==
		    -1)
			return -1;
	}
	return 0;
}

/* The content of the optimizer's file. */

static uint32_t optimizer_root(const struct ofs_universal *u)
{
	return ofs_pickle_root(u->z->optim.file[u->optimizer].doc);
}

/* The state of a group. From stage 3 the file holds the state of one rank,
 * including step; then there is no step.pt. */
static uint32_t state_of_group(const struct ofs_universal *u, uint32_t group)
{
	struct ofs_zero_optim o = { .doc = u->z->optim.file[u->optimizer].doc };
	uint32_t node;

	o.base = ofs_pk_get(o.doc, optimizer_root(u), "optimizer_state_dict");
	if (ofs_pk_kind(o.doc, o.base) != OFS_PK_DICT)
		return OFS_NONE;
	node = ofs_zero_state(&o, group);
	return node == OFS_NONE ? ofs_zero_state(&o, 0) : node;
}

static int add_step(struct ofs_universal *u, uint32_t group,
    struct optimfs_error *err)
{
	static const struct ofs_str name = { "step", 4 };
	struct ofs_zero *z = u->z;
	const struct ofs_pickle *doc = z->optim.file[u->optimizer].doc;
	uint32_t step = ofs_pk_get(doc, state_of_group(u, group), "step");
	uint32_t first = z->shapes.first[group];
	uint32_t n = z->shapes.first[group + 1] - first;
	struct ofs_ranks_group g = { .first = z->optim.nleaves, .n = 1 };

	if (step == OFS_NONE || n == 0)
		return 0;
	if (ofs_ranks_leaf(&z->optim, 0, u->optimizer, step, err) == -1)
		return -1;
	return ofs_zero_spread(z, &g, first, n, name, err);
}

static bool has_steps(const struct ofs_universal *u)
{
	for (size_t i = 0; i < u->n; i++)
		if (ofs_str_is(u->state[i].state, "step"))
			return true;
	return false;
}

static uint32_t groups_of(const struct ofs_universal *u)
{
	const struct ofs_pickle *doc = u->z->optim.file[u->optimizer].doc;
	uint32_t node = ofs_pk_get(doc, optimizer_root(u), "param_groups");

	return node != OFS_NONE
	    ? node
	    : ofs_pk_get(doc,
		  ofs_pk_get(doc, optimizer_root(u), "optimizer_state_dict"),
		  "param_groups");
}

static int add_optimizer(struct ofs_universal *u, struct optimfs_error *err)
{
	struct ofs_zero *z = u->z;
	bool steps;

	if (u->optimizer == OFS_NONE)
		return 0;
	steps = has_steps(u);
	for (uint32_t g = 0; g < z->shapes.ngroups && !steps; g++)
		if (add_step(u, g, err) == -1)
			return -1;
	z->groups.doc = z->optim.file[u->optimizer].doc;
	z->groups.node = groups_of(u);
	return ofs_zero_names(z, err) == -1 ? -1 : ofs_zero_flat(z, err);
}

static int collect_optimizer(struct ofs_universal *u, struct optimfs_error *err)
{
	if (u->optimizer == OFS_NONE)
		return 0;
	if (ofs_zero_groups(u->z, u->optimizer, groups_of(u), err) == -1)
		return -1;
	return ofs_zero_extras(u->z, u->optimizer, optimizer_root(u), err);
}

/* The whole checkpoint. */

static int add_all(struct ofs_universal *u, struct optimfs_error *err)
{
	struct ofs_zero *z = u->z;
	uint32_t first = z->cat->nentries;

	if (find_masters(u, err) == -1 ||
	    ofs_zero_model_collect(z, err) == -1 ||
	    collect_optimizer(u, err) == -1 ||
	    ofs_ranks_group(&z->model, err) == -1 ||
	    ofs_ranks_group(&z->optim, err) == -1 ||
	    ofs_ranks_merge(&z->model, err) == -1)
		return -1;
	/* leaves of these files are not cut over ranks */
	for (uint32_t i = 0; i < z->optim.ngroups; i++)
		if (ofs_ranks_merge_one(&z->optim, &z->optim.group[i], err) ==
		    -1)
			return -1;
	if (ofs_zero_model_add(z, first, err) == -1)
		return -1;
	for (size_t i = 0; i < u->n; i++)
		if (add_entry(u, &u->state[i], err) == -1)
			return -1;
	return add_optimizer(u, err);
}

/* The conversion first writes tmp/, and from that zero/. */
static int note_unfinished(struct ofs_universal *u, const char *rel,
    struct optimfs_error *err)
{
	char *tmp = ofs_path_join(rel, "tmp");
	int ret = 0;

	if (tmp == NULL)
		return ofs_no_memory(err);
	if (ofs_probe_is_dir(&u->z->cat->dir, tmp))
		ret = ofs_catalog_note(u->z->cat, OFS_NOTE_WARNING, 0, err,
		    "OFS699 %s/ is left over from a conversion that was not "
		    "completed: this may be a part of a checkpoint (run "
		    "ds_to_universal.py again)",
		    tmp);
	free(tmp);
	return ret;
}

/* The files are of no rank: only the weights' file says how many there were. */
static void read_world(struct ofs_zero *z)
{
	const struct ofs_pickle *doc;
	int64_t world;

	if (z->model.nfiles == 0)
		return;
	doc = z->model.file[0].doc;
	if (ofs_zero_world(doc,
		ofs_pk_get(doc, ofs_pickle_root(doc), "dp_world_size"), &world))
		z->cat->world_size = (int)world;
}

static int read_files(struct ofs_universal *u, const struct ofs_part *part,
    struct optimfs_error *err)
{
	struct ofs_zero *z = u->z;
	struct ofs_zero_files files;
	char *zero = ofs_path_join(part->rel, "zero");
	int ret = -1;

	if (zero == NULL)
		return ofs_no_memory(err);
	if (ofs_zero_list(&files, &z->cat->dir, part->rel, err) == 0) {
		ret = list_params(u, zero, err);
		if (ret == 0)
			ret = note_unfinished(u, part->rel, err);
		if (ret == 0)
			ret = open_all(u, err);
		if (ret == 0)
			ret = ofs_zero_open_models(z, &files, err);
		if (ret == 0)
			ret = add_all(u, err);
		read_world(z);
	}
	if (ret == 0)
		ret = ofs_ranks_end(&z->model, err);
	if (ret == 0)
		ret = ofs_ranks_end(&z->optim, err);
	ofs_zero_fini(z);
	ofs_zero_files_fini(&files);
	free(zero);
	return ret;
}

int ofs_universal_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_zero z = { .cat = cat, .groups.node = OFS_NONE };
	struct ofs_universal u = { .z = &z };
	uint32_t notes = cat->nnotes;
	int ret = ofs_part_prefix(cat, part, z.prefix, &z.npref, err);

	cat->fixed_forms = true;
	if (ret == 0)
		ret = read_files(&u, part, err);
	for (size_t i = 0; i < u.n; i++)
		free(u.state[i].rel);
	free(u.state);
	free(u.master);
	free(u.optimizer_rel);
	if (ret == -1)
		return -1;
	return opt != NULL && opt->strict ? ofs_refuse_calls(cat, notes, err)
					  : 0;
}
