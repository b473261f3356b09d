/* optim.c - the state of a ZeRO optimizer, by parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/zero/zero.h"
#include "pickle/write.h"

/* More states than any optimizer has. */
#define STATES_MAX 256

static uint32_t rank_of(const struct ofs_ranks_file *f)
{
	return f->rank < 0 ? 0 : (uint32_t)f->rank;
}

/* Is file i of a rank of the job, and of those that share the group? */
static bool shares(const struct ofs_zero *z, uint32_t i, uint32_t group)
{
	const struct ofs_ranks_file *f = &z->optim.file[i];

	return !f->surplus &&
	    ofs_zero_place(&z->layout, group, rank_of(f)) != OFS_NONE;
}

/* Slices. */

/* Has a rank's part of a flat group the right length, with or without the
 * padding at its end? Before 0.16.4 DeepSpeed cut off too much or too little.
 * The elements are still in the storage, and so t is extended to the whole
 * part. */
static int fit(struct ofs_torch_tensor *t, uint64_t part, uint64_t lean,
    uint32_t rank, struct optimfs_error *err)
{
	uint64_t stored = t->storage_bytes / ofs_dtype_size(t->dtype);

	if (t->ndim == 1 && (t->shape[0] == part || t->shape[0] == lean))
		return 0;
	if (t->ndim == 1 && t->offset == 0 && stored == part &&
	    (t->stride[0] == 1 || t->shape[0] <= 1)) {
		t->shape[0] = part;
		t->stride[0] = 1;
		return 0;
	}
	return optimfs_fail(err, EUCLEAN,
	    "OFS160 rank %" PRIu32 " has %" PRIu64
	    " elements in %u dimensions here, its part of the group should "
	    "have %" PRIu64 ", or %" PRIu64 " without padding",
	    rank, t->ndim == 0 ? 1 : t->shape[0], t->ndim, part, lean);
}

/* Does t have the momentum of DeepSpeed's Muon in stages 1 and 2? Each rank has
 * all elements of all parameters of which it has a part, because an update needs
 * the whole matrix. *s becomes the place of the whole parameter in t. */
static bool is_muon(const struct ofs_zero_layout *l, uint32_t param,
    uint32_t rank, const struct ofs_torch_tensor *t, uint64_t part,
    uint64_t lean, struct ofs_flat_slice *s)
{
	uint64_t total;

	if (l->stage == 3 || t->ndim != 1 || t->shape[0] == part ||
	    t->shape[0] == lean)
		return false;
	*s = ofs_zero_whole(l, param, rank, &total);
	return t->shape[0] == total;
}

/* Adds the slice of a parameter in file i of the set; node is that rank's part
 * of the group. */
static int add_slice(struct ofs_zero *z, struct ofs_pieces *x, uint32_t param,
    uint32_t i, uint32_t node, const struct ofs_flat_slice *s,
    struct optimfs_error *err)
{
	uint32_t rank = rank_of(&z->optim.file[i]);
	struct ofs_ranks_leaf leaf = { .file = i, .node = node };
	struct ofs_flat_slice whole;
	uint64_t lean, part;
	struct ofs_torch_tensor t;
	struct ofs_extent at;

	part = ofs_zero_part(&z->layout, z->shapes.param[param].group, rank,
	    &lean);
	if (ofs_pieces_get(x, &leaf, node, &t, &at) == -1)
		return 0;
	if (is_muon(&z->layout, param, rank, &t, part, lean, &whole))
		return ofs_pieces_slice(x, &leaf, &t, &at, &whole, err);
	if (fit(&t, part, lean, rank, &x->why) == -1)
		return 0;
	return ofs_pieces_slice(x, &leaf, &t, &at, s, err);
}

/* The node of a group's state name (NULL: its fp32 weights). */
static uint32_t node_of(const struct ofs_zero_optim *o, uint32_t group,
    const struct ofs_str *name)
{
	uint32_t state, n;

	if (name == NULL)
		return ofs_pk_item(o->doc, o->fp32, group);
	state = ofs_zero_state(o, group);
	n = ofs_pk_kind(o->doc, state) == OFS_PK_DICT
	    ? ofs_pk_len(o->doc, state)
	    : 0;
	for (uint32_t i = n; i-- > 0;) {
		uint32_t key = ofs_pk_key(o->doc, state, i);
		struct ofs_str s = ofs_pk_str(o->doc, key);

		if (ofs_pk_kind(o->doc, key) == OFS_PK_STR &&
		    ofs_str_equal(s, *name))
			return ofs_pk_val(o->doc, state, i);
	}
	return OFS_NONE;
}

