/* summary.c - a summary of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "catalog/shards.h"
#include "fs/view.h"
#include "read/locate.h"

/* Everything except a few values (a step, the learning rates) comes from the
 * index in one pass over the tree, so that it costs no more than opening the
 * checkpoint. */

static const char *name_of(const struct ofs_summary *s, uint32_t node)
{
	return s->snap->tree.node[node].name;
}

static uint32_t child(const struct ofs_summary *s, uint32_t dir,
    const char *name)
{
	return dir == OFS_NONE ? OFS_NONE
			       : ofs_tree_lookup(&s->snap->tree, dir, name);
}

bool ofs_summary_value(struct ofs_snapshot *snap, uint32_t index, char *text,
    size_t size)
{
	const struct ofs_entry *e;
	struct ofs_blob *blob;
	bool fits;

	if (index == OFS_NONE ||
	    (e = ofs_tree_entry(&snap->tree, snap->cat, index)) == NULL ||
	    !ofs_entry_is_text(snap->cat, snap->tree.node[index].entry) ||
	    ofs_entry_sound(snap->cat, e, NULL) == -1)
		return false;
	blob = ofs_entry_text(snap, index, NULL);
	if (blob == NULL)
		return false;
	fits = blob->len < size;
	if (fits) {
		memcpy(text, blob->bytes, blob->len);
		text[blob->len] = '\0';
		text[strcspn(text, "\n")] = '\0';
	}
	ofs_blob_unref(blob);
	return fits;
}

/* Counting. */

static void count_cut(struct ofs_summary *s, const struct ofs_tensor *t)
{
	const struct ofs_catalog *cat = s->snap->cat;
	uint64_t box[2 * OFS_MAX_DIMS];
	const struct ofs_shard *shard = &cat->shards[t->shard];

	if (t->nshards < 2) {
		s->whole += t->nshards;
		s->lost += t->nshards == 0 && ofs_tensor_bytes(cat, t) > 0;
		return;
	}
	s->sharded++;
	if (t->grid != t->shape || t->grid_ndim != t->ndim) {
		s->flat++;
		return;
	}
	ofs_shard_box(cat, t, shard, box, box + t->grid_ndim);
	for (unsigned d = 0; d < t->grid_ndim; d++)
		s->cut[d] += box[t->grid_ndim + d] < (cat->dims + t->grid)[d];
}

static bool has_copies(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint32_t n = 0;

	if (t->nshards > 0)
		ofs_replicas(cat, t->shard, &n);
	return n > 0;
}

static void count_tensor(struct ofs_summary *s, const struct ofs_tensor *t,
    struct ofs_summary_count *top)
{
	const struct ofs_catalog *cat = s->snap->cat;
	struct ofs_summary_count *all[] = { &s->all, top, &s->dtype[t->dtype] };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		all[i]->tensors++;
		ofs_sum_u64(&all[i]->elements, ofs_tensor_numel(cat, t));
		ofs_sum_u64(&all[i]->bytes, ofs_tensor_bytes(cat, t));
	}
	if (top == &s->model)
		ofs_sum_u64(&s->model_elements[t->dtype],
		    ofs_tensor_numel(cat, t));
	s->replicated += has_copies(cat, t);
	count_cut(s, t);
}

static void count_few_bits(struct ofs_summary *s, uint32_t entry)
{
	const struct ofs_catalog *cat = s->snap->cat;
	const struct ofs_low_bit *l = ofs_low_bit_of(cat, entry);
	const struct ofs_tensor *t;

	if (l == NULL || l->tensor == OFS_NONE)
		return;
	t = &cat->tensors[l->tensor];
	s->few_bits.tensors++;
	ofs_sum_u64(&s->few_bits.elements, ofs_tensor_numel(cat, t));
	ofs_sum_u64(&s->few_bits.bytes, ofs_tensor_bytes(cat, t));
}

/* Is an entry readable, judging by the index? */
static void count_health(struct ofs_summary *s, const struct ofs_entry *e)
{
	const struct ofs_catalog *cat = s->snap->cat;
	const struct ofs_tensor *t = ofs_entry_tensor(cat, e);
	uint32_t error = ofs_entry_error(cat, e);

	if (error == OFS_NONE)
		s->gone += (t != NULL && ofs_tensor_has_holes(t)) ||
		    (s->is_lossy && ofs_entry_lost(cat, e, NULL));
	else if (cat->notes[error].code == EOPNOTSUPP ||
	    ofs_entry_is_pickled(cat, e, NULL, NULL))
		s->unread++;
	else
		s->damaged++;
}

