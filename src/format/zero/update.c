/* update.c - changed values in DeepSpeed's files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/zero/update.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/torch/update.h"
#include "format/zero/zero.h"
#include "rewrite/archive.h"

/* The tree shows values that ranks and groups share once, or per parameter. A
 * commit writes them to every file that holds them. Changed bytes of tensors
 * need none of this, since their shards have the positions. */

/* The files of one rank of model parallelism, or a universal checkpoint. */
struct column {
	struct ofs_commit *c;
	const struct ofs_part *part;
	bool universal;
	const char *const *stays; /* of stage 3, whose weights stay; or NULL */
	const struct ofs_zero_files *files;
	int mp;
	struct ofs_key prefix[OFS_PART_PREFIX];
	uint32_t nprefix;
	struct ofs_commit_archive model; /* shapes borrows its strings */
	struct ofs_zero_shapes shapes;
	struct ofs_commit_path *path; /* of each task, in the current file */
	struct optimfs_error *err;
};

/* A path in a file, under construction. */
struct keys {
	struct ofs_key *key;
	uint32_t n;
};

static void push(struct keys *k, const char *word)
{
	k->key[k->n++] =
	    (struct ofs_key){ { word, (uint32_t)strlen(word) }, 0 };
}

static int push_number(struct column *col, struct keys *k, uint32_t v,
    bool index)
{
	char text[16];
	char *copy;

	snprintf(text, sizeof(text), "%" PRIu32, v);
	copy = ofs_arena_strndup(&col->c->arena, text, strlen(text));
	if (copy == NULL)
		return ofs_no_memory(col->err);
	push(k, copy);
	k->key[k->n - 1].index = index;
	return 0;
}

static void push_rest(struct keys *k, const struct ofs_commit_task *t,
    uint32_t from)
{
	for (uint32_t i = from; i < t->npath; i++)
		k->key[k->n++] = t->path[i];
}

static int begin_key(struct column *col, const struct ofs_commit_task *t,
    struct keys *k)
{
	k->n = 0;
	k->key = ofs_arena_alloc(&col->c->arena,
	    (t->npath + 4ull) * sizeof(*k->key));
	return k->key == NULL ? ofs_no_memory(col->err) : 0;
}

static void here(struct column *col, const struct ofs_commit_task *t,
    const struct keys *k)
{
	col->path[t - col->c->task] = (struct ofs_commit_path){ k->key, k->n };
}

/* Does a task's path, after the part's prefix, begin with these words? */
static bool is_in(const struct column *col, const struct ofs_commit_task *t,
    const char *first, const char *second)
{
	uint32_t at = col->nprefix;

	return t->npath > at + (second != NULL) + 1 &&
	    ofs_str_is(t->path[at].s, first) &&
	    (second == NULL || ofs_str_is(t->path[at + 1].s, second));
}

/* Does the task belong to another file, such as a trainer's own? */
static bool is_elsewhere(const struct column *col,
    const struct ofs_commit_task *t)
{
	const struct ofs_commit_job *job = col->c->job;

	if (!ofs_commit_below(t, col->prefix, col->nprefix))
		return true;
	for (size_t i = 0; i < job->nparts; i++)
		if (job->part[i].part != col->part &&
		    job->part[i].part->prefix[0] != NULL &&
		    ofs_str_is(t->path[0].s, job->part[i].part->prefix[0]))
			return true;
	return false;
}

/* A universal checkpoint has a file for each state of a parameter. */
static bool is_file(const struct column *col, const struct ofs_commit_task *t)
{
	return col->universal && t->op != OFS_TASK_SET &&
	    is_in(col, t, "optim", "state") && t->npath == col->nprefix + 4;
}

/* Refuses changes that no file can express. */
static int check(const struct column *col, const struct ofs_commit_task *t)
{
	uint32_t at = col->nprefix;

	if (is_elsewhere(col, t))
		return 0;
	if (is_in(col, t, "optim", "param_groups") && t->npath == at + 4 &&
	    ofs_str_is(t->path[at + 3].s, "params"))
		return ofs_commit_no_place(t,
		    "the parameters of a DeepSpeed group cannot be changed in "
		    "place (optimfs reshard writes a new checkpoint)",
		    col->err);
	if (t->op == OFS_TASK_SET || is_file(col, t))
		return 0;
	if (is_in(col, t, "optim", "state"))
		return ofs_commit_no_place(t,
		    "states of a DeepSpeed checkpoint cannot be added, removed "
		    "or renamed in place (optimfs reshard writes a new "
		    "checkpoint)",
		    col->err);
	if (is_in(col, t, "model", NULL))
		return ofs_commit_no_place(t,
		    "parameters of a DeepSpeed checkpoint cannot be added, "
		    "removed or renamed in place (optimfs reshard writes a new "
		    "checkpoint)",
		    col->err);
	return 0;
}

