/* ids_named.c - names for IDs that are written down: in a file, or in groups */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids.h"
#include "naming/ids_file.h"
#include "pickle/pickle.h"

/* What is wrong with a name, where: a line of the file, or an ID of a group. */
static int misfit(const struct ofs_ids *ids, const struct ofs_id *at,
    struct optimfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int misfit(const struct ofs_ids *ids, const struct ofs_id *at,
    struct optimfs_error *err, const char *fmt, ...)
{
	char what[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (ids->file == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS634 param_names of group %u: %s", at->group, what);
	return optimfs_fail(err, EINVAL, "OFS635 %s: line %u: %s", ids->file,
	    at->line, what);
}

/* Names as they were written. */
struct written {
	struct ofs_ids_line *v;
	uint32_t n;
	struct ofs_keys
	    model;   /* the names of the model's entries in the tree */
	bool module; /* every name begins with "module." */
};

static int model_names(struct naming *c, struct ofs_keys *names,
    struct optimfs_error *err)
{
	if (c->model.kind == MODEL_NONE)
		return 0;
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

/* The model's name for a written one, which may have other prefixes of wrappers
 * than the keys of the model. Without a model, "module." is one if every name
 * has it. */
static int add_name(struct naming *c, struct ofs_ids *ids,
    const struct written *w, const struct ofs_ids_line *l,
    struct optimfs_error *err)
{
	struct naming_name raw = { l->name, OFS_NONE };
	uint32_t name = ofs_naming_listed(c, SCOPE_MODEL, raw, NULL, err);
	uint32_t clean = ofs_naming_unwrapped(c, l->name, false, err);
	uint32_t bare = ofs_naming_unwrapped(c, l->name, true, err);
	const uint32_t forms[] = { name, clean, bare };
	struct ofs_id *id = &ids->v[ids->n++];

	*id = (struct ofs_id){ w->module ? bare : clean, l->line, l->group };
	if (name == OFS_NONE || clean == OFS_NONE || bare == OFS_NONE)
		return -1;
	for (int i = 0; i < 3; i++)
		if (ofs_keys_has(&w->model,
			ofs_catalog_string(c->cat, forms[i]))) {
			id->name = forms[i];
			return 0;
		}
	/* a group may list what the model's file left out, as tied weights */
	if (w->model.n == 0 || ids->file == NULL)
		return 0;
	return misfit(ids, id, err, "the model has no parameter \"%.*s\"",
	    OFS_STR_ARGS(l->name, 200));
}

OFS_COMPARE_BY2(by_name, struct ofs_id, name, line)

static int no_doubles(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct ofs_id *v = malloc(ids->n * sizeof(*v) + 1);
	int ret = 0;

	if (v == NULL)
		return ofs_no_memory(err);
	if (ids->n > 0)
		memcpy(v, ids->v, ids->n * sizeof(*v));
	qsort(v, ids->n, sizeof(*v), by_name);
	for (uint32_t i = 1; i < ids->n && ret == 0; i++) {
		if (v[i].name != v[i - 1].name)
			continue;
		if (ids->file == NULL)
			ret = misfit(ids, &v[i], err,
			    "IDs %u and %u are both called %.200s",
			    v[i - 1].line - 1, v[i].line - 1,
			    ofs_catalog_string(c->cat, v[i].name).p);
		else
			ret = optimfs_fail(err, EINVAL,
			    "OFS635 %s: line %u names the parameter of line %u "
			    "again",
			    ids->file, v[i].line, v[i - 1].line);
	}
	free(v);
	return ret;
}

/* Does every name begin with "module.", without wrappers' prefixes? */
static int all_module(struct naming *c, struct written *w,
    struct optimfs_error *err)
{
	w->module = true;
	for (uint32_t i = 0; i < w->n && w->module; i++) {
		uint32_t clean, bare;

		clean = ofs_naming_unwrapped(c, w->v[i].name, false, err);
		bare = ofs_naming_unwrapped(c, w->v[i].name, true, err);
		if (clean == OFS_NONE || bare == OFS_NONE)
			return -1;
		w->module = clean != bare;
	}
	return 0;
}

OFS_COMPARE_KEY(compare_name, uint32_t, struct ofs_ids_tensor, name)
OFS_COMPARE_BY2(by_tensor, struct ofs_ids_tensor, name, entry)

/* The states must have the shapes of the parameters that they are named for. */
static int check_shapes(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct ofs_ids_tensor *model = NULL;
	struct ofs_ids_state *state = NULL;
	uint32_t nmodel = 0, nstates = 0;
	char want[64], have[64];
	enum ofs_evidence order;
	int ret;

	ret = ofs_ids_tensors(c, &model, &nmodel, &order, err);
	if (ret == 0)
		ret = ofs_ids_states(c, ids->root, &state, &nstates, err);
	if (ret == 0 && nmodel > 0)
		qsort(model, nmodel, sizeof(*model), by_tensor);
	for (uint32_t i = 0; i < nstates && ret == 0; i++) {
		const struct ofs_ids_tensor *m;
		const struct ofs_id *id;

		if (state[i].id >= ids->n || !ofs_ids_tells(&state[i]))
			continue;
		id = &ids->v[state[i].id];
		m = ofs_search(&id->name, model, nmodel, sizeof(*m),
		    compare_name);
		if (m == NULL || ofs_ids_fit(c, m->entry, &state[i]))
			continue;
		ofs_ids_print(c, m->entry, want);
		ofs_ids_print_state(c, &state[i], have);
		ret = misfit(ids, id, err,
		    "%.150s has shape [%s], the state of ID %u [%s]",
		    ofs_catalog_string(c->cat, id->name).p, want, state[i].id,
		    have);
	}
	free(model);
	free(state);
	return ret;
}

/* Fill *ids with the model's names for those that were written. */
static int settle(struct naming *c, struct ofs_ids *ids, struct written *w,
    struct optimfs_error *err)
{
	int ret;

	ids->v = malloc(w->n * sizeof(*ids->v) + 1);
	if (ids->v == NULL)
		return ofs_no_memory(err);
	ret = all_module(c, w, err);
	if (ret == 0)
		ret = model_names(c, &w->model, err);
	for (uint32_t i = 0; i < w->n && ret == 0; i++)
		ret = add_name(c, ids, w, &w->v[i], err);
	ofs_keys_fini(&w->model);
	return ret == 0 ? no_doubles(c, ids, err) : ret;
}

/* The file of ids=. */

static int surplus(const struct ofs_ids *ids, uint32_t at, uint64_t want,
    struct optimfs_error *err)
{
	uint32_t line = at < ids->n ? ids->v[at].line : ids->end;

	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %u: %u names, the optimizer has %" PRIu64
	    " parameters",
	    ids->file, line, ids->n, want);
}

static int surplus_group(const struct ofs_ids *ids, uint32_t ngroups,
    struct optimfs_error *err)
{
	uint32_t i = 0;

	while (i + 1 < ids->n && ids->v[i].group < ngroups)
		i++;
	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %u: %u groups of names, the optimizer has %u",
	    ids->file, ids->v[i].line, ids->ngroups, ngroups);
}

static uint32_t size_of(const struct ofs_ids_group *g)
{
	return ofs_pk_len(g->ids->doc, g->ids->node);
}

static int check_sizes(const struct ofs_ids *ids,
    const struct ofs_ids_groups *g, struct optimfs_error *err)
{
	uint64_t total = 0;
	uint32_t at = 0, end;

	for (uint32_t i = 0; i < g->n; i++) {
		if (g->v[i].ids == NULL)
			return 0;
		total += size_of(&g->v[i]);
	}
	if (g->n > 0 && total != ids->n)
		return surplus(ids, total < ids->n ? (uint32_t)total : ids->n,
		    total, err);
	for (uint32_t i = 0; i < g->n && ids->ngroups > 1; i++, at = end) {
		for (end = at; end < ids->n && ids->v[end].group == i; end++)
			;
		if (end - at != size_of(&g->v[i]))
			return optimfs_fail(err, EINVAL,
			    "OFS635 %s: line %u: group %u has %u names, "
			    "the optimizer's has %u parameters",
			    ids->file, at < ids->n ? ids->v[at].line : ids->end,
			    i, end - at, size_of(&g->v[i]));
	}
	return 0;
}

/* IDs must be indexes of the list of names. */
static int check_places(const struct ofs_ids *ids, const struct ofs_value *v,
    uint32_t group, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < ofs_pk_len(v->doc, v->node); i++) {
		int64_t id;

		if (ofs_pk_int(v->doc, ofs_pk_item(v->doc, v->node, i), &id) &&
		    (id < 0 || id >= ids->n))
			return optimfs_fail(err, EUCLEAN,
			    "OFS644 group %u lists ID %" PRId64
			    ", which no parameter has: there are %u",
			    group, id, ids->n);
	}
	return 0;
}

static int check_counts(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	const struct naming_candidate *r = &c->root[ids->root];
	struct ofs_ids_groups g;
	int ret = ofs_ids_groups(c, ids->root, &g, err);

	if (ret == 0 && ids->ngroups > 1 && g.n > 0 && g.n != ids->ngroups)
		ret = surplus_group(ids, g.n, err);
	if (ret == 0)
		ret = check_sizes(ids, &g, err);
	for (uint32_t i = 0; i < g.n && ret == 0; i++)
		if (g.v[i].ids != NULL)
			ret = check_places(ids, g.v[i].ids, i, err);
	if (ret == 0 && r->numbers && r->max_id >= ids->n)
		ret = optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: the file ends after %u names, but "
		    "ID %u has state",
		    ids->file, ids->end, ids->n, r->max_id);
	free(g.v);
	return ret;
}

