/* render_plan.c - the file of each entry in DeepSpeed's layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "format/zero/render.h"
#include "pickle/pickle.h"

/* The files of DeepSpeed have room for less than a checkpoint may hold: a model that
 * is one flat dict of tensors, and one optimizer, of which each group is one tensor
 * for each state, cut over the ranks. Their loaders check little; what does not fit
 * is loaded for another parameter, or fails when the job has started. So all
 * decisions are made here, when the view is looked up, and everything that is
 * impossible is refused with the name of the entry. The writers of files
 * (render_model.c, render_optim.c, render_universal.c) have no choices left, and
 * their errors are those of the disk. That is also why check_values pickles values
 * and throws the bytes away.
 *
 * Two parts of the source, model/ and optim/, have to become one: only names join
 * them. A parameter of the optimizer that the model lacks is an error, and each
 * entry of the model gets exactly one role:
 *
 *   TRAINED  a group of the optimizer lists it (add_param).
 *   FROZEN   listed, but without any state where others have some: PyTorch lists
 *            frozen parameters, and ZeRO does not (find_untrained). Or not listed,
 *            and no buffer by the source's own list (find_frozen).
 *   ALIAS    a second name: the source says so (tie_named), or both entries are one
 *            tensor (tie_tensors).
 *   BUFFER   the rest: whatever the optimizer lacks, unless the source lists its
 *            buffers.
 *
 * Roles are given in this order: optimizer, names, tensors, list. Only a weight that
 * no group trains can be an alias, so that each tensor which is trained has an
 * owner, and chains of aliases end: tie_named refuses to close a circle.
 *
 * ZeRO trains float32 weights, whatever the model has. They are the state "fp32",
 * which is taken out of the states (take_master); or else those of the model, which
 * become float32 without an error from bfloat16 or float16. That is what training
 * begins with.
 *
 * At last, the parameters of a group must agree, since they lie in one tensor: the
 * same states, in the same types, and equal where a state is a value that is stored
 * once (step). Being alike is an equivalence, so each is compared with the first. */

/* The model. */

static uint32_t find_weight(const struct ofs_zero_new *z, struct ofs_str name)
{
	return ofs_keys_find(&z->names, name.p, name.len);
}

static int add_weight(struct ofs_zero_new *z, uint32_t entry,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &z->m.cat->entries[entry];
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(z->m.cat, e->tree, &n);

	/* what cannot be read may be a tensor */
	if (ofs_render_sound(z->m.cat, e, err) == -1)
		return ofs_render_fail_in(z->m.cat, e, err);
	if (n != 2 || e->kind != OFS_ENTRY_TENSOR) {
		optimfs_fail(err, EOPNOTSUPP, "OFS684 %s",
		    e->kind != OFS_ENTRY_TENSOR
			? "not a tensor: a model of DeepSpeed has tensors only"
			: "a model of DeepSpeed is not nested");
		return ofs_render_fail_in(z->m.cat, e, err);
	}
	z->weight[z->nweights] =
	    (struct ofs_zero_new_weight){ entry, OFS_ZERO_NEW_BUFFER, 0 };
	z->nweights++;
	return ofs_keys_add(&z->names,
		   ofs_catalog_string(z->m.cat, OFS_PATH_STR(c[1])),
		   err) == OFS_NONE
	    ? -1
	    : 0;
}

static int read_model(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t *entries, n;
	int ret = 0;

	if (ofs_render_entries(&z->m.from, &z->m.to, "model", &entries, &n,
		err) == -1)
		return -1;
	z->weight = calloc(n + 1ull, sizeof(*z->weight));
	if (z->weight == NULL)
		ret = ofs_no_memory(err);
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_weight(z, entries[i], err);
	free(entries);
	if (ret == 0 && n == 0)
		ret = optimfs_fail(err, EOPNOTSUPP,
		    "OFS682 there is no model here, and DeepSpeed loads no "
		    "optimizer without one");
	return ret;
}

/* The optimizer. */

static int lacks(struct ofs_str name, const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS682 parameter %.120s of the optimizer %s", name.p, what);
}