/* Adds the slices of a parameter; node[i] is the group's tensor in file i. */
static int add_slices(struct ofs_zero *z, uint32_t param, const uint32_t *node,
    struct ofs_pieces *x, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->optim.nfiles && x->why.code == 0; i++) {
		const struct ofs_ranks_file *f = &z->optim.file[i];
		struct ofs_flat_slice s;

		if (f->surplus)
			continue;
		s = ofs_zero_slice(&z->layout, param, rank_of(f));
		if (s.count == 0)
			continue;
		if (node[i] == OFS_NONE)
			optimfs_fail(&x->why, EUCLEAN,
			    "OFS165 rank %d does not have this state of its "
			    "%" PRIu64 " elements, other ranks have",
			    f->rank, s.count);
		else if (add_slice(z, x, param, i, node[i], &s, err) == -1)
			return -1;
	}
	return 0;
}

/* A fault of a group on one rank makes all its parameters unreadable. */
static void check_group(const struct ofs_zero *z, uint32_t group,
    struct optimfs_error *why)
{
	*why = (struct optimfs_error){ 0 };
	for (uint32_t i = 0; i < z->optim.nfiles && why->code == 0; i++) {
		const struct ofs_zero_optim *o = &z->rank[i];

		if (z->optim.file[i].surplus)
			continue;
		if (o->stage != z->layout.stage ||
		    o->ngroups != ofs_zero_numbers(&z->shapes))
			optimfs_fail(why, EUCLEAN,
			    "OFS695 rank %d has %" PRIu32
			    " flat groups, param_shapes has %" PRIu32,
			    z->optim.file[i].rank, o->ngroups,
			    ofs_zero_numbers(&z->shapes));
		else
			ofs_zero_check(o, &z->layout, group,
			    rank_of(&z->optim.file[i]), why);
	}
}

void ofs_zero_check_groups(struct ofs_zero *z)
{
	for (uint32_t g = 0; g < z->shapes.ngroups; g++)
		check_group(z, g, &z->why[g]);
}

/* The tensors of a group on all ranks; malloc'ed. */
static uint32_t *nodes_of(const struct ofs_zero *z, uint32_t group,
    const struct ofs_str *name, struct optimfs_error *err)
{
	uint32_t *node = calloc(z->optim.nfiles + 1ull, sizeof(*node));

	if (node == NULL)
		ofs_no_memory(err);
	for (uint32_t i = 0; node != NULL && i < z->optim.nfiles; i++)
		node[i] = node_of(&z->rank[i],
		    ofs_zero_number(&z->shapes, group), name);
	return node;
}

static int zero_master(struct ofs_zero *z, uint32_t param, struct ofs_pieces *x,
    struct optimfs_error *err)
{
	uint32_t group = z->shapes.param[param].group;
	uint32_t *node = nodes_of(z, group, NULL, err);
	int ret = -1;

	x->why = z->why[group];
	if (node != NULL)
		ret = add_slices(z, param, node, x, err);
	free(node);
	return ret;
}

/* State. */

static int add_state(struct ofs_zero *z, uint32_t param,
    const struct ofs_str *name, const uint32_t *node, struct optimfs_error *err)
{
	const struct ofs_zero_param *p = &z->shapes.param[param];
	struct ofs_pieces x;
	uint32_t ref;

	if (ofs_pieces_begin(&x, &z->optim, p->shape, p->ndim,
		z->shapes.numel[param], err) == -1)
		return -1;
	x.why = z->why[p->group];
	if (z->disproved != NULL && z->disproved[param])
		ofs_zero_experts_fail(p->name, &x.why);
	if (add_slices(z, param, node, &x, err) == -1)
		return -1;
	/* without elements, so no file gave the dtype */
	if (x.why.code == 0 && x.t.dtype == OFS_DTYPE_NONE)
		x.t.dtype = OFS_FLOAT32;
	return ofs_pieces_end(&x, ofs_zero_state_path(z, &p->name, name, err),
	    &ref, err);
}

/* Adds a state of all parameters in a group; lookup is name, or NULL for the
 * fp32 weights. */
