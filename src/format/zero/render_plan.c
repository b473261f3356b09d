/* render_plan.c - which entry goes into which of DeepSpeed's files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "format/fsdp/flat_check.h"
#include "format/zero/render.h"
#include "pickle/pickle.h"

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "a view of ZeRO's files");
}

/* The model. */

static struct ofs_str name_of(const struct ofs_zero_new *z, uint32_t weight)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(z->cat,
	    z->cat->entries[z->weight[weight].entry].tree, &n);

	return ofs_catalog_string(z->cat, OFS_PATH_STR(c[n - 1]));
}

static bool same_name(const void *ctx, uint32_t i, const void *key, size_t n)
{
	struct ofs_str s = name_of(ctx, i);

	return s.len == n && memcmp(s.p, key, n) == 0;
}

static uint32_t find_weight(const struct ofs_zero_new *z, struct ofs_str name)
{
	return ofs_map_find(&z->names, ofs_map_hash(name.p, name.len),
	    same_name, z, name.p, name.len);
}

static int add_weight(struct ofs_zero_new *z, uint32_t entry,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &z->cat->entries[entry];
	struct ofs_str name;
	uint32_t n;

	ofs_catalog_components(z->cat, e->tree, &n);
	if (n != 2 || e->kind != OFS_ENTRY_TENSOR) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS684 DeepSpeed's model is one dict of tensors");
		return ofs_render_blame(z->cat, e, err);
	}
	if (ofs_render_sound(z->cat, e, err) == -1)
		return ofs_render_blame(z->cat, e, err);
	z->weight[z->nweights] =
	    (struct ofs_zero_new_weight){ entry, OFS_ZERO_NEW_BUFFER, 0 };
	name = name_of(z, z->nweights);
	if (!ofs_map_add(&z->names, ofs_map_hash(name.p, name.len),
		z->nweights))
		return no_memory(err);
	z->nweights++;
	return 0;
}

static int read_model(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t *entries, n;
	int ret = 0;

	if (ofs_render_entries(&z->from, &z->to, "model", &entries, &n, err) ==
	    -1)
		return -1;
	z->weight = calloc(n + 1ull, sizeof(*z->weight));
	if (z->weight == NULL)
		ret = no_memory(err);
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_weight(z, entries[i], err);
	free(entries);
	if (ret == 0 && n == 0)
		ret = optimfs_fail(err, EOPNOTSUPP,
		    "OFS682 there is no model here, without which DeepSpeed "
		    "loads no optimizer");
	return ret;
}

/* The optimizer. */

static int lacks(struct ofs_str name, const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS682 %.120s of the optimizer %s", name.p, what);
}

static int add_params(struct ofs_zero_new *z, struct optimfs_error *err)
{
	z->param = calloc(z->groups.nnames + 1ull, sizeof(*z->param));
	if (z->param == NULL)
		return no_memory(err);
	for (uint32_t i = 0; i < z->groups.nnames; i++) {
		struct ofs_str name = z->groups.name[i];
		uint32_t weight = find_weight(z, name);

		if (weight == OFS_NONE)
			return lacks(name,
			    "is not in the model (ids=FILE names parameters "
			    "that are numbers)",
			    err);
		z->param[i] = (struct ofs_zero_new_param){ .fqn = name,
			.model = z->weight[weight].entry,
			.fp32 = OFS_NONE };
		z->weight[weight].role = OFS_ZERO_NEW_TRAINED;
		z->weight[weight].of = i;
	}
	return 0;
}

static bool same_shape(const struct ofs_zero_new *z, uint32_t a, uint32_t b)
{
	const struct ofs_tensor *t = ofs_zero_new_tensor(z, a);
	const struct ofs_tensor *u = ofs_zero_new_tensor(z, b);

	return t->ndim == u->ndim &&
	    memcmp(ofs_tensor_shape(z->cat, t), ofs_tensor_shape(z->cat, u),
		t->ndim * sizeof(uint64_t)) == 0;
}

