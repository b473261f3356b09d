/* experts_ids.c - names for the numbers of parameters with experts, in ZeRO 0 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/zero/zero.h"
#include "pickle/write.h"

/* Without ZeRO, file R of expp_rank_R is the optimizer of the ranks with set R of
 * experts, whole tensors under numbers. A number is another expert in each file,
 * so that only names can be shown. They are those of the model in its order:
 * first the parameters that all ranks have, in one group, then the rank's experts
 * in a second one, with moe set. All shapes must agree; else the state is left
 * out (OFS764). */

/* A parameter of the model. */
struct known {
	struct ofs_str name;
	const struct ofs_pickle *doc;
	uint32_t node;
};

struct list {
	struct known *v;
	uint32_t n, cap;
};

struct ids {
	struct ofs_zero *z;
	struct list dense, experts; /* of all sets, by set */
	uint32_t nsets;
	uint32_t *state; /* of a file: of each number, or OFS_NONE */
	struct optimfs_error *err;
};

static int append(struct list *l, const struct known *k,
    struct optimfs_error *err)
{
	if (ofs_grow(l->v, l->n, l->cap, err) == -1)
		return -1;
	l->v[l->n++] = *k;
	return 0;
}

/* Appends the parameters in a dict: all that are no buffers. */
static int append_all(struct list *l, const struct ofs_pickle *doc,
    uint32_t dict, const struct ofs_keys *buffers, struct optimfs_error *err)
{
	for (uint32_t i = 0;
	     ofs_pk_kind(doc, dict) == OFS_PK_DICT && i < ofs_pk_len(doc, dict);
	     i++) {
		struct known k = { ofs_pk_str(doc, ofs_pk_key(doc, dict, i)),
			doc, ofs_pk_val(doc, dict, i) };

		if (!ofs_keys_has(buffers, k.name) && append(l, &k, err) == -1)
			return -1;
	}
	return 0;
}

/* Appends the parameters that all ranks have. */
static int append_dense(struct ids *x)
{
	const struct ofs_pickle *doc = x->z->model.file[0].doc;
	uint32_t root = ofs_pickle_root(doc),
		 list = ofs_pk_get(doc, root, "buffer_names");
	struct ofs_keys buffers = { 0 };
	int ret = 0;

	for (uint32_t i = 0; ofs_pk_kind(doc, list) == OFS_PK_LIST &&
	     i < ofs_pk_len(doc, list) && ret == 0;
	     i++)
		if (ofs_keys_add(&buffers,
			ofs_pk_str(doc, ofs_pk_item(doc, list, i)),
			x->err) == OFS_NONE)
			ret = -1;
	if (ret == 0)
		ret = append_all(&x->dense, doc,
		    ofs_pk_get(doc, root, "module"), &buffers, x->err);
	ofs_keys_fini(&buffers);
	return ret;
}

/* The experts of a set of ranks: of each layer, as many as any other set. Files
 * are in the order of layers, then of experts. */
static int append_set(struct ids *x, uint32_t set)
{
	const struct ofs_keys none = { 0 };
	struct ofs_zero *z = x->z;
	uint32_t n = z->experts.nfiles;

	for (uint32_t i = 0, layer; i < n; i += layer) {
		for (layer = 1; i + layer < n &&
		     z->expert[i + layer].layer == z->expert[i].layer;
		     layer++)
			;
		if (layer % x->nsets != 0)
			return 0; /* too few names: they will not fit */
		for (uint32_t k = 0; k < layer / x->nsets; k++) {
			uint32_t f = i + set * (layer / x->nsets) + k;
			const struct ofs_pickle *doc = z->experts.file[f].doc;

			if (append_all(&x->experts, doc, ofs_pickle_root(doc),
				&none, x->err) == -1)
				return -1;
		}
	}
	return 0;
}

/* Does the state of a parameter fit its shape? A tensor without dimensions, and
 * what is no tensor, always does. */
