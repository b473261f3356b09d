/* update_universal.c - added and removed states of a universal checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/zero/layout.h"
#include "format/zero/update.h"
#include "format/zero/zero.h"
#include "read/locate.h"

/* An added state is a copy of the file of another state of the same parameter,
 * with new elements: the cut of the parameter, which that file records for
 * loaders, is the same for all states. */

struct files {
	struct ofs_commit *c;
	const struct ofs_part *part;
	const struct ofs_zero_shapes *shapes;
	struct ofs_key prefix[OFS_PART_PREFIX];
	uint32_t at; /* components before optim */
	/* of each group: parameters with the state, and all parameters */
	uint32_t *held, *params;
	struct optimfs_error *err;
};

static struct ofs_str param_of(const struct files *f,
    const struct ofs_commit_task *t)
{
	return t->path[f->at + 2].s;
}

static struct ofs_str state_of(const struct files *f,
    const struct ofs_commit_task *t)
{
	return t->path[f->at + 3].s;
}

static bool is_ours(const struct files *f, const struct ofs_commit_task *t)
{
	return t->op != OFS_TASK_SET && t->npath == f->at + 4 &&
	    ofs_commit_below(t, f->prefix, f->at) &&
	    ofs_str_is(t->path[f->at].s, "optim") &&
	    ofs_str_is(t->path[f->at + 1].s, "state");
}

static struct ofs_str component(const struct files *f, uint32_t c)
{
	return ofs_catalog_string(f->c->cat, OFS_PATH_STR(c));
}

/* The path components of an entry that is a state; NULL: another entry. */
static const uint32_t *state_path(const struct files *f,
    const struct ofs_entry *e)
{
	uint32_t n;
	const uint32_t *v = ofs_catalog_components(f->c->cat, e->path, &n);

	return n == f->at + 4 && ofs_str_is(component(f, v[f->at + 1]), "state")
	    ? v + f->at
	    : NULL;
}

/* Counts the parameters of each group that have a state. */
static void count_held(const struct files *f, struct ofs_str state,
    uint32_t *held)
{
	memset(held, 0, (f->shapes->ngroups + 1ull) * sizeof(*held));
	for (uint32_t i = 0; i < f->c->cat->nentries; i++) {
		const uint32_t *v = state_path(f, &f->c->cat->entries[i]);
		uint32_t g;

		if (v == NULL || !ofs_str_equal(component(f, v[3]), state))
			continue;
		g = ofs_zero_group(f->shapes, component(f, v[2]));
		if (g != OFS_NONE)
			held[g]++;
	}
}

static int incomplete(const struct files *f, const struct ofs_commit_task *t,
    uint32_t group)
{
	return optimfs_fail(f->err, EINVAL,
	    "OFS826 %.150s cannot be committed: ZeRO stores it in one group "
	    "with others, and %u of these %u parameters would have that state: "
	    "all must have it, or none",
	    t->change->path, f->held[group], f->params[group]);
}

/* All parameters of a group must have the same states, since ZeRO makes one
 * tensor of them. */
static int check_state(const struct files *f, struct ofs_str state)
{
	const struct ofs_commit *c = f->c;

	count_held(f, state, f->held);
	for (size_t i = 0; i < c->ntasks; i++) {
		const struct ofs_commit_task *t = &c->task[i];
		uint32_t g;

		if (!is_ours(f, t) || !ofs_str_equal(state_of(f, t), state))
			continue;
		g = ofs_zero_group(f->shapes, param_of(f, t));
		if (g == OFS_NONE)
			return ofs_commit_no_place(t,
			    "the checkpoint has no such parameter", f->err);
		f->held[g] += t->op == OFS_TASK_ADD ? 1u : UINT32_MAX;
	}
	for (size_t i = 0; i < c->ntasks; i++) {
		const struct ofs_commit_task *t = &c->task[i];
		uint32_t g;

		if (!is_ours(f, t) || !ofs_str_equal(state_of(f, t), state))
			continue;
		g = ofs_zero_group(f->shapes, param_of(f, t));
		if (f->held[g] != 0 && f->held[g] != f->params[g])
			return incomplete(f, t, g);
	}
	return 0;
}