/* What is cut as its parameter is must look like it. */
static int check_state(const struct ofs_zero_new *z, uint32_t param,
    uint32_t entry, struct optimfs_error *err)
{
	const struct ofs_entry *e = &z->cat->entries[entry];

	if (ofs_render_sound(z->cat, e, err) == -1)
		return ofs_render_blame(z->cat, e, err);
	if (!ofs_zero_new_is_cut(z, entry) ||
	    same_shape(z, entry, z->param[param].model))
		return 0;
	optimfs_fail(err, EOPNOTSUPP,
	    "OFS684 its shape is not that of the parameter, with which ZeRO "
	    "would cut it");
	return ofs_render_blame(z->cat, e, err);
}

static int add_state(struct ofs_zero_new *z, uint32_t param, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_zero_new_param *p = &z->param[param];
	uint32_t entry = z->optim.node[node].entry;
	struct ofs_str name = ofs_state_key(&z->optim, node);

	if (entry == OFS_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS684 %.120s: its state '%.40s' has parts, which ZeRO "
		    "does not cut",
		    p->fqn.p, name.p);
	if (check_state(z, param, entry, err) == -1)
		return -1;
	if (strcmp(name.p, "fp32") == 0 &&
	    z->cat->entries[entry].kind == OFS_ENTRY_TENSOR &&
	    same_shape(z, entry, p->model)) {
		p->fp32 = entry;
		return 0;
	}
	if (z->nstates == z->state_cap) {
		uint32_t cap = z->state_cap == 0 ? 64 : z->state_cap * 2;
		struct ofs_zero_new_state *grown =
		    reallocarray(z->state, cap, sizeof(*grown));

		if (grown == NULL)
			return no_memory(err);
		z->state = grown;
		z->state_cap = cap;
	}
	z->state[z->nstates++] = (struct ofs_zero_new_state){ name.p, entry };
	p->nstates++;
	return 0;
}

static int read_states(struct ofs_zero_new *z, struct optimfs_error *err)
{
	const struct ofs_state_node *v = z->optim.node;
	uint32_t state = ofs_state_child(&z->optim, 0, "state");
	uint32_t i = state == OFS_NONE ? OFS_NONE : v[state].child;

	for (; i != OFS_NONE; i = v[i].next) {
		struct ofs_str fqn = ofs_state_key(&z->optim, i);
		uint32_t param = ofs_optim_groups_id(&z->groups, fqn);

		if (param == OFS_NONE)
			return optimfs_fail(err, EUCLEAN,
			    "OFS452 %.120s has state, but no group of the "
			    "optimizer lists it",
			    fqn.p);
		z->param[param].state = z->nstates;
		/* as PyTorch's optimizers do: step comes first */
		for (int cut = 0; cut <= 1; cut++)
			for (uint32_t k = v[i].child; k != OFS_NONE;
			     k = v[k].next)
				if ((v[k].entry != OFS_NONE &&
					ofs_zero_new_is_cut(z, v[k].entry)) ==
					(cut == 1) &&
				    add_state(z, param, k, err) == -1)
					return -1;
	}
	return 0;
}

/* PyTorch's optimizers list parameters that are frozen, and keep no state of
 * them; ZeRO's do not list them. */
static void find_untrained(struct ofs_zero_new *z)
{
	for (uint32_t i = 0; i < z->nweights && z->nstates > 0; i++) {
		struct ofs_zero_new_weight *w = &z->weight[i];

		if (w->role != OFS_ZERO_NEW_TRAINED ||
		    z->param[w->of].nstates > 0 ||
		    z->param[w->of].fp32 != OFS_NONE)
			continue;
		z->param[w->of].frozen = true;
		w->role = OFS_ZERO_NEW_FROZEN;
	}
}

/* Every float16 and bfloat16 is a float32. A cast leaves alone what has no
 * dimensions. */
static bool widens(const struct ofs_tensor *t)
{
	return t->ndim > 0 &&
	    (t->dtype == OFS_BFLOAT16 || t->dtype == OFS_FLOAT16);
}

enum ofs_dtype ofs_zero_new_dtype(const struct ofs_zero_new *z,
    const struct ofs_zero_new_param *p, uint32_t entry, enum ofs_dtype *cast)
{
	*cast = OFS_DTYPE_NONE;
	if (!p->widened || entry != p->fp32)
		return ofs_render_dtype(&z->to, ofs_zero_new_tensor(z, entry));
	*cast = OFS_FLOAT32;
	return *cast;
}

/* Without weights in fp32 those of the model are: what training would begin
 * with. */
