/* ids.c - integer parameter IDs, and the names that ids= gives them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/ids.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids_file.h"
#include "naming/naming_impl.h"

/* Note the first number and the first name among the keys of an optimizer's
 * state. */
static void note_key(struct naming *c, uint32_t entry,
    const struct naming_key *key)
{
	struct naming_candidate *r = &c->root[c->slot[entry].root];
	uint32_t id;

	if (ofs_str_number(key->id.s, &id) &&
	    !ofs_keys_has(&c->fqns, key->id.s)) {
		if (!r->numbers)
			r->first_number = entry;
		r->numbers = true;
		r->sound |= ofs_entry_error(c->cat, &c->cat->entries[entry]) ==
		    OFS_NONE;
		if (id > r->max_id)
			r->max_id = id;
		return;
	}
	if (!r->names)
		r->first_name = entry;
	r->names = true;
}

static struct ofs_str id_of(const struct naming *c, uint32_t entry)
{
	return ofs_naming_key(c, entry).id.s;
}

/* An optimizer may keep other state under a name beside its parameters' IDs, as
 * PyTorch allows. Where the keys were split by the rules above, the split may
 * be wrong instead. */
static int mixed(struct naming *c, const struct naming_candidate *r,
    struct optimfs_error *err)
{
	struct ofs_str number = id_of(c, r->first_number);
	struct ofs_str name = id_of(c, r->first_name);
	bool text = (c->slot[r->first_number].at & SLOT_TEXT) != 0;

	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, EUCLEAN, err,
	    "OFS637 the optimizer's state has integer and string keys: first "
	    "integer %.*s, first string \"%.*s\"%s",
	    OFS_STR_ARGS(number, 100), OFS_STR_ARGS(name, 100),
	    text ? " (or the dotted keys were split wrongly)" : "");
}

static int look_at_keys(struct naming *c, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);

		if (key.kind == NAMING_STATE &&
		    (c->slot[i].at & SLOT_UNMATCHED) == 0)
			note_key(c, i, &key);
	}
	for (uint32_t i = 0; i < c->nroots; i++) {
		struct naming_candidate *r = &c->root[i];

		/* unreadable state under a number may have a name */
		if (r->names && !r->sound)
			r->numbers = false;
		if (r->accepted && r->numbers && r->names &&
		    mixed(c, r, err) == -1)
			return -1;
	}
	return 0;
}