static int add_states(struct ofs_zero *z, uint32_t group,
    const struct ofs_str *lookup, const struct ofs_str *name,
    struct optimfs_error *err)
{
	uint32_t *node = nodes_of(z, group, lookup, err);
	int ret = node == NULL ? -1 : 0;

	for (uint32_t p = z->shapes.first[group];
	     p < z->shapes.first[group + 1] && ret == 0; p++)
		if (z->again == NULL || !z->again[p])
			ret = add_state(z, p, name, node, err);
	free(node);
	return ret;
}

int ofs_zero_spread(struct ofs_zero *z, struct ofs_ranks_group *g,
    uint32_t first, uint32_t n, struct ofs_str state, struct optimfs_error *err)
{
	struct ofs_catalog *cat = z->cat;
	struct ofs_entry e = { .path = OFS_NONE };

	for (uint32_t p = first; p < first + n; p++) {
		uint32_t path;

		if (z->again != NULL && z->again[p])
			continue;
		path = ofs_zero_state_path(z, &z->shapes.param[p].name, &state,
		    err);
		if (path == OFS_NONE)
			return -1;
		if (e.path != OFS_NONE) {
			e.path = path;
			if (ofs_catalog_entry(cat, &e, err) == OFS_NONE)
				return -1;
			if (e.kind == OFS_ENTRY_TENSOR)
				cat->tensors[e.ref].flags |= OFS_TENSOR_TIED;
			continue;
		}
		g->path = path;
		for (uint32_t k = g->first; k < g->first + g->n; k++)
			z->optim.leaf[k].path = path;
		if (ofs_ranks_merge_one(&z->optim, g, err) == -1)
			return -1;
		e = cat->entries[cat->nentries - 1];
	}
	return 0;
}

/* Adds a value of the whole group, such as step. */
static int add_value(struct ofs_zero *z, uint32_t group,
    const struct ofs_str *name, struct optimfs_error *err)
{
	uint32_t first = z->shapes.first[group];
	uint32_t n = z->shapes.first[group + 1] - first;
	struct ofs_ranks_group g = { .first = z->optim.nleaves };

	for (uint32_t i = 0; i < z->optim.nfiles && n > 0; i++) {
		uint32_t node = node_of(&z->rank[i],
		    ofs_zero_number(&z->shapes, group), name);

		if (!shares(z, i, group) || node == OFS_NONE)
			continue;
		if (ofs_ranks_leaf(&z->optim, 0, i, node, err) == -1)
			return -1;
		g.n++;
	}
	if (g.n == 0)
		return 0;
	return ofs_zero_spread(z, &g, first, n, *name, err);
}

static bool is_flat(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_torch_tensor t;

	return ofs_torch_tensor(doc, node, &t, NULL) != 0 && t.ndim > 0;
}

/* Adds the states of the first rank that has any: all ranks must have them. */
static int add_group(struct ofs_zero *z, uint32_t group,
    struct optimfs_error *err)
{
	static const struct ofs_str fp32 = { "fp32", 4 };
	const struct ofs_zero_optim *o = z->rank;
	uint32_t state = OFS_NONE, n;

	if (add_states(z, group, NULL, &fp32, err) == -1)
		return -1;
	for (uint32_t i = 0; i < z->optim.nfiles && state == OFS_NONE; i++) {
		o = &z->rank[i];
		if (shares(z, i, group))
			state = ofs_zero_state(o,
			    ofs_zero_number(&z->shapes, group));
	}
	if (ofs_pk_kind(o->doc, state) != OFS_PK_DICT)
		return 0;
	n = ofs_pk_len(o->doc, state);
	if (n > STATES_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS695 group %" PRIu32 " has %" PRIu32
		    " kinds of state, at most %d are read",
		    group, n, STATES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = ofs_pk_key(o->doc, state, i);
		struct ofs_str name = ofs_pk_str(o->doc, key);
		bool flat = is_flat(o->doc, ofs_pk_val(o->doc, state, i));

		if (ofs_pk_kind(o->doc, key) == OFS_PK_STR &&
		    (flat ? add_states(z, group, &name, &name, err)
			  : add_value(z, group, &name, err)) == -1)
			return -1;
	}
	return 0;
}