static int add_param(struct ofs_zero_new *z, uint32_t i, uint32_t group,
    struct optimfs_error *err)
{
	struct ofs_str name = z->m.groups.names.v[i];
	uint32_t weight = find_weight(z, name), entry;
	const struct ofs_tensor *t;

	if (weight == OFS_NONE)
		return lacks(name,
		    "is not in the model (if it is a number: -o ids=model, or "
		    "a file, gives the names)",
		    err);
	entry = z->weight[weight].entry;
	t = ofs_flat_tensor(&z->m, entry);
	z->m.param[i] = (struct ofs_flat_member){ .fqn = name,
		.model = entry,
		.flat = group,
		.id = i,
		.shape = ofs_tensor_shape(z->m.cat, t),
		.ndim = t->ndim };
	z->master[i].fp32 = OFS_NONE;
	z->weight[weight].role = OFS_ZERO_NEW_TRAINED;
	z->weight[weight].of = i;
	return 0;
}

static int add_params(struct ofs_zero_new *z, struct optimfs_error *err)
{
	const struct ofs_optim_groups *g = &z->m.groups;

	z->m.nparams = g->names.n;
	z->m.param = calloc(g->names.n + 1ull, sizeof(*z->m.param));
	z->master = calloc(g->names.n + 1ull, sizeof(*z->master));
	if (z->m.param == NULL || z->master == NULL)
		return ofs_no_memory(err);
	for (uint32_t k = 0; k < g->n; k++)
		for (uint32_t i = 0; i < g->v[k].n; i++)
			if (add_param(z, g->v[k].first + i, k, err) == -1)
				return -1;
	return 0;
}

/* Takes fp32 weights, which are not written as other state is. */
static bool take_master(void *ctx, uint32_t param, const char *name,
    uint32_t entry)
{
	struct ofs_zero_new *z = ctx;

	if (strcmp(name, "fp32") != 0 ||
	    z->m.cat->entries[entry].kind != OFS_ENTRY_TENSOR ||
	    !ofs_flat_same_shape(&z->m, param, entry))
		return false;
	z->master[param].fp32 = entry;
	return true;
}

/* PyTorch's optimizers list frozen parameters without state. ZeRO's optimizers
 * do not list them. */
static void find_untrained(struct ofs_zero_new *z)
{
	for (uint32_t i = 0; i < z->nweights && z->m.nstates > 0; i++) {
		struct ofs_zero_new_weight *w = &z->weight[i];

		if (w->role != OFS_ZERO_NEW_TRAINED ||
		    z->m.param[w->of].nstates > 0 ||
		    z->master[w->of].fp32 != OFS_NONE)
			continue;
		z->master[w->of].frozen = true;
		w->role = OFS_ZERO_NEW_FROZEN;
	}
}

/* Every float16 and bfloat16 value is also a float32 value. Tensors without
 * dimensions are not converted. */
static bool widens(const struct ofs_tensor *t)
{
	return t->ndim > 0 &&
	    (t->dtype == OFS_BFLOAT16 || t->dtype == OFS_FLOAT16);
}

enum ofs_dtype ofs_zero_new_dtype(const struct ofs_zero_new *z, uint32_t param,
    uint32_t entry, enum ofs_dtype *cast)
{
	const struct ofs_zero_new_master *v = &z->master[param];

	*cast = OFS_DTYPE_NONE;
	if (!v->widened || entry != v->fp32)
		return ofs_render_dtype(&z->m.to,
		    ofs_flat_tensor(&z->m, entry));
	*cast = OFS_FLOAT32;
	return *cast;
}

/* Without fp32 weights uses the model's, with which training would begin. */
static int find_masters(struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->m.groups.names.n; i++) {
		const struct ofs_flat_member *p = &z->m.param[i];
		const struct ofs_tensor *t = ofs_flat_tensor(&z->m, p->model);
		struct ofs_zero_new_master *v = &z->master[i];

		if (v->frozen)
			continue;
		if (ofs_flat_check(&z->m, i, p->model, err) == -1)
			return -1;
		if (v->fp32 != OFS_NONE)
			continue;
		v->widened = widens(t);
		if (t->dtype != OFS_FLOAT32 && !v->widened)
			return lacks(p->fqn,
			    "has no weights in float32: there is no state fp32, "
			    "and those of the model have another dtype",
			    err);
		v->fp32 = p->model;
	}
	return 0;
}