static int find_masters(struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->groups.nnames; i++) {
		struct ofs_zero_new_param *p = &z->param[i];
		const struct ofs_tensor *t = ofs_zero_new_tensor(z, p->model);

		if (p->frozen || p->fp32 != OFS_NONE)
			continue;
		p->widened = widens(t);
		if (t->dtype != OFS_FLOAT32 && !p->widened)
			return lacks(p->fqn,
			    "has no weights in float32: neither a state fp32, "
			    "nor are those of the model such that it has them",
			    err);
		p->fp32 = p->model;
	}
	return 0;
}

/* An elastic checkpoint has none, and a loader would be left without lr. */
static int check_options(const struct ofs_zero_new *z,
    struct optimfs_error *err)
{
	const struct ofs_state *s = &z->optim;

	for (uint32_t i = 0; i < z->groups.n; i++) {
		uint32_t k = s->node[z->groups.v[i].node].child;

		while (k != OFS_NONE &&
		    strcmp(ofs_state_key(s, k).p, "params") == 0)
			k = s->node[k].next;
		if (k == OFS_NONE)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS682 group %u of the optimizer has no options "
			    "(lr, ...), which a loader asks for",
			    i);
	}
	return 0;
}

static int read_optim(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t groups;

	if (ofs_state_build(&z->optim, &z->from, &z->to, "optim", err) == -1)
		return -1;
	groups = z->optim.n <= 1 ? OFS_NONE : ofs_optim_groups_of(&z->optim, 0);
	if (groups == OFS_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS682 DeepSpeed's files hold one optimizer with "
		    "param_groups; here are several, or none");
	if (ofs_optim_groups_build(&z->groups, &z->optim, groups, &z->from,
		err) == -1)
		return -1;
	z->has_groups = true;
	if (check_options(z, err) == -1 || add_params(z, err) == -1 ||
	    ofs_zero_new_scalars(z, err) == -1 || read_states(z, err) == -1)
		return -1;
	find_untrained(z);
	return find_masters(z, err);
}

/* What of the model the optimizer does not have. */

/* The parameter whose second name weight is, as shared_params has it. */
static int tie_named(struct ofs_zero_new *z, uint32_t node,
    struct optimfs_error *err)
{
	uint32_t weight = find_weight(z, ofs_state_key(&z->extra, node));
	uint32_t entry = z->extra.node[node].entry, value, of;
	const struct ofs_pickle *doc;
	const struct ofs_entry *e;

	if (weight == OFS_NONE || entry == OFS_NONE ||
	    z->cat->entries[entry].kind == OFS_ENTRY_TENSOR ||
	    z->weight[weight].role == OFS_ZERO_NEW_TRAINED)
		return 0;
	e = &z->cat->entries[entry];
	if (ofs_render_value(&z->from, e, &doc, &value, err) == -1)
		return ofs_render_blame(z->cat, e, err);
	of = find_weight(z, ofs_pk_str(doc, value));
	ofs_render_release(e, doc);
	if (of == OFS_NONE || of == weight ||
	    !same_shape(z, z->weight[of].entry, z->weight[weight].entry))
		return 0;
	z->weight[weight].role = OFS_ZERO_NEW_ALIAS;
	z->weight[weight].of = of;
	return 0;
}

static int tie_names(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t node = z->extra.n == 0
	    ? OFS_NONE
	    : ofs_state_child(&z->extra, 0, "shared_params");

	if (node == OFS_NONE)
		return 0;
	for (uint32_t i = z->extra.node[node].child; i != OFS_NONE;
	     i = z->extra.node[i].next)
		if (tie_named(z, i, err) == -1)
			return -1;
	return 0;
}

/* Entries that are one tensor. */
static int tie_tensors(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t *first = calloc(z->cat->ntensors + 1ull, sizeof(*first));

	if (first == NULL)
		return no_memory(err);
	/* those that are trained own it */
	for (int trained = 1; trained >= 0; trained--)
		for (uint32_t i = 0; i < z->nweights; i++) {
			struct ofs_zero_new_weight *w = &z->weight[i];
			uint32_t *of = &first[z->cat->entries[w->entry].ref];

			if ((w->role == OFS_ZERO_NEW_TRAINED) != trained ||
			    w->role == OFS_ZERO_NEW_ALIAS)
				continue;
			if (*of == 0) {
				*of = i + 1;
			} else if (!trained) {
				w->role = OFS_ZERO_NEW_ALIAS;
				w->of = *of - 1;
			}
		}
	free(first);
	return 0;
}