static bool fits(const struct known *k, const struct ofs_pickle *doc,
    uint32_t state)
{
	struct ofs_torch_tensor t, s;

	if (ofs_pk_kind(doc, state) != OFS_PK_DICT ||
	    ofs_torch_tensor(k->doc, k->node, &t, NULL) != 1)
		return false;
	for (uint32_t i = 0; i < ofs_pk_len(doc, state); i++)
		if (ofs_torch_tensor(doc, ofs_pk_val(doc, state, i), &s,
			NULL) == 1 &&
		    s.ndim > 0 &&
		    (s.ndim != t.ndim ||
			memcmp(s.shape, t.shape, s.ndim * sizeof(*s.shape)) !=
			    0))
			return false;
	return true;
}

/* Adds the states of the n parameters of a group in a file. Those that have no
 * state are frozen. */
static int collect(struct ids *x, uint32_t file, uint32_t id,
    const struct known *k, uint32_t n)
{
	struct ofs_zero *z = x->z;
	uint32_t part[3] = { ofs_zero_word(z, "optim", x->err),
		ofs_zero_word(z, "state", x->err) };

	for (uint32_t i = 0; i < n; i++) {
		uint32_t state = x->state[id + i];

		if (state == OFS_NONE)
			continue;
		part[2] =
		    ofs_catalog_str(z->cat, k[i].name.p, k[i].name.len, x->err);
		if (ofs_zero_collect(z, &z->optim, file, state, part, 3,
			x->err) == -1)
			return -1;
	}
	return 0;
}

/* The optimizer of a file. */
static uint32_t optimizer_of(const struct ofs_ranks_file *f, const char *key)
{
	return ofs_pk_get(f->doc,
	    ofs_pk_get(f->doc, ofs_pickle_root(f->doc), "optimizer"), key);
}

/* The parameters of a rank. */
static uint32_t count_ids(const struct ids *x)
{
	return x->dense.n + x->experts.n / x->nsets;
}

static void find_states(struct ids *x, const struct ofs_ranks_file *f)
{
	uint32_t states = optimizer_of(f, "state"), n = count_ids(x);
	int64_t id;

	for (uint32_t i = 0; i < n; i++)
		x->state[i] = OFS_NONE;
	for (uint32_t i = 0; ofs_pk_kind(f->doc, states) == OFS_PK_DICT &&
	     i < ofs_pk_len(f->doc, states);
	     i++)
		if (ofs_pk_int(f->doc, ofs_pk_key(f->doc, states, i), &id) &&
		    id >= 0 && id < n)
			x->state[id] = ofs_pk_val(f->doc, states, i);
}

/* Does the group have n parameters, with the numbers from id on? */
static bool has_ids(const struct ofs_pickle *doc, uint32_t group, uint32_t id,
    uint32_t n)
{
	uint32_t list = ofs_pk_get(doc, group, "params");
	int64_t v;

	if (ofs_pk_kind(doc, list) != OFS_PK_LIST || ofs_pk_len(doc, list) != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!ofs_pk_int(doc, ofs_pk_item(doc, list, i), &v) ||
		    v != (int64_t)id + i)
			return false;
	return true;
}

static bool all_fit(const struct ids *x, const struct ofs_ranks_file *f,
    uint32_t id, const struct known *k, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (x->state[id + i] != OFS_NONE &&
		    !fits(&k[i], f->doc, x->state[id + i]))
			return false;
	return true;
}

/* The experts of a set. */
static const struct known *experts_of(const struct ids *x, uint32_t set,
    uint32_t *n)
{
	*n = x->experts.n / x->nsets;
	return *n == 0 ? NULL : x->experts.v + (size_t)set * *n;
}

/* Has a file two groups with these parameters? */
static bool file_fits(struct ids *x, const struct ofs_ranks_file *f,
    uint32_t set)
{
	uint32_t groups = optimizer_of(f, "param_groups"), n;
	const struct known *experts = experts_of(x, set, &n);

	find_states(x, f);
	return ofs_pk_kind(f->doc, groups) == OFS_PK_LIST &&
	    ofs_pk_len(f->doc, groups) == 2 &&
	    has_ids(f->doc, ofs_pk_item(f->doc, groups, 0), 0, x->dense.n) &&
	    has_ids(f->doc, ofs_pk_item(f->doc, groups, 1), x->dense.n, n) &&
	    all_fit(x, f, 0, x->dense.v, x->dense.n) &&
	    all_fit(x, f, x->dense.n, experts, n);
}