/* Group options are required: an elastic checkpoint has none, and a loader
 * would have no lr. */
static int check_options(const struct ofs_zero_new *z,
    struct optimfs_error *err)
{
	const struct ofs_state *s = &z->m.optim;

	for (uint32_t i = 0; i < z->m.groups.n; i++) {
		uint32_t k = s->node[z->m.groups.v[i].node].child;

		while (k != OFS_NONE && ofs_state_key_is(s, k, "params"))
			k = s->node[k].next;
		if (k == OFS_NONE)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS682 group %u of the optimizer has no options "
			    "(lr, ...), which loaders need",
			    i);
	}
	return 0;
}

/* Finds values that cannot be pickled now, since the files are made only when
 * they are read. */
static int check_values(const struct ofs_zero_new *z, struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };
	struct ofs_state_pickler p;
	int ret;

	ofs_state_pickler_init(&p, &z->m.optim, &z->m.from, &out, NULL, err);
	ret = ofs_state_put_groups(&p, &z->m.groups, NULL);
	if (ret == 0 && z->extra.n > 0) {
		out.len = 0;
		ofs_state_pickler_init(&p, &z->extra, &z->m.from, &out, NULL,
		    err);
		ret = ofs_state_put(&p, 0);
	}
	ofs_buf_fini(&out);
	return ret;
}

static int read_optim(struct ofs_zero_new *z, struct optimfs_error *err)
{
	static const char several[] =
	    "OFS682 DeepSpeed's files hold one optimizer; this checkpoint has "
	    "several, or one without param_groups";

	if (ofs_flat_read_groups(&z->m, several, err) == -1)
		return -1;
	if (!z->m.has_optim)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS682 DeepSpeed's files hold an optimizer; this "
		    "checkpoint has none");
	if (check_options(z, err) == -1 || check_values(z, err) == -1 ||
	    add_params(z, err) == -1 || ofs_zero_new_scalars(z, err) == -1 ||
	    ofs_flat_read_states(&z->m, NULL, take_master, z, err) == -1)
		return -1;
	find_untrained(z);
	return find_masters(z, err);
}

/* Model entries that the optimizer does not have. */

static bool same_shape(const struct ofs_zero_new *z, uint32_t a, uint32_t b)
{
	const struct ofs_tensor *t = ofs_flat_tensor(&z->m, b);

	return ofs_tensor_has_shape(z->m.cat, ofs_flat_tensor(&z->m, a),
	    ofs_tensor_shape(z->m.cat, t), t->ndim);
}

/* Does the chain of aliases that begins at weight i lead to weight? */
static bool leads_to(const struct ofs_zero_new *z, uint32_t i, uint32_t weight)
{
	while (i != weight && z->weight[i].role == OFS_ZERO_NEW_ALIAS)
		i = z->weight[i].of;
	return i == weight;
}

/* Makes weight an alias of the parameter that shared_params names. Aliases must
 * not form a cycle, which would have no tensor. */
static int tie_named(struct ofs_zero_new *z, uint32_t node,
    struct optimfs_error *err)
{
	uint32_t weight = find_weight(z, ofs_state_key(&z->extra, node));
	uint32_t entry = z->extra.node[node].entry, value, of;
	const struct ofs_pickle *doc;
	const struct ofs_entry *e;