static bool is_first(const struct files *f, size_t task)
{
	const struct ofs_commit *c = f->c;

	for (size_t i = 0; i < task; i++)
		if (is_ours(f, &c->task[i]) &&
		    ofs_str_equal(state_of(f, &c->task[i]),
			state_of(f, &c->task[task])))
			return false;
	return true;
}

char *ofs_zero_state_file(const struct ofs_part *part, struct ofs_str param,
    struct ofs_str state, struct optimfs_error *err)
{
	char *rel;

	if (asprintf(&rel, "%s%szero/%.*s/%.*s.pt", part->rel,
		part->rel[0] == '\0' ? "" : "/", (int)param.len, param.p,
		(int)state.len, state.p) != -1)
		return rel;
	ofs_no_memory(err);
	return NULL;
}

static int drop(const struct files *f, const struct ofs_commit_task *t)
{
	char *rel;
	int ret;

	if (ofs_str_is(state_of(f, t), "fp32"))
		return ofs_commit_no_place(t,
		    "a universal checkpoint has every parameter as its fp32",
		    f->err);
	rel = ofs_zero_state_file(f->part, param_of(f, t), state_of(f, t),
	    f->err);
	if (rel == NULL)
		return -1;
	if (ofs_catalog_find_object(f->c->cat, rel) == OFS_NONE)
		ret = ofs_commit_no_place(t,
		    "it has no file: in stage 3 the step is stored with the "
		    "groups",
		    f->err);
	else
		ret = ofs_commit_remove(f->c, rel, f->err);
	free(rel);
	return ret;
}

/* Finds the elements of a tensor in a file: contiguous, in C order,
 * unconverted. */
static bool lies_whole(const struct files *f, const struct ofs_tensor *t,
    uint32_t *object, uint64_t *off)
{
	const struct ofs_catalog *cat = f->c->cat;
	uint64_t n = ofs_tensor_numel(cat, t);
	struct ofs_plan plan = { 0 };
	bool whole = n > 0 &&
	    ofs_plan_elements(cat, t, 0, n, ofs_locate, f->c->reader, &plan,
		NULL) == 0 &&
	    plan.n == 1 && plan.seg[0].n == 1 &&
	    plan.seg[0].codec == OFS_PLAIN && plan.seg[0].fix == OFS_FIX_NONE;

	if (whole) {
		*object = plan.seg[0].object;
		*off = plan.seg[0].src;
	}
	ofs_plan_fini(&plan);
	return whole;
}

static bool has_form(const struct files *f, const struct ofs_tensor *t,
    const struct ofs_commit_task *task)
{
	return t->dtype == task->dtype &&
	    ofs_tensor_has_shape(f->c->cat, t, task->shape, task->ndim);
}

/* Finds another state of the parameter with the shape and dtype of the new one.
 * fp32 is the last choice, since PyTorch stores it as a Parameter. */
static bool find_like(const struct files *f, const struct ofs_commit_task *t,
    uint32_t *object, uint64_t *off)
{
	const struct ofs_catalog *cat = f->c->cat;
	bool found = false;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		const uint32_t *v =
		    e->kind == OFS_ENTRY_TENSOR ? state_path(f, e) : NULL;

		if (v == NULL ||
		    !ofs_str_equal(component(f, v[2]), param_of(f, t)) ||
		    !has_form(f, &cat->tensors[e->ref], t) ||
		    (found && ofs_str_is(component(f, v[3]), "fp32")) ||
		    !lies_whole(f, &cat->tensors[e->ref], object, off))
			continue;
		found = true;
		if (!ofs_str_is(component(f, v[3]), "fp32"))
			break;
	}
	return found;
}