static int collect_file(struct ids *x, uint32_t file)
{
	const struct ofs_ranks_file *f = &x->z->optim.file[file];
	uint32_t n;
	const struct known *experts = experts_of(x, (uint32_t)f->rank, &n);

	find_states(x, f);
	if (ofs_zero_groups(x->z, file, optimizer_of(f, "param_groups"),
		x->err) == -1 ||
	    collect(x, file, 0, x->dense.v, x->dense.n) == -1)
		return -1;
	return collect(x, file, x->dense.n, experts, n);
}

/* Adds the names of a group. */
static int add_names(struct ids *x, const char *group, const struct list *l)
{
	struct ofs_zero *z = x->z;
	struct ofs_buf b = { .limit = 1 << 30 };
	struct ofs_pkw w = { .out = &b, .plain = true };
	uint32_t part[4] = { ofs_zero_word(z, "optim", x->err),
		ofs_zero_word(z, "param_groups", x->err),
		ofs_zero_word(z, group, x->err),
		ofs_zero_word(z, "params", x->err) },
		 path;

	if (part[2] != OFS_NONE)
		part[2] |= OFS_PATH_INDEX;
	path = ofs_zero_path(z, part, 4, x->err);
	if (path == OFS_NONE)
		return -1;
	ofs_pkw_begin(&w);
	ofs_pkw_op(&w, OFS_PKW_LIST);
	ofs_pkw_op(&w, OFS_PKW_MARK);
	for (uint32_t i = 0; i < l->n; i++)
		ofs_pkw_str(&w, l->v[i].name.p, l->v[i].name.len);
	ofs_pkw_op(&w, OFS_PKW_APPENDS);
	ofs_pkw_op(&w, OFS_PKW_STOP);
	return ofs_ranks_value(&z->optim, path, &b, x->err);
}

/* States of experts are of one file each. */
static void mark_partial(struct ids *x)
{
	struct ofs_ranks *set = &x->z->optim;

	for (uint32_t i = 0; i < set->ngroups; i++)
		set->group[i].partial = set->group[i].n == 1;
}

static int name_all(struct ids *x)
{
	struct ofs_zero *z = x->z;
	bool fit = true;

	for (uint32_t i = 0; i < z->optim.nfiles && fit; i++)
		fit = z->optim.file[i].rank == (int)i &&
		    file_fits(x, &z->optim.file[i], i);
	if (!fit)
		return ofs_catalog_note(z->cat, OFS_NOTE_WARNING, EOPNOTSUPP,
		    x->err,
		    "OFS764 the optimizer's state is left out: its numbers of "
		    "parameters do not fit the parameters and experts of the "
		    "model in their order (expp_rank_*_optim_states.pt)");
	for (uint32_t i = 0; i < z->optim.nfiles; i++)
		if (collect_file(x, i) == -1)
			return -1;
	if (ofs_ranks_group(&z->optim, x->err) == -1)
		return -1;
	mark_partial(x);
	z->cat->found.ordered += x->dense.n + x->experts.n;
	if (ofs_ranks_merge(&z->optim, x->err) == -1 ||
	    add_names(x, "0", &x->dense) == -1 ||
	    add_names(x, "1", &x->experts) == -1)
		return -1;
	return ofs_catalog_note(z->cat, OFS_NOTE_WARNING, 0, x->err,
	    "OFS768 the optimizer's state has the names of the parameters of "
	    "the model in their order: all shapes fit, but without ZeRO "
	    "nothing else shows whose state it is "
	    "(expp_rank_*_optim_states.pt)");
}

int ofs_zero_experts_ids(struct ofs_zero *z, struct optimfs_error *err)
{
	struct ids x = { .z = z, .nsets = z->optim.nfiles, .err = err };
	int ret;

	if (z->optim.nfiles == 0 || z->model.nfiles == 0)
		return 0;
	ret = append_dense(&x);
	for (uint32_t i = 0; i < x.nsets && ret == 0; i++)
		ret = append_set(&x, i);
	if (ret == 0) {
		x.state =
		    ofs_alloc(count_ids(&x) + 1ull, sizeof(*x.state), err);
		ret = x.state == NULL ? -1 : name_all(&x);
	}
	free(x.state);
	free(x.dense.v);
	free(x.experts.v);
	return ret;
}