static struct ofs_summary_count *top_of(struct ofs_summary *s, uint32_t node)
{
	const struct ofs_tree_node *n = s->snap->tree.node;

	while (node != 0 && n[node].parent != 0)
		node = n[node].parent;
	if (strcmp(n[node].name, "model") == 0)
		return &s->model;
	return strcmp(n[node].name, "optim") == 0 ? &s->optimizer : &s->extra;
}

static bool is_below(const struct ofs_summary *s, uint32_t node)
{
	while (node != s->below && node != 0)
		node = s->snap->tree.node[node].parent;
	return node == s->below;
}

static void count_all(struct ofs_summary *s)
{
	const struct ofs_snapshot *snap = s->snap;

	for (uint32_t i = 0; i < snap->tree.n; i++) {
		const struct ofs_entry *e =
		    ofs_tree_entry(&snap->tree, snap->cat, i);
		struct ofs_summary_count *top;

		if (e == NULL || !is_below(s, i))
			continue;
		top = top_of(s, i);
		count_health(s, e);
		count_few_bits(s, snap->tree.node[i].entry);
		if (e->kind == OFS_ENTRY_TENSOR) {
			count_tensor(s, &snap->cat->tensors[e->ref], top);
			continue;
		}
		s->all.values++;
		top->values++;
	}
}

bool ofs_summary_is_remark(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_MISSING && !ofs_note_is_loss(n);
}

static void count_short(struct ofs_summary *s, const struct ofs_extent *at,
    uint8_t *seen)
{
	const struct ofs_object *o = &s->snap->cat->objects[at->object];

	if (seen[at->object] || o->missing || o->refused ||
	    !ofs_extent_lost(s->snap->cat, at, NULL))
		return;
	seen[at->object] = true;
	s->short_files++;
}

static int count_short_files(struct ofs_summary *s, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->snap->cat;
	uint8_t *seen = calloc((size_t)cat->nobjects + 1, 1);

	if (seen == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < cat->nshards; i++)
		count_short(s, &cat->shards[i].at, seen);
	for (uint32_t i = 0; i < cat->nitems; i++)
		count_short(s, &cat->items[i].at, seen);
	free(seen);
	return 0;
}

static int count_files(struct ofs_summary *s, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->snap->cat;

	if (count_short_files(s, err) == -1)
		return -1;
	s->files = cat->nobjects;
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		s->missing_files += cat->objects[i].missing;
		s->refused_files += cat->objects[i].refused;
		if (cat->objects[i].damaged && s->damaged_files++ == 0)
			s->damaged_file = cat->objects[i].path;
		if (!cat->objects[i].missing)
			ofs_sum_u64(&s->file_bytes, cat->objects[i].size);
	}
	for (uint32_t i = 0; i < cat->nnotes; i++) {
		s->warnings += cat->notes[i].kind == OFS_NOTE_WARNING;
		s->errors += cat->notes[i].kind == OFS_NOTE_ERROR;
		s->missing += cat->notes[i].kind == OFS_NOTE_MISSING;
		s->remarks += ofs_summary_is_remark(&cat->notes[i]);
	}
	s->is_lossy = s->missing_files > 0 || s->missing > s->remarks ||
	    s->short_files > 0 || s->refused_files > 0;
	s->ranks = s->snap->nspaces - OFS_SPACE_RANK;
	return 0;
}

/* Optimizers. */

static struct ofs_summary_state *state_of(struct ofs_summary_optim *o,
    const char *name)
{
	struct ofs_summary_state *state;

	for (unsigned i = 0; i < o->nstates; i++)
		if (strcmp(o->states[i].name, name) == 0)
			return &o->states[i];
	if (o->nstates == OFS_SUMMARY_STATES)
		return NULL;
	state = &o->states[o->nstates++];
	state->name = name;
	state->dtype = OFS_DTYPE_NONE;
	return state;
}