int ofs_zero_optim_add(struct ofs_zero *z, struct optimfs_error *err)
{
	for (uint32_t g = 0; g < z->shapes.ngroups && z->optim.nfiles > 0; g++)
		if (add_group(z, g, err) == -1)
			return -1;
	return 0;
}

/* Groups. */

static uint32_t number_word(struct ofs_zero *z, uint32_t i,
    struct optimfs_error *err)
{
	char text[16];
	uint32_t s;

	snprintf(text, sizeof(text), "%" PRIu32, i);
	s = ofs_zero_word(z, text, err);
	return s == OFS_NONE ? OFS_NONE : s | OFS_PATH_INDEX;
}

static int collect_group(struct ofs_zero *z, uint32_t file, uint32_t dict,
    uint32_t number, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->optim.file[file].doc;
	uint32_t part[4];

	if (ofs_pk_kind(doc, dict) != OFS_PK_DICT)
		return ofs_pk_unexpected(doc, dict, err, "OFS695", "a dict",
		    "param_groups[%" PRIu32 "]", number);
	part[0] = ofs_zero_word(z, "optim", err);
	part[1] = ofs_zero_word(z, "param_groups", err);
	part[2] = number_word(z, number, err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, dict); i++) {
		uint32_t key = ofs_pk_key(doc, dict, i);
		struct ofs_str s = ofs_pk_str(doc, key);

		if (ofs_pk_kind(doc, key) != OFS_PK_STR ||
		    ofs_str_is(s, "params"))
			continue;
		part[3] = ofs_catalog_str(z->cat, s.p, s.len, err);
		if (ofs_zero_collect(z, &z->optim, file,
			ofs_pk_val(doc, dict, i), part, 4, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_zero_groups(struct ofs_zero *z, uint32_t file, uint32_t node,
    struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->optim.file[file].doc;

	for (uint32_t i = 0; i < ofs_pk_len(doc, node); i++)
		if (collect_group(z, file, ofs_pk_item(doc, node, i), i, err) ==
		    -1)
			return -1;
	return 0;
}

/* Writes the names in the flat group with this number in the files. */
static void put_group(const struct ofs_zero *z, struct ofs_pkw *w,
    uint32_t number)
{
	const struct ofs_zero_shapes *s = &z->shapes;
	uint32_t g = number; /* or later, because of sets */

	while (g < s->ngroups && ofs_zero_number(s, g) < number)
		g++;
	for (; g < s->ngroups && ofs_zero_number(s, g) == number; g++)
		for (uint32_t p = s->first[g]; p < s->first[g + 1]; p++)
			if (z->again == NULL || !z->again[p])
				ofs_pkw_str(w, s->param[p].name.p,
				    s->param[p].name.len);
}

/* Writes the names of a stage in one of the optimizer's groups: those in the
 * flat groups that params lists, each once, or without param_groups those in
 * the flat group number. */
static int put_stage(const struct ofs_zero *z, struct ofs_pkw *w,
    uint32_t number, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = z->groups.doc;
	uint32_t list;
	bool *put;

	if (z->groups.node == OFS_NONE) {
		put_group(z, w, number);
		return 0;
	}
	list =
	    ofs_pk_get(doc, ofs_pk_item(doc, z->groups.node, number), "params");
	if (ofs_pk_kind(doc, list) != OFS_PK_LIST)
		return 0;
	put = calloc(ofs_zero_numbers(&z->shapes) + 1ull, sizeof(*put));
	if (put == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++) {
		int64_t g;

		if (!ofs_pk_int(doc, ofs_pk_item(doc, list, i), &g) || g < 0 ||
		    g >= ofs_zero_numbers(&z->shapes) || put[g])
			continue;
		put[g] = true;
		put_group(z, w, (uint32_t)g);
	}
	free(put);
	return 0;
}

static int add_names(struct ofs_zero *z, uint32_t number,
    struct optimfs_error *err)
{
	uint32_t part[4], path;
	struct ofs_buf b = { .limit = 1 << 30 };
	struct ofs_pkw w = { .out = &b, .plain = true };

	part[0] = ofs_zero_word(z, "optim", err);
	part[1] = ofs_zero_word(z, "param_groups", err);
	part[2] = number_word(z, number, err);
	part[3] = ofs_zero_word(z, "params", err);
	path = ofs_zero_path(z, part, 4, err);
	if (path == OFS_NONE)
		return -1;
	ofs_pkw_begin(&w);
	ofs_pkw_op(&w, OFS_PKW_LIST);
	ofs_pkw_op(&w, OFS_PKW_MARK);
	for (const struct ofs_zero *s = z; s != NULL; s = s->next)
		if (put_stage(s, &w, number, err) == -1) {
			ofs_buf_fini(&b);
			return -1;
		}
	ofs_pkw_op(&w, OFS_PKW_APPENDS);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	return ofs_ranks_value(&z->optim, path, &b, err);
}

int ofs_zero_names(struct ofs_zero *z, struct optimfs_error *err)
{
	uint32_t most = 0;

	for (const struct ofs_zero *s = z; s != NULL; s = s->next) {
		uint32_t n = s->groups.node == OFS_NONE
		    ? ofs_zero_numbers(&s->shapes)
		    : ofs_pk_len(s->groups.doc, s->groups.node);

		most = n > most ? n : most;
	}
	for (uint32_t i = 0; i < most; i++)
		if (add_names(z, i, err) == -1)
			return -1;
	return 0;
}

/* Values that are shown unchanged. */

static int note_elastic(struct ofs_zero *z, struct optimfs_error *err)
{
	return ofs_catalog_note(z->cat, OFS_NOTE_MISSING, ENODATA, err,
	    "OFS697 %s: an elastic checkpoint has no options of parameter "
	    "groups (lr, betas, ...)",
	    z->optim.file[0].rel);
}

int ofs_zero_extras(struct ofs_zero *z, uint32_t file, uint32_t dict,
    struct optimfs_error *err)
{
	static const char *const layout[] = { "base_optimizer_state",
		"base_optimizer_state_step", "single_partition_of_fp32_groups",
		"fp32_flat_groups", "optimizer_state_dict", "param_groups",
		"group_paddings", "partition_count", "param_slice_mappings",
		"param_shapes", "ds_version" };
	const struct ofs_pickle *doc = z->optim.file[file].doc;
	uint32_t part[2];

	if (z->hidden || ofs_pk_kind(doc, dict) != OFS_PK_DICT)
		return 0;
	part[0] = ofs_zero_word(z, "optimizer_state_dict", err);
	for (uint32_t i = 0; i < ofs_pk_len(doc, dict); i++) {
		uint32_t key = ofs_pk_key(doc, dict, i);
		struct ofs_str s = ofs_pk_str(doc, key);
		size_t k = 0;

		while (k < sizeof(layout) / sizeof(*layout) &&
		    !ofs_str_is(s, layout[k]))
			k++;
		if (k < sizeof(layout) / sizeof(*layout) ||
		    ofs_pk_kind(doc, key) != OFS_PK_STR)
			continue;
		part[1] = ofs_catalog_str(z->cat, s.p, s.len, err);
		if (ofs_zero_collect(z, &z->optim, file,
			ofs_pk_val(doc, dict, i), part, 2, err) == -1)
			return -1;
	}
	return 0;
}

static int collect_file(struct ofs_zero *z, uint32_t file,
    struct optimfs_error *err)
{
	const struct ofs_zero_optim *o = &z->rank[file];
	uint32_t groups;

	if (ofs_pk_kind(o->doc, o->base) == OFS_PK_DICT) {
		groups = ofs_pk_get(o->doc, o->base, "param_groups");
		if (ofs_pk_kind(o->doc, groups) == OFS_PK_LIST &&
		    z->groups.node == OFS_NONE) {
			z->groups.doc = o->doc;
			z->groups.node = groups;
		}
		if (!z->hidden && ofs_zero_groups(z, file, groups, err) == -1)
			return -1;
	} else if (file == 0 && !z->hidden && o->base != OFS_NONE &&
	    note_elastic(z, err) == -1) {
		return -1;
	}
	return ofs_zero_extras(z, file, o->state, err);
}

int ofs_zero_optim_collect(struct ofs_zero *z, struct optimfs_error *err)
{
	z->master = zero_master;
	z->why = calloc(z->shapes.ngroups + 1ull, sizeof(*z->why));
	if (z->why == NULL)
		return ofs_no_memory(err);
	ofs_zero_check_groups(z);
	for (uint32_t i = 0; i < z->optim.nfiles; i++)
		if (!z->optim.file[i].surplus && collect_file(z, i, err) == -1)
			return -1;
	return 0;
}