static int several(struct naming *c, uint32_t first, uint32_t n,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_naming_join(c, c->root[first].c, c->root[first].n, '.', &b);
	ofs_buf_putc(&b, 0);
	optimfs_fail(err, EINVAL,
	    "OFS635 ids=: %u optimizers have integer parameter IDs, and a file "
	    "has the names of one: choose it with optim_key=, such as "
	    "optim_key=%.100s",
	    n, b.bad ? "" : (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

/* The optimizer for ids=: the only one with integer keys, or the only one.
 * OFS_NONE, with a note or an error, when there is none. */
static int choose_root(struct naming *c, struct optimfs_error *err)
{
	uint32_t numbered = 0, all = 0, first = OFS_NONE, only = OFS_NONE;

	for (uint32_t i = 0; i < c->nroots; i++) {
		if (!c->root[i].accepted)
			continue;
		all++;
		if (c->root[i].numbers) {
			if (numbered++ == 0)
				first = i;
			c->ids_root = i;
		}
		only = i;
	}
	if (numbered == 1)
		return 0;
	c->ids_root = OFS_NONE;
	if (numbered > 1)
		return several(c, first, numbered, err);
	/* without state, groups may still list IDs */
	if (all == 1 && !c->root[only].names) {
		c->ids_root = only;
		return 0;
	}
	if (c->cat->ids_used)
		return 0;
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS635 ids= has no effect: no optimizer here has integer parameter IDs");
}

/* The names of the model's entries in the tree. */
static int model_names(struct naming *c, struct ofs_keys *names,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_rest rest;
		struct naming_name fqn;
		uint32_t name;

		if (c->slot[i].root != OFS_NONE ||
		    !ofs_naming_in_model(c, i, &rest))
			continue;
		fqn = ofs_naming_fqn(c, rest);
		if (fqn.s.p == NULL)
			continue;
		name = ofs_naming_listed(c, SCOPE_MODEL, fqn, NULL, err);
		if (name == OFS_NONE ||
		    ofs_keys_add(names, ofs_catalog_string(c->cat, name),
			err) == OFS_NONE)
			return -1;
	}
	return 0;
}

/* The model's name for a line, which may have other prefixes of wrappers than
 * the keys of the model. Without a model, "module." is one if every line has
 * it. */
static int add_line(struct naming *c, struct ofs_ids *ids,
    const struct ofs_ids_line *l, const struct ofs_keys *model, bool module,
    struct optimfs_error *err)
{
	struct naming_name raw = { l->name, OFS_NONE };
	uint32_t name = ofs_naming_listed(c, SCOPE_MODEL, raw, NULL, err);
	uint32_t clean = ofs_naming_unwrapped(c, l->name, false, err);
	uint32_t bare = ofs_naming_unwrapped(c, l->name, true, err);
	const uint32_t forms[] = { name, clean, bare };

	ids->line = l->line;
	if (name == OFS_NONE || clean == OFS_NONE || bare == OFS_NONE)
		return -1;
	if (model->n == 0)
		name = module ? bare : clean;
	for (int i = 0; i < 3 && model->n > 0; i++) {
		name = forms[i];
		if (ofs_keys_has(model, ofs_catalog_string(c->cat, name)))
			break;
		name = OFS_NONE;
	}
	if (name == OFS_NONE)
		return optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: the model has no parameter "
		    "\"%.*s\"",
		    ids->file, l->line, OFS_STR_ARGS(l->name, 200));
	ids->v[ids->n++] = (struct ofs_id){ name, l->line, l->group };
	return 0;
}

OFS_COMPARE_BY2(by_name, struct ofs_id, name, line)

static int no_doubles(const struct ofs_ids *ids, struct optimfs_error *err)
{
	struct ofs_id *v = malloc(ids->n * sizeof(*v) + 1);
	int ret = 0;

	if (v == NULL)
		return ofs_no_memory(err);
	if (ids->n > 0)
		memcpy(v, ids->v, ids->n * sizeof(*v));
	qsort(v, ids->n, sizeof(*v), by_name);
	for (uint32_t i = 1; i < ids->n && ret == 0; i++)
		if (v[i].name == v[i - 1].name)
			ret = optimfs_fail(err, EINVAL,
			    "OFS635 %s: line %u names the parameter of line %u "
			    "again",
			    ids->file, v[i].line, v[i - 1].line);
	free(v);
	return ret;
}

/* *all: does every line begin with "module.", without wrappers' prefixes? */
static int all_module(struct naming *c, const struct ofs_ids_file *f, bool *all,
    struct optimfs_error *err)
{
	*all = true;
	for (uint32_t i = 0; i < f->n && *all; i++) {
		uint32_t clean, bare;

		clean = ofs_naming_unwrapped(c, f->v[i].name, false, err);
		bare = ofs_naming_unwrapped(c, f->v[i].name, true, err);
		if (clean == OFS_NONE || bare == OFS_NONE)
			return -1;
		*all = clean != bare;
	}
	return 0;
}

static int parse(struct naming *c, const struct ofs_ids_file *f,
    struct ofs_ids *ids, struct optimfs_error *err)
{
	struct ofs_keys model = { 0 };
	bool module;
	int ret;

	ids->v = malloc(f->n * sizeof(*ids->v) + 1);
	if (ids->v == NULL)
		return ofs_no_memory(err);
	ret = all_module(c, f, &module, err);
	if (ret == 0 && c->model.kind != MODEL_NONE)
		ret = model_names(c, &model, err);
	for (uint32_t i = 0; i < f->n && ret == 0; i++)
		ret = add_line(c, ids, &f->v[i], &model, module, err);
	ofs_keys_fini(&model);
	ids->line = f->end;
	ids->ngroups = f->ngroups;
	return ret == 0 ? no_doubles(ids, err) : ret;
}

static int from_file(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct ofs_ids_file f;
	int ret;

	if (ofs_ids_file_read(&f, c->opt->ids, err) == -1)
		return -1;
	ret = parse(c, &f, ids, err);
	ofs_ids_file_fini(&f);
	return ret == 0 ? ofs_naming_check_ids(c, ids, err) : ret;
}

static int store(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	uint32_t *v = ofs_arena_alloc(&c->cat->arena, ids->n * sizeof(*v));

	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < ids->n; i++)
		v[i] = ids->v[i].name;
	c->cat->ids = v;
	c->cat->nids = ids->n;
	c->cat->ids_optim = c->root[c->ids_root].name;
	return 0;
}

int ofs_naming_ids(struct naming *c, struct optimfs_error *err)
{
	struct ofs_ids ids = { .file = c->opt->ids };
	int ret;

	c->ids_root = OFS_NONE;
	if (look_at_keys(c, err) == -1)
		return -1;
	if (c->opt->ids == NULL)
		return 0;
	if (choose_root(c, err) == -1)
		return -1;
	if (c->ids_root == OFS_NONE)
		return 0;
	ret = strcmp(c->opt->ids, "model") == 0
	    ? ofs_naming_ids_of_model(c, &ids, err)
	    : from_file(c, &ids, err);
	if (ret == 0)
		ret = store(c, &ids, err);
	free(ids.v);
	return ret;
}

uint32_t ofs_naming_id_name(const struct naming *c, uint32_t root,
    struct ofs_str id)
{
	uint32_t number;

	if (root != c->ids_root || !ofs_str_number(id, &number) ||
	    number >= c->cat->nids || ofs_keys_has(&c->fqns, id))
		return OFS_NONE;
	return c->cat->ids[number];
}