/* Counts a file; a directory of nested state counts as one value. */
static void count_state(struct ofs_summary *s, struct ofs_summary_optim *o,
    uint32_t node)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&s->snap->tree, s->snap->cat, node);
	struct ofs_summary_state *state = state_of(o, name_of(s, node));

	if (state == NULL)
		return;
	if (t == NULL) {
		state->n.values++;
		return;
	}
	if (state->n.tensors == 0)
		state->dtype = t->dtype;
	else if (state->dtype != t->dtype)
		state->dtype = OFS_DTYPE_NONE;
	if (state->largest == NULL ||
	    ofs_tensor_numel(s->snap->cat, t) >
		ofs_tensor_numel(s->snap->cat, state->largest))
		state->largest = t;
	state->n.tensors++;
	ofs_sum_u64(&state->n.elements, ofs_tensor_numel(s->snap->cat, t));
	ofs_sum_u64(&state->n.bytes, ofs_tensor_bytes(s->snap->cat, t));
}

static bool has_state(const struct ofs_summary_optim *o, const char *name)
{
	for (unsigned i = 0; i < o->nstates; i++)
		if (strcmp(o->states[i].name, name) == 0)
			return true;
	return false;
}

/* The directory of its first group, or OFS_NONE. */
static uint32_t first_group(const struct ofs_summary *s,
    const struct ofs_summary_optim *o)
{
	const struct ofs_tree_node *dir;

	if (o->groups == OFS_NONE)
		return OFS_NONE;
	dir = &s->snap->tree.node[o->groups];
	return dir->nchild == 0 ? OFS_NONE : dir->child;
}

/* Adam and AdamW have the same state; since PyTorch 2.7 an option tells them
 * apart. Ambiguous cases are not named. */
static const char *adam(const struct ofs_summary *s, uint32_t group)
{
	char decoupled[8] = "";

	if (child(s, group, "amsgrad") == OFS_NONE)
		return NULL;
	ofs_summary_value(s->snap, child(s, group, "decoupled_weight_decay"),
	    decoupled, sizeof(decoupled));
	if (strcmp(decoupled, "true") == 0)
		return "AdamW";
	return strcmp(decoupled, "false") == 0 ? "Adam" : "Adam or AdamW";
}

static const char *kind_of(const struct ofs_summary *s,
    const struct ofs_summary_optim *o)
{
	static const struct {
		const char *state, *second; /* NULL: none */
		const char *option, *kind;
	} known[] = {
		{ "exp_avg", "mu_product", "momentum_decay", "NAdam" },
		{ "exp_avg", "exp_inf", "betas", "Adamax" },
		{ "square_avg", "acc_delta", "rho", "Adadelta" },
		{ "square_avg", NULL, "alpha", "RMSprop" },
		{ "sum", NULL, "lr_decay", "Adagrad" },
		{ "momentum_buffer", NULL, "ns_steps", "Muon" },
		{ "momentum_buffer", NULL, "dampening", "SGD with momentum" },
	};
	uint32_t group = first_group(s, o);

	if (has_state(o, "exp_avg") && has_state(o, "exp_avg_sq") &&
	    !has_state(o, "mu_product"))
		return adam(s, group);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (has_state(o, known[i].state) &&
		    (known[i].second == NULL ||
			has_state(o, known[i].second)) &&
		    child(s, group, known[i].option) != OFS_NONE)
			return known[i].kind;
	return o->nstates == 0 && child(s, group, "dampening") != OFS_NONE
	    ? "SGD"
	    : NULL;
}

static void find_step(const struct ofs_summary *s, struct ofs_summary_optim *o)
{
	const struct ofs_tree_node *node = s->snap->tree.node;
	uint32_t step = OFS_NONE;

	if (o->state != OFS_NONE && node[o->state].nchild > 0)
		step = child(s, node[o->state].child, "step");
	if (step == OFS_NONE)
		step = child(s, first_group(s, o), "step");
	if (!ofs_summary_value(s->snap, step, o->step, sizeof(o->step)))
		o->step[0] = '\0';
	else if (strlen(o->step) > 2 &&
	    strcmp(o->step + strlen(o->step) - 2, ".0") == 0)
		o->step[strlen(o->step) - 2] = '\0';
}

static void add_optim(struct ofs_summary *s, uint32_t dir, const char *name)
{
	const struct ofs_tree_node *node = s->snap->tree.node, *parameters;
	struct ofs_summary_optim *o = &s->optim[s->noptims];

	if (s->noptims == OFS_SUMMARY_OPTIMS)
		return;
	*o = (struct ofs_summary_optim){ .name = name,
		.state = child(s, dir, "state"),
		.groups = child(s, dir, "param_groups") };
	if (o->state == OFS_NONE && o->groups == OFS_NONE)
		return;
	s->noptims++;
	if (o->state != OFS_NONE) {
		parameters = &node[o->state];
		o->parameters = parameters->nchild;
		for (uint32_t p = 0; p < parameters->nchild; p++) {
			const struct ofs_tree_node *of =
			    &node[parameters->child + p];

			for (uint32_t i = 0; i < of->nchild; i++)
				count_state(s, o, of->child + i);
		}
	}
	o->kind = kind_of(s, o);
	find_step(s, o);
}