/* Where the source says which are buffers, what else is not trained is frozen.
 */
static int find_frozen(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t entry = ofs_zero_new_fact(z, "buffer_names"), list;
	const struct ofs_pickle *doc;
	const struct ofs_entry *e;

	if (entry == OFS_NONE ||
	    z->cat->entries[entry].kind == OFS_ENTRY_TENSOR)
		return 0;
	e = &z->cat->entries[entry];
	if (ofs_render_value(&z->from, e, &doc, &list, err) == -1)
		return ofs_render_blame(z->cat, e, err);
	for (uint32_t i = 0; i < z->nweights; i++)
		if (z->weight[i].role == OFS_ZERO_NEW_BUFFER)
			z->weight[i].role = OFS_ZERO_NEW_FROZEN;
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++) {
		uint32_t weight =
		    find_weight(z, ofs_pk_str(doc, ofs_pk_item(doc, list, i)));

		if (weight != OFS_NONE &&
		    z->weight[weight].role == OFS_ZERO_NEW_FROZEN)
			z->weight[weight].role = OFS_ZERO_NEW_BUFFER;
	}
	ofs_render_release(e, doc);
	return 0;
}

/* Parameters of one flat group. */

static const struct ofs_zero_new_state *state_of(const struct ofs_zero_new *z,
    const struct ofs_zero_new_param *p, const char *name)
{
	for (uint32_t i = p->state; i < p->state + p->nstates; i++)
		if (strcmp(z->state[i].name, name) == 0)
			return &z->state[i];
	return NULL;
}

static int differs(const struct ofs_zero_new_param *p,
    const struct ofs_zero_new_param *q, const char *name,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS683 %.80s and %.80s are in one group of the optimizer, which "
	    "ZeRO makes one tensor, but differ in '%.30s': whether they have "
	    "it, its type, or its value",
	    p->fqn.p, q->fqn.p, name);
}

/* Can two states be parts of one: cut both, or the same value? 1, 0 or -1. */
static int alike(const struct ofs_zero_new *z, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	if (ofs_zero_new_is_cut(z, a) && ofs_zero_new_is_cut(z, b))
		return ofs_zero_new_tensor(z, a)->dtype ==
		    ofs_zero_new_tensor(z, b)->dtype;
	return ofs_flat_alike(&z->from, &z->optim, a, b, err);
}

static int check_pair(const struct ofs_zero_new *z, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	const struct ofs_zero_new_param *p = &z->param[a], *q = &z->param[b];
	enum ofs_dtype cast;

	if (ofs_zero_new_dtype(z, p, p->fp32, &cast) !=
	    ofs_zero_new_dtype(z, q, q->fp32, &cast))
		return differs(p, q, "fp32", err);
	for (uint32_t i = p->state; i < p->state + p->nstates; i++) {
		const struct ofs_zero_new_state *s = &z->state[i];
		const struct ofs_zero_new_state *t = state_of(z, q, s->name);
		int same = t == NULL ? 0 : alike(z, s->entry, t->entry, err);

		if (same != 1)
			return same == -1 ? -1 : differs(p, q, s->name, err);
	}
	for (uint32_t i = q->state; i < q->state + q->nstates; i++)
		if (state_of(z, p, z->state[i].name) == NULL)
			return differs(p, q, z->state[i].name, err);
	return 0;
}

static int check_groups(const struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t g = 0; g < z->groups.n; g++) {
		const struct ofs_optim_group *v = &z->groups.v[g];
		uint32_t first = OFS_NONE;

		for (uint32_t i = v->first; i < v->first + v->n; i++) {
			if (z->param[i].frozen)
				continue;
			if (first == OFS_NONE)
				first = i;
			else if (check_pair(z, first, i, err) == -1)
				return -1;
		}
	}
	return 0;
}

int ofs_zero_new_plan(struct ofs_zero_new *z, struct optimfs_error *err)
{
	if (read_model(z, err) == -1 || read_optim(z, err) == -1 ||
	    tie_names(z, err) == -1 || tie_tensors(z, err) == -1 ||
	    find_frozen(z, err) == -1)
		return -1;
	return check_groups(z, err);
}