int ofs_ids_of_file(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct ofs_ids_file f;
	struct written w;
	int ret;

	if (ofs_ids_file_read(&f, c->opt->ids, err) == -1)
		return -1;
	ids->file = c->opt->ids;
	ids->end = f.end;
	ids->ngroups = f.ngroups;
	w = (struct written){ .v = f.v, .n = f.n };
	ret = settle(c, ids, &w, err);
	ofs_ids_file_fini(&f);
	if (ret == 0)
		ret = check_counts(c, ids, err);
	return ret == 0 ? check_shapes(c, ids, err) : ret;
}

/* param_names of the groups: torch.optim takes model.named_parameters() since
 * PyTorch 2.6, and then keeps the names beside the IDs. */

static int wrong_list(uint32_t group, const char *why,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL, "OFS634 param_names of group %u: %s",
	    group, why);
}

static int add_group(struct written *w, const struct ofs_ids_group *g,
    uint32_t group, struct optimfs_error *err)
{
	uint32_t n;

	if (g->ids == NULL || g->names == NULL)
		return wrong_list(group, "it lacks this list, or params", err);
	n = size_of(g);
	if (ofs_pk_len(g->names->doc, g->names->node) != n)
		return wrong_list(group, "params has another length", err);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t name = ofs_pk_item(g->names->doc, g->names->node, i);
		int64_t id;

		if (ofs_pk_kind(g->names->doc, name) != OFS_PK_STR)
			return wrong_list(group, "it lists no names", err);
		if (!ofs_pk_int(g->ids->doc,
			ofs_pk_item(g->ids->doc, g->ids->node, i), &id) ||
		    id < 0 || id >= w->n || w->v[id].line != 0)
			return wrong_list(group,
			    "the IDs of params do not count the parameters",
			    err);
		w->v[id] =
		    (struct ofs_ids_line){ ofs_pk_str(g->names->doc, name),
			    (uint32_t)id + 1, group };
	}
	return 0;
}