static void find_optims(struct ofs_summary *s)
{
	const struct ofs_tree_node *node = s->snap->tree.node;
	uint32_t dir = child(s, 0, "optim");

	if (dir == OFS_NONE)
		return;
	/* none of several is called state or param_groups */
	add_optim(s, dir, NULL);
	if (s->noptims > 0)
		return;
	for (uint32_t i = 0; i < node[dir].nchild; i++)
		add_optim(s, node[dir].child + i,
		    name_of(s, node[dir].child + i));
}

/* The trainer's step counter, if it has a known name; else that of the
 * optimizer. */
static void find_training_step(struct ofs_summary *s)
{
	static const char *const names[][3] = {
		{ "extra", "step", NULL },
		{ "extra", "global_step", NULL },
		{ "extra", "global_steps", NULL },
		{ "extra", "iteration", NULL },
		{ "extra", "train_state", "step" },
		{ "extra", "trainer", "global_step" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		uint32_t node = 0;

		for (size_t k = 0; k < 3 && names[i][k] != NULL; k++)
			node = child(s, node, names[i][k]);
		if (ofs_summary_value(s->snap, node, s->step,
			sizeof(s->step)) &&
		    s->step[0] >= '0' && s->step[0] <= '9')
			return;
	}
	strcpy(s->step, s->noptims > 0 ? s->optim[0].step : "");
}

/* The index of a DCP has the type that a tensor pretends to be: only its item
 * says that it is of a subclass, for example a quantized one. Small tensors are
 * often not quantized, so the largest one is opened. */
static void try_state(struct ofs_snapshot *snap,
    struct ofs_summary_state *state)
{
	const struct ofs_tensor *t = state->largest;
	struct optimfs_error why = { 0 };

	if (t == NULL || t->error != OFS_NONE || t->nshards == 0 ||
	    ofs_locate_shard(&snap->reader, t, t->shard, &why) != NULL)
		return;
	if (why.code == EOPNOTSUPP)
		state->why = why;
}

static int first_is_enough(void *ctx, const struct optimfs_dirent *entry)
{
	(void)ctx;
	(void)entry;
	return 1;
}

/* Finds the values that the view copies as they are pickled. */
static void find_copied(struct optimfs *fs, struct ofs_summary_view *v,
    const char *name)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	struct ofs_files *files = NULL;
	struct optimfs_error err;
	struct ofs_at at;

	if (ofs_view_make(snap, name, &at, &err) == 0)
		files = ofs_view_files(snap, at, &err);
	if (files != NULL) {
		v->ncopied = files->report->copied.n;
		if (v->ncopied > 0)
			snprintf(v->copied, sizeof(v->copied), "%s",
			    (const char *)files->report->copied.paths.data);
		ofs_view_files_done(snap, at);
	}
	ofs_leave(snap);
}

/* Lays out each view, without reading data. */
static void find_views(struct ofs_summary *s, struct optimfs *fs)
{
	struct optimfs_attr attr;
	struct optimfs_error *own;
	char path[64];

	for (unsigned i = 0; i < OFS_SUMMARY_VIEWS; i++) {
		struct ofs_summary_view *v = &s->view[i];

		v->name = optimfs_layout(i, &v->ranked);
		if (v->name == NULL)
			break;
		s->nviews++;
		snprintf(path, sizeof(path), ".optimfs/view/%s%s", v->name,
		    v->ranked ? "@8" : "");
		if (optimfs_resolve(fs, path, &attr, &v->why) == 0)
			(void)optimfs_readdir(fs, attr.node, 0, false,
			    first_is_enough, NULL, &v->why);
		if (v->why.code == 0) {
			find_copied(fs, v, path + strlen(".optimfs/view/"));
			continue;
		}
		own = ofs_error_without(&v->why, path);
		if (own != NULL)
			v->why = *own;
		free(own);
	}
}