/* Lays out a copy of an object, with the elements of t at off. */
static int lay_copy(const struct files *f, const struct ofs_commit_task *t,
    uint32_t object, uint64_t off, const char *rel)
{
	const struct ofs_object *o = &f->c->cat->objects[object];
	const struct ofs_extent all = { .object = object, .len = o->size };
	struct ofs_range range = { off, off + ofs_commit_bytes(t) };
	const struct ofs_ranges touched = { .v = &range, .n = 1 };
	uint32_t tensor = ofs_commit_added(f->c, t, f->err);
	struct ofs_commit_file *new = tensor == OFS_NONE
	    ? NULL
	    : ofs_commit_file(f->c, rel, o->path, f->err);
	struct ofs_zip_sums sums = { 0 };
	int ret = new == NULL ? -1 : 0;

	if (ret == 0)
		ret = ofs_commit_sums(f->c, &all, &touched, &sums, f->err);
	if (ret == 0)
		ret =
		    ofs_commit_stored(&new->comp, &all, 0, off, &sums, f->err);
	if (ret == 0)
		ret = ofs_composition_box(&new->comp, f->c->added, tensor, NULL,
		    f->err);
	if (ret == 0)
		ret = ofs_commit_stored(&new->comp, &all, range.end,
		    o->size - range.end, &sums, f->err);
	free(sums.v);
	return ret;
}

static int add_state_file(const struct files *f,
    const struct ofs_commit_task *t)
{
	uint32_t object;
	uint64_t off;
	char *rel;
	int ret;

	if (!ofs_zero_fits_name(state_of(f, t), 252))
		return ofs_commit_no_place(t, "its name cannot be a file name",
		    f->err);
	if (t->ndim == 0 || t->doc != NULL || !find_like(f, t, &object, &off))
		return ofs_commit_no_place(t,
		    "what is added to a universal checkpoint has the shape and "
		    "the type of another state of its parameter",
		    f->err);
	rel = ofs_zero_state_file(f->part, param_of(f, t), state_of(f, t),
	    f->err);
	if (rel == NULL)
		return -1;
	if (ofs_catalog_find_object(f->c->cat, rel) != OFS_NONE)
		ret = ofs_commit_no_place(t,
		    "its type and shape cannot be changed in place", f->err);
	else
		ret = lay_copy(f, t, object, off, rel);
	free(rel);
	return ret;
}

static int check(struct files *f, bool *any)
{
	struct ofs_commit *c = f->c;

	*any = false;
	count_held(f, (struct ofs_str){ "fp32", 4 }, f->params);
	for (size_t i = 0; i < c->ntasks; i++) {
		if (!is_ours(f, &c->task[i]))
			continue;
		if (c->job->many)
			return ofs_commit_no_place(&c->task[i],
			    "files can be added and removed only if one "
			    "directory has all of them",
			    f->err);
		*any = true;
		if (is_first(f, i) &&
		    check_state(f, state_of(f, &c->task[i])) == -1)
			return -1;
	}
	return 0;
}

static int put_all(const struct files *f)
{
	struct ofs_commit *c = f->c;

	c->at_once = true;
	for (size_t i = 0; i < c->ntasks; i++) {
		struct ofs_commit_task *t = &c->task[i];

		if (!is_ours(f, t))
			continue;
		if ((t->op == OFS_TASK_DROP ? drop(f, t)
					    : add_state_file(f, t)) == -1)
			return -1;
		t->done = true;
	}
	return 0;
}

int ofs_zero_commit_universal(struct ofs_commit *c, const struct ofs_part *part,
    const struct ofs_zero_shapes *shapes, struct optimfs_error *err)
{
	struct files f = {
		.c = c,
		.part = part,
		.shapes = shapes,
		.held = calloc(shapes->ngroups + 1ull, sizeof(*f.held)),
		.params = calloc(shapes->ngroups + 1ull, sizeof(*f.params)),
		.err = err,
	};
	bool any = false;
	int ret;

	f.at = ofs_part_keys(part, f.prefix);
	if (f.held == NULL || f.params == NULL)
		ret = ofs_no_memory(err);
	else
		ret = check(&f, &any);
	if (ret == 0 && any)
		ret = put_all(&f);
	free(f.held);
	free(f.params);
	return ret;
}