	if (weight == OFS_NONE || entry == OFS_NONE ||
	    z->m.cat->entries[entry].kind == OFS_ENTRY_TENSOR ||
	    z->weight[weight].role == OFS_ZERO_NEW_TRAINED)
		return 0;
	e = &z->m.cat->entries[entry];
	if (ofs_render_value(&z->m.from, e, &doc, &value, err) == -1)
		return ofs_render_fail_in(z->m.cat, e, err);
	of = find_weight(z, ofs_pk_str(doc, value));
	ofs_render_release(z->m.cat, e, doc);
	if (of == OFS_NONE || leads_to(z, of, weight) ||
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

/* Makes aliases of entries with the same tensor. */
static int tie_tensors(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t *first = calloc(z->m.cat->ntensors + 1ull, sizeof(*first));

	if (first == NULL)
		return ofs_no_memory(err);
	/* trained weights come first: they own the tensor */
	for (int trained = 1; trained >= 0; trained--)
		for (uint32_t i = 0; i < z->nweights; i++) {
			struct ofs_zero_new_weight *w = &z->weight[i];
			uint32_t *of = &first[z->m.cat->entries[w->entry].ref];

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

/* If the source lists the buffers, all other weights that are not trained are
 * frozen. */
static int find_frozen(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint32_t entry = ofs_zero_new_fact(z, "buffer_names"), list;
	const struct ofs_pickle *doc;
	const struct ofs_entry *e;

	if (entry == OFS_NONE ||
	    z->m.cat->entries[entry].kind == OFS_ENTRY_TENSOR)
		return 0;
	e = &z->m.cat->entries[entry];
	if (ofs_render_value(&z->m.from, e, &doc, &list, err) == -1)
		return ofs_render_fail_in(z->m.cat, e, err);
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
	ofs_render_release(z->m.cat, e, doc);
	return 0;
}

/* Agreement of the parameters of one flat group. */

static int differs(const struct ofs_flat_member *p,
    const struct ofs_flat_member *q, const char *name,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS683 %.80s and %.80s are in one group of the optimizer, which "
	    "ZeRO stores as one tensor, but differ in '%.30s': whether they "
	    "have it, its type, or its value",
	    p->fqn.p, q->fqn.p, name);
}

static int check_pair(const struct ofs_zero_new *z, uint32_t a, uint32_t b,
    struct optimfs_error *err)
{
	const struct ofs_flat_member *p = &z->m.param[a], *q = &z->m.param[b];
	enum ofs_dtype cast;

	if (ofs_zero_new_dtype(z, a, z->master[a].fp32, &cast) !=
	    ofs_zero_new_dtype(z, b, z->master[b].fp32, &cast))
		return differs(p, q, "fp32", err);
	for (uint32_t i = p->state; i < p->state + p->nstates; i++) {
		const struct ofs_flat_state *s = &z->m.state[i];
		const struct ofs_flat_state *t =
		    ofs_flat_find(&z->m, b, s->name);
		int same = t == NULL
		    ? 0
		    : ofs_flat_alike(&z->m, s->entry, t->entry, err);

		if (same != 1)
			return same == -1 ? -1 : differs(p, q, s->name, err);
	}
	for (uint32_t i = q->state; i < q->state + q->nstates; i++)
		if (ofs_flat_find(&z->m, a, z->m.state[i].name) == NULL)
			return differs(p, q, z->m.state[i].name, err);
	return 0;
}

static int check_groups(const struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t g = 0; g < z->m.groups.n; g++) {
		const struct ofs_optim_group *v = &z->m.groups.v[g];
		uint32_t first = OFS_NONE;

		for (uint32_t i = v->first; i < v->first + v->n; i++) {
			if (z->master[i].frozen)
				continue;
			if (first == OFS_NONE)
				first = i;
			else if (check_pair(z, first, i, err) == -1)
				return -1;
		}
	}
	return 0;
}

/* Stage 3 cuts frozen weights, too. */
static int check_frozen(const struct ofs_zero_new *z, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < z->nweights && z->stage == 3; i++) {
		const struct ofs_entry *e =
		    &z->m.cat->entries[z->weight[i].entry];

		if (z->weight[i].role == OFS_ZERO_NEW_FROZEN &&
		    ofs_render_unscaled(z->m.cat, e, err) == -1)
			return ofs_render_fail_in(z->m.cat, e, err);
	}
	return 0;
}

int ofs_zero_new_plan(struct ofs_zero_new *z, struct optimfs_error *err)
{
	if (read_model(z, err) == -1 || read_optim(z, err) == -1 ||
	    tie_names(z, err) == -1 || tie_tensors(z, err) == -1 ||
	    find_frozen(z, err) == -1 || check_frozen(z, err) == -1)
		return -1;
	return check_groups(z, err);
}