/* Files of weights. */

static int route_model(struct column *col, const struct ofs_commit_task *t)
{
	struct keys k;

	if (is_in(col, t, "optim", NULL) ||
	    is_in(col, t, "optimizer_state_dict", NULL))
		return 0;
	if (begin_key(col, t, &k) == -1)
		return -1;
	if (is_in(col, t, "model", NULL)) {
		push(&k, "module");
		push_rest(&k, t, col->nprefix + 1);
	} else {
		push_rest(&k, t, col->nprefix);
	}
	if (k.n > 0)
		here(col, t, &k);
	return 0;
}

/* "3.weight" is "weight" in layer_03. */
static int route_layer(struct column *col, const struct ofs_commit_task *t,
    int layer)
{
	struct ofs_str name;
	struct keys k;
	char head[16];
	size_t n;

	if (!is_in(col, t, "model", NULL))
		return 0;
	snprintf(head, sizeof(head), "%d.", layer);
	n = strlen(head);
	name = t->path[col->nprefix + 1].s;
	if (name.len <= n || memcmp(name.p, head, n) != 0)
		return 0;
	if (begin_key(col, t, &k) == -1)
		return -1;
	push_rest(&k, t, col->nprefix + 1);
	k.key[0].s.p += n;
	k.key[0].s.len -= (uint32_t)n;
	here(col, t, &k);
	return 0;
}

/* Files of the optimizer. */

/* Where the wrapped optimizer is: below first and base. In an elastic
 * checkpoint state is a list with the state of each group. */
struct form {
	const char *first, *base; /* NULL: at the top */
	bool elastic;
};

static void put_form(struct keys *k, const struct form *f)
{
	if (f->first != NULL)
		push(k, f->first);
	if (f->base != NULL)
		push(k, f->base);
}

static int route_optim(struct column *col, const struct ofs_commit_task *t,
    const struct form *f, const uint32_t *group)
{
	uint32_t at = col->nprefix, g;
	struct keys k;

	if (begin_key(col, t, &k) == -1)
		return -1;
	if (is_in(col, t, "optim", "param_groups")) {
		put_form(&k, f);
		push_rest(&k, t, at + 1);
	} else if (is_in(col, t, "optim", "state") && t->npath > at + 3) {
		g = group != NULL
		    ? *group
		    : ofs_zero_group(&col->shapes, t->path[col->nprefix + 2].s);
		if (g == OFS_NONE)
			return 0;
		put_form(&k, f);
		if (!f->elastic)
			push(&k, "state");
		if (push_number(col, &k, g, f->elastic) == -1)
			return -1;
		push_rest(&k, t, at + 3);
	} else if (is_in(col, t, "optimizer_state_dict", NULL)) {
		if (f->first != NULL)
			push(&k, f->first);
		push_rest(&k, t, at + 1);
	}
	if (k.n > 0)
		here(col, t, &k);
	return 0;
}

/* Files, one after the other. */

static void forget(struct column *col)
{
	memset(col->path, 0, (col->c->ntasks + 1) * sizeof(*col->path));
}

static int open_file(struct column *col, const char *rel,
    struct ofs_commit_archive *in)
{
	struct ofs_commit_source s = { .rank = -1 };

	s.object = ofs_catalog_find_object(col->c->cat, rel);
	*in = (struct ofs_commit_archive){ 0 };
	if (s.object == OFS_NONE || col->c->cat->objects[s.object].missing)
		return 0;
	s.len = col->c->cat->objects[s.object].size;
	if (ofs_commit_archive_open(col->c, &s, in, col->err) == -1)
		return optimfs_fail_in(col->err, "%.200s", rel);
	return 1;
}

/* 1: *f is the form of a file; 0: there is no such file. */
static int form_of(struct column *col, const char *rel, struct form *f)
{
	struct ofs_commit_archive in;
	struct ofs_zero_optim o;
	int ret = open_file(col, rel, &in);

	if (ret != 1)
		return ret;
	if (ofs_zero_optim_read(&o, in.doc, col->err) == -1)
		ret = optimfs_fail_in(col->err, "%.200s", rel);
	else
		*f = (struct form){ "optimizer_state_dict",
			o.stage == 3 ? "optimizer_state_dict"
				     : "base_optimizer_state",
			ofs_pk_kind(in.doc, o.base) == OFS_PK_LIST };
	ofs_commit_archive_close(&in);
	return ret;
}