static int collect(struct written *w, const struct ofs_ids_groups *g,
    struct optimfs_error *err)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < g->n; i++)
		n += g->v[i].ids == NULL ? 0 : size_of(&g->v[i]);
	if (n >= OFS_NONE)
		return wrong_list(0, "too many", err);
	w->n = (uint32_t)n;
	w->v = calloc(w->n + 1ull, sizeof(*w->v));
	if (w->v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < g->n; i++)
		if (add_group(w, &g->v[i], i, err) == -1)
			return -1;
	return 0;
}

/* Names that do not fit are none: the IDs stay. */
static int demote(struct naming *c, const struct optimfs_error *why,
    struct optimfs_error *err)
{
	if (why->number != 634)
		return optimfs_fail_with(err, why);
	return ofs_catalog_note_as(c->cat, OFS_NOTE_WARNING, why, err) == -1
	    ? -1
	    : 1;
}

/* Are there names beside numbers? A group of a state dict by names may list
 * them twice. */
static bool has_names(const struct ofs_ids_groups *g)
{
	bool found = false;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct ofs_value *v = g->v[i].ids;

		if (v != NULL && ofs_pk_len(v->doc, v->node) > 0 &&
		    ofs_pk_kind(v->doc, ofs_pk_item(v->doc, v->node, 0)) ==
			OFS_PK_STR)
			return false;
		found |= g->v[i].names != NULL;
	}
	return found;
}

int ofs_ids_of_groups(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct written w = { 0 };
	struct ofs_ids_groups g;
	int ret = ofs_ids_groups(c, ids->root, &g, &why);

	if (ret == 0 && !has_names(&g)) {
		ret = 1;
	} else {
		if (ret == 0)
			ret = collect(&w, &g, &why);
		if (ret == 0)
			ret = settle(c, ids, &w, &why);
		if (ret == 0)
			ret = check_shapes(c, ids, &why);
		if (ret == -1)
			ret = demote(c, &why, err);
	}
	ids->ngroups = g.n;
	free(w.v);
	free(g.v);
	return ret;
}