/* Laying out a view would fail at the first damaged entry. */
static void refuse_views(struct ofs_summary *s)
{
	for (unsigned i = 0; i < s->nviews; i++)
		if (s->view[i].why.code == 0)
			optimfs_fail(&s->view[i].why, EIO,
			    "OFS140 a part or all of %" PRIu64 " %s is missing",
			    s->gone,
			    s->gone == 1 ? "tensor or value"
					 : "tensors and values");
}

uint64_t ofs_summary_problems(const struct ofs_summary *s)
{
	uint64_t n = s->damaged + s->gone + s->missing_files + s->short_files +
	    s->refused_files + s->damaged_files;

	/* what is absent has no entry to be counted by */
	return n == 0 ? s->missing - s->remarks : n;
}

/* Fills in everything except views. */
static int make(struct ofs_summary *s, struct ofs_snapshot *snap,
    uint32_t below, struct optimfs_error *err)
{
	s->snap = snap;
	s->below = below;
	if (below >= snap->tree.n)
		return optimfs_fail(err, EINVAL,
		    "only what is below model, optim and extra has a summary; "
		    "optimfs plan describes a view");
	if (count_files(s, err) == -1)
		return -1;
	count_all(s);
	if (below != 0)
		return 0;
	find_optims(s);
	find_training_step(s);
	return 0;
}

/* Counts only damage, from the index alone: every mount does this and should
 * not read data. */
static int count_damage(struct ofs_summary *s, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = s->snap->cat;

	if (count_files(s, err) == -1)
		return -1;
	for (uint32_t i = 0; i < cat->nentries; i++)
		count_health(s, &cat->entries[i]);
	return 0;
}

static void put(const struct ofs_summary *s, enum optimfs_summary_form form,
    struct ofs_buf *out)
{
	switch (form) {
	case OPTIMFS_SUMMARY_LINE:
		ofs_summary_line(s, out);
		return;
	case OPTIMFS_SUMMARY_PROBLEMS:
		ofs_summary_damage(s, out);
		return;
	case OPTIMFS_SUMMARY_JSON:
		ofs_summary_json(s, out);
		return;
	case OPTIMFS_SUMMARY_BOTH:
		ofs_summary_json(s, out);
		/* fallthrough */
	case OPTIMFS_SUMMARY_TEXT:
		ofs_summary_text(s, out);
	}
}

static int directory(struct optimfs *fs, const struct optimfs_attr *attr,
    enum optimfs_summary_form form, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_summary s = { 0 };
	struct ofs_snapshot *snap;
	struct ofs_at at;
	bool all = attr->node == OPTIMFS_ROOT && form != OPTIMFS_SUMMARY_LINE &&
	    form != OPTIMFS_SUMMARY_PROBLEMS;
	int ret;

	if (all)
		find_views(&s, fs);
	s.snap = snap = ofs_enter(fs);
	ret = ofs_node_at(snap, attr->node, &at, err);
	if (ret == 0 && form == OPTIMFS_SUMMARY_PROBLEMS)
		ret = count_damage(&s, err);
	else if (ret == 0)
		ret = make(&s, snap,
		    at.space == OFS_SPACE_TREE ? at.index : OFS_NONE, err);
	for (unsigned i = 0; i < s.noptims && all; i++)
		for (unsigned k = 0; k < s.optim[i].nstates; k++)
			try_state(snap, &s.optim[i].states[k]);
	if (s.gone > 0)
		refuse_views(&s);
	if (ret == 0 && all)
		ret = ofs_inventory_left(snap->cat, &s.left, err);
	if (ret == 0)
		put(&s, form, out);
	ofs_inventory_free(&s.left);
	ofs_leave(snap);
	return ret;
}

char *optimfs_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	struct ofs_buf out = { 0 };
	int ret = 0;

	if (fs->nodes->summary != NULL)
		return fs->nodes->summary(fs, path, form, err);
	if (optimfs_resolve(fs, path, &attr, err) == -1)
		return NULL;
	if (S_ISDIR(attr.mode)) {
		ret = directory(fs, &attr, form, &out, err);
	} else {
		if (form == OPTIMFS_SUMMARY_JSON ||
		    form == OPTIMFS_SUMMARY_BOTH)
			ofs_summary_file_json(fs, path, &attr, &out);
		if (form != OPTIMFS_SUMMARY_JSON)
			ofs_summary_file_text(fs, &attr, &out);
	}
	if (ret == 0)
		return ofs_buf_text(&out, err);
	ofs_buf_fini(&out);
	return NULL;
}