static int route(struct column *col, const struct ofs_commit_task *t,
    const struct ofs_zero_file *file, const struct form *form)
{
	switch (file->id.kind) {
	case OFS_ZERO_MODEL:
	case OFS_ZERO_MODEL_PART:
		return route_model(col, t);
	case OFS_ZERO_LAYER:
		return route_layer(col, t, file->id.rank);
	default:
		return route_optim(col, t, form, NULL);
	}
}

/* Another than in the file's name, if files were swapped. */
static int rank_of(const struct ofs_catalog *cat,
    const struct ofs_zero_file *file)
{
	uint32_t object = ofs_catalog_find_object(cat, file->rel);

	return object == OFS_NONE ? file->id.rank : cat->objects[object].rank;
}

static int put_file(struct column *col, const struct ofs_zero_file *file,
    const struct form *form)
{
	struct ofs_commit *c = col->c;
	struct ofs_commit_source s = { .path = col->path, .rank = -1 };
	int ret = 0;

	forget(col);
	for (size_t i = 0; i < c->ntasks && ret == 0; i++)
		if (!is_elsewhere(col, &c->task[i]))
			ret = route(col, &c->task[i], file, form);
	if (file->id.kind == OFS_ZERO_MODEL_PART ||
	    file->id.kind == OFS_ZERO_OPTIM)
		s.rank = rank_of(c->cat, file);
	return ret == -1 ? -1
			 : ofs_torch_commit_file(c, file->rel, &s, col->err);
}

/* All optimizer files have the form of the first one. */
static int put_files(struct column *col)
{
	static const struct form by_id = { .base = "optimizer" };
	struct form form = { 0 };
	int known = 0;

	for (size_t i = 0; i < col->files->n; i++) {
		const struct ofs_zero_file *f = &col->files->file[i];

		if (f->id.mp != col->mp)
			continue;
		if (f->id.kind == OFS_ZERO_OPTIM && known == 0)
			known = form_of(col, f->rel, &form);
		if (known == -1 ||
		    ((f->id.kind != OFS_ZERO_OPTIM || known == 1) &&
			put_file(col, f,
			    f->id.kind == OFS_ZERO_EXPERT_OPTIM ? &by_id
								: &form) == -1))
			return -1;
	}
	return 0;
}

/* Reads parameter names from the first file that has them. */
static int read_shapes(struct column *col)
{
	for (size_t i = 0; i < col->files->n && col->shapes.n == 0; i++) {
		const struct ofs_zero_file *f = &col->files->file[i];
		uint32_t node, root;
		int ret;

		if (f->id.mp != col->mp || f->id.kind == OFS_ZERO_LAYER)
			continue;
		ret = open_file(col, f->rel, &col->model);
		if (ret == -1)
			return -1;
		if (ret == 0)
			continue;
		root = ofs_pickle_root(col->model.doc);
		node = ofs_pk_get(col->model.doc, root, "param_shapes");
		if (node == OFS_NONE)
			node = ofs_pk_get(col->model.doc,
			    ofs_pk_get(col->model.doc, root,
				"optimizer_state_dict"),
			    "param_shapes");
		if (node != OFS_NONE &&
		    ofs_pk_kind(col->model.doc, node) != OFS_PK_NONE)
			return ofs_zero_shapes_read(&col->shapes,
			    col->model.doc, node, col->err);
		ofs_commit_archive_close(&col->model);
	}
	return 0;
}

static void fini(struct column *col)
{
	ofs_zero_shapes_fini(&col->shapes);
	ofs_commit_archive_close(&col->model);
	free(col->path);
}

/* Universal checkpoints: a file per state, one file with what the groups share,
 * and copies of the weight files. */

/* Has the task no place yet, and may have one here? */
static bool is_open(const struct column *col, const struct ofs_commit_task *t)
{
	return !t->done && !is_elsewhere(col, t);
}

/* Writes NAME/STATE.pt below zero/, if it exists. */
static int put_state(struct column *col, const struct ofs_commit_task *t)
{
	struct ofs_commit_source s = { .path = col->path, .rank = -1 };
	const struct ofs_key *k = t->path + col->nprefix;
	struct ofs_commit_archive in;
	struct keys where;
	uint32_t root;
	char *rel;
	int ret;

	if (!is_in(col, t, "optim", "state") || t->npath < col->nprefix + 4)
		return 0;
	rel = ofs_zero_state_file(col->part, k[2].s, k[3].s, col->err);
	if (rel == NULL)
		return -1;
	ret = open_file(col, rel, &in);
	if (ret == 1) {
		root = ofs_pickle_root(in.doc);
		ret = begin_key(col, t, &where);
		if (ret == 0 && ofs_pk_get(in.doc, root, "param") != OFS_NONE)
			push(&where, "param");
		if (ret == 0) {
			push_rest(&where, t, col->nprefix + 4);
			here(col, t, &where);
		}
		ofs_commit_archive_close(&in);
		if (ret == 0)
			ret = ofs_torch_commit_file(col->c, rel, &s, col->err);
		col->path[t - col->c->task].key = NULL;
	}
	free(rel);
	return ret;
}

/* Finds the form of zero/optimizer_state.pt, and the group that holds a
 * parameter's step: its own, or the first one. */
static int route_globals(struct column *col, const struct ofs_commit_task *t,
    const struct ofs_commit_archive *in)
{
	uint32_t root = ofs_pickle_root(in->doc), group = OFS_NONE;
	struct form form = { 0 };
	struct ofs_zero_optim o = { .doc = in->doc };

	o.base = ofs_pk_get(in->doc, root, "optimizer_state_dict");
	if (ofs_pk_get(in->doc, root, "param_groups") == OFS_NONE)
		form.base = "optimizer_state_dict";
	if (is_in(col, t, "optim", "state")) {
		form.base = "optimizer_state_dict";
		group =
		    ofs_zero_group(&col->shapes, t->path[col->nprefix + 2].s);
		if (group != OFS_NONE && ofs_zero_state(&o, group) == OFS_NONE)
			group = 0;
	}
	return route_optim(col, t, &form, &group);
}

static int put_globals(struct column *col)
{
	struct ofs_commit_source s = { .path = col->path, .rank = -1 };
	struct ofs_commit *c = col->c;
	struct ofs_commit_archive in;
	char *rel;
	int ret;

	rel = ofs_path_join(col->part->rel, "zero/optimizer_state.pt");
	if (rel == NULL)
		return ofs_no_memory(col->err);
	forget(col);
	ret = open_file(col, rel, &in);
	if (ret == 1) {
		ret = 0;
		for (size_t i = 0; i < c->ntasks && ret == 0; i++)
			if (is_open(col, &c->task[i]))
				ret = route_globals(col, &c->task[i], &in);
		ofs_commit_archive_close(&in);
		if (ret == 0)
			ret = ofs_torch_commit_file(c, rel, &s, col->err);
	}
	free(rel);
	return ret;
}

/* What only a universal checkpoint has. */
static int put_own(struct column *col)
{
	int ret = ofs_zero_commit_universal(col->c, col->part, &col->shapes,
	    col->err);

	for (size_t i = 0; i < col->c->ntasks && ret == 0; i++)
		if (is_open(col, &col->c->task[i]))
			ret = put_state(col, &col->c->task[i]);
	return ret == 0 ? put_globals(col) : -1;
}

static int put_column(struct column *col)
{
	int ret;

	col->path = calloc(col->c->ntasks + 1, sizeof(*col->path));
	if (col->path == NULL)
		return ofs_no_memory(col->err);
	ret = read_shapes(col);
	if (ret == 0 && col->universal)
		ret = put_own(col);
	if (ret == 0)
		ret = put_files(col);
	fini(col);
	return ret;
}

static int put_columns(struct column *col)
{
	int last = -1;

	for (size_t i = 0; i < col->files->n; i++) {
		struct column one = *col;

		one.mp = col->files->file[i].id.mp;
		if (one.mp == last)
			continue;
		last = one.mp;
		if (put_column(&one) == -1)
			return -1;
	}
	return 0;
}

/* Without its optimizer a checkpoint has no files of it, and no param_shapes,
 * which say what is in them: as DeepSpeed writes one that has none, and loads it
 * with load_module_only=True. In stage 3 the weights are in these files: they lose
 * what zero_to_fp32.py, by which DeepSpeed loads them, calls huge and discards. */

static bool is_optim_file(const struct ofs_zero_file *f)
{
	return f->id.kind == OFS_ZERO_OPTIM ||
	    f->id.kind == OFS_ZERO_EXPERT_OPTIM;
}

/* Is all of the optimizer removed that can be? */
static bool drops_optim(const struct column *col)
{
	bool here = false;

	if (col->universal)
		return false; /* it has a file for each state */
	for (size_t i = 0; i < col->files->n; i++) {
		here = here || is_optim_file(&col->files->file[i]);
		if (col->stays != NULL &&
		    col->files->file[i].id.kind == OFS_ZERO_EXPERT_OPTIM)
			return false;
	}
	return here && ofs_commit_drops_optim(col->c, col->stays);
}

static bool is_optim(const struct column *col, const struct ofs_commit_task *t)
{
	return t->op == OFS_TASK_DROP && !is_elsewhere(col, t) &&
	    (is_in(col, t, "optim", NULL) ||
		(col->stays == NULL &&
		    is_in(col, t, "optimizer_state_dict", NULL)));
}

/* Removes n keys from the files of a kind. Each is the place of a task. */
static int drop_keys(struct column *col, const struct ofs_commit_path *key,
    size_t n, enum ofs_zero_kind kind)
{
	struct ofs_commit_source s = { .path = col->path, .rank = -1 };
	size_t done = 0;
	int ret = 0;

	for (size_t i = 0; i < col->c->ntasks && done < n; i++)
		if (is_optim(col, &col->c->task[i]))
			col->path[i] = key[done++];
	for (size_t i = 0; i < col->files->n && ret == 0; i++) {
		const struct ofs_zero_file *f = &col->files->file[i];

		if (f->id.kind != kind)
			continue;
		if (kind == OFS_ZERO_OPTIM)
			s.rank = rank_of(col->c->cat, f);
		ret = ofs_torch_commit_file(col->c, f->rel, &s, col->err);
	}
	return ret;
}

/* What files of models have of it: names and shapes, and without ZeRO its state,
 * which in ZeRO is None. */
static int drop_files(struct column *col)
{
	struct ofs_key shapes = { ofs_str_of("param_shapes"), 0 },
		       state = { ofs_str_of("optimizer"), 0 };
	const struct ofs_commit_path key[] = { { &shapes, 1 }, { &state, 1 } };

	for (size_t i = 0; i < col->files->n; i++)
		if (is_optim_file(&col->files->file[i]) &&
		    ofs_commit_remove(col->c, col->files->file[i].rel,
			col->err) == -1)
			return -1;
	return drop_keys(col, key, 2, OFS_ZERO_MODEL);
}

static int drop_wrapped(struct column *col)
{
	struct ofs_key k[] = { { ofs_str_of("optimizer_state_dict"), 0 },
		{ ofs_str_of("optimizer_state_dict"), 0 } };

	return drop_keys(col, &(struct ofs_commit_path){ k, 2 }, 1,
	    OFS_ZERO_OPTIM);
}

static int drop_optim(struct column *col)
{
	struct ofs_commit *c = col->c;
	bool alone = c->nchanged == 0;
	int ret;

	for (size_t i = 0; i < c->ntasks; i++)
		alone = alone &&
		    (is_optim(col, &c->task[i]) ||
			is_elsewhere(col, &c->task[i]));
	if (!alone)
		return optimfs_fail(col->err, EINVAL,
		    "OFS826 the optimizer of a DeepSpeed checkpoint can only "
		    "be removed alone: commit the other changes first");
	for (size_t i = 0; i < c->ntasks; i++)
		if (is_optim(col, &c->task[i]) &&
		    ofs_path_matches(col->stays, c->task[i].change->path))
			return ofs_commit_no_place(&c->task[i],
			    "in stage 3 it has the weights; the other states "
			    "can be removed, with the groups",
			    col->err);
	c->at_once = true;
	col->path = calloc(c->ntasks + 1, sizeof(*col->path));
	if (col->path == NULL)
		return ofs_no_memory(col->err);
	ret = col->stays != NULL ? drop_wrapped(col) : drop_files(col);
	free(col->path);
	for (size_t i = 0; i < c->ntasks; i++)
		if (is_optim(col, &c->task[i]))
			c->task[i].done = true;
	return ret;
}

static int update(struct ofs_commit *c, const struct ofs_part *part,
    bool universal, struct optimfs_error *err)
{
	struct ofs_zero_files files;
	struct column col = { .c = c,
		.part = part,
		.universal = universal,
		.stays = universal ? NULL : ofs_zero_stays(c->cat),
		.files = &files,
		.err = err };
	bool drop;
	int ret = 0;

	col.nprefix = ofs_part_keys(part, col.prefix);
	if (c->ntasks == 0)
		return 0;
	if (ofs_zero_list(&files, &c->cat->dir, part->rel, err) == -1)
		return -1;
	drop = drops_optim(&col);
	for (size_t i = 0; i < c->ntasks && ret == 0; i++)
		if (!drop || !is_optim(&col, &c->task[i]))
			ret = check(&col, &c->task[i]);
	if (ret == 0)
		ret = drop      ? drop_optim(&col)
		    : universal ? put_column(&col)
				: put_columns(&col);
	ofs_zero_files_fini(&files);
	return ret;
}

int ofs_zero_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err)
{
	return update(c, part, false, err);
}

int ofs_universal_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err)
{
	return update(c, part, true, err);
}
