/* canon_ids_model.c - do names fit IDs? Shapes and groups can tell */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "canon_ids.h"
#include "format/pickle.h"

/* A tensor that is shaped as its parameter: of the model (with its name), or
 * of an ID's state. */
struct shaped {
	uint32_t key; /* string, or ID */
	uint32_t entry;
};

struct shapes {
	struct shaped *v;
	uint32_t n, cap;
};

static int add(struct shapes *s, uint32_t key, uint32_t entry,
    struct optimfs_error *err)
{
	struct shaped *v;

	if (s->n == s->cap) {
		s->cap = s->cap == 0 ? 64 : s->cap * 2;
		v = reallocarray(s->v, s->cap, sizeof(*v));
		if (v == NULL)
			return ofs_canon_no_memory(err);
		s->v = v;
	}
	s->v[s->n++] = (struct shaped){ key, entry };
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct shaped *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->entry > y->entry) - (x->entry < y->entry);
}

static void sort(struct shapes *s)
{
	if (s->n > 0)
		qsort(s->v, s->n, sizeof(*s->v), by_key);
}

static const struct ofs_tensor *tensor(const struct canon *c, uint32_t entry)
{
	return &c->cat->tensors[c->cat->entries[entry].ref];
}

/* Equal runs of dimensions share one index. */
static bool same_shape(const struct canon *c, uint32_t a, uint32_t b)
{
	const struct ofs_tensor *x = tensor(c, a), *y = tensor(c, b);

	return x->ndim == y->ndim && (x->ndim == 0 || x->shape == y->shape);
}

static void print_shape(const struct canon *c, uint32_t entry, char text[64])
{
	const struct ofs_tensor *t = tensor(c, entry);
	struct ofs_buf b = { .limit = 60 };

	for (int i = 0; i < t->ndim; i++)
		ofs_buf_printf(&b, "%s%" PRIu64, i > 0 ? "," : "",
		    ofs_tensor_shape(c->cat, t)[i]);
	text[0] = '\0';
	if (b.len > 0)
		memcpy(text, b.data, b.len);
	text[b.len] = '\0';
	ofs_buf_fini(&b);
}

static const char *string(const struct canon *c, uint32_t s)
{
	return ofs_catalog_string(c->cat, s).p;
}

/* The model's tensors by the names they are listed by, in the model's order,
 * each tied one once. */
static int model_shapes(struct canon *c, struct shapes *s,
    struct optimfs_error *err)
{
	struct canon_rest rest;
	struct ofs_str fqn;
	uint32_t name;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (c->cat->entries[i].kind != OFS_ENTRY_TENSOR ||
		    !ofs_canon_in_model(c, i, &rest) || ofs_canon_tied(c, i))
			continue;
		fqn = ofs_canon_fqn(c, rest);
		if (fqn.p == NULL)
			continue;
		name = ofs_canon_listed(c, SCOPE_MODEL, fqn, NULL, err);
		if (name == OFS_NONE || add(s, name, i, err) == -1)
			return -1;
	}
	return 0;
}

/* Is this the key of a state that is shaped as its parameter? */
static bool shaped_state(const struct canon *c, const struct canon_key *key)
{
	if (key->tail.p != NULL)
		return key->nmore == 0 &&
		    (ofs_canon_classify(key->tail) & WORD_SHAPED) != 0;
	return key->nmore == 1 &&
	    (ofs_canon_word(c, key->more[0]) & WORD_SHAPED) != 0;
}

/* One such tensor for each ID, sorted by ID; OFS_NONE for an ID without. */
static int state_shapes(struct canon *c, struct shapes *s,
    struct optimfs_error *err)
{
	struct canon_key key;
	uint32_t id, n = 0;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		bool usable;

		if (c->spot[i].root != c->ids_root)
			continue;
		ofs_canon_key(c, ofs_canon_rest(c, i), &key);
		if (key.kind != CANON_STATE || !ofs_canon_number(key.id, &id))
			continue;
		usable = c->cat->entries[i].kind == OFS_ENTRY_TENSOR &&
		    shaped_state(c, &key);
		if (add(s, id, usable ? i : OFS_NONE, err) == -1)
			return -1;
	}
	sort(s);
	for (uint32_t i = 0; i < s->n; i++)
		if (n == 0 || s->v[n - 1].key != s->v[i].key)
			s->v[n++] = s->v[i];
	s->n = n;
	return 0;
}

/* A names file's shapes against the model's. */
static int check_shapes(struct canon *c, const struct ofs_ids *ids,
    const struct shapes *model, const struct shapes *state,
    struct optimfs_error *err)
{
	char want[64], have[64];

	for (uint32_t i = 0; i < state->n; i++) {
		const struct ofs_id *id = &ids->v[state->v[i].key];
		struct shaped key = { id->name, 0 };
		const struct shaped *m = NULL;

		for (uint32_t lo = 0, hi = model->n; lo < hi && m == NULL;) {
			uint32_t mid = lo + (hi - lo) / 2;

			if (model->v[mid].key == key.key)
				m = &model->v[mid];
			else if (model->v[mid].key < key.key)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (m == NULL || state->v[i].entry == OFS_NONE ||
		    same_shape(c, m->entry, state->v[i].entry))
			continue;
		print_shape(c, m->entry, want);
		print_shape(c, state->v[i].entry, have);
		return optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: %.150s has shape [%s], the state of "
		    "ID %u [%s]",
		    ids->file, id->line, string(c, id->name), want,
		    state->v[i].key, have);
	}
	return 0;
}

/* How many parameters each group has, where that is known without reading. */
struct groups {
	uint32_t n;     /* one more than the highest number seen */
	uint32_t *size; /* OFS_NONE: not known */
};

static bool is_params(const struct canon *c, const struct canon_key *key)
{
	if (key->tail.p != NULL)
		return key->nmore == 0 && ofs_canon_str_is(key->tail, "params");
	return key->nmore == 1 &&
	    ofs_canon_str_is(ofs_catalog_string(c->cat, key->more[0]),
		"params");
}

static int see_group(struct canon *c, uint32_t entry, struct groups *g,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	const struct ofs_value *v;
	struct canon_key key;
	uint32_t number, *size;

	ofs_canon_key(c, ofs_canon_rest(c, entry), &key);
	/* a million groups are damage, not groups */
	if (key.kind != CANON_GROUP || !ofs_canon_number(key.id, &number) ||
	    number >= 1u << 20)
		return 0;
	if (number >= g->n) {
		size = reallocarray(g->size, number + 1, sizeof(*size));
		if (size == NULL)
			return ofs_canon_no_memory(err);
		g->size = size;
		while (g->n <= number)
			g->size[g->n++] = OFS_NONE;
	}
	if (e->kind != OFS_ENTRY_VALUE || !is_params(c, &key))
		return 0;
	v = &c->cat->values[e->ref];
	if (ofs_pk_kind(v->doc, v->node) == OFS_PK_LIST)
		g->size[number] = ofs_pk_len(v->doc, v->node);
	return 0;
}

static int surplus(const struct ofs_ids *ids, uint32_t at, uint64_t want,
    struct optimfs_error *err)
{
	uint32_t line = at < ids->n ? ids->v[at].line : ids->line;

	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %u: %u names, the optimizer has %" PRIu64
	    " parameters",
	    ids->file, line, ids->n, want);
}

static int check_groups(const struct ofs_ids *ids, const struct groups *g,
    struct optimfs_error *err)
{
	uint64_t total = 0;
	uint32_t at = 0, end;

	for (uint32_t i = 0; i < g->n; i++) {
		if (g->size[i] == OFS_NONE)
			return 0;
		total += g->size[i];
	}
	if (g->n > 0 && total != ids->n)
		return surplus(ids, total < ids->n ? (uint32_t)total : ids->n,
		    total, err);
	for (uint32_t i = 0; i < g->n && ids->ngroups > 1; i++, at = end) {
		for (end = at; end < ids->n && ids->v[end].group == i; end++)
			;
		if (end - at != g->size[i])
			return optimfs_fail(err, EINVAL,
			    "OFS635 %s: line %u: group %u has %u names, "
			    "the optimizer's has %u parameters",
			    ids->file, at < ids->n ? ids->v[at].line : 0, i,
			    end - at, g->size[i]);
	}
	return 0;
}

static int check_counts(struct canon *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	const struct canon_root *r = &c->root[c->ids_root];
	struct groups g = { 0 };
	int ret = 0;

	if (r->numbers && r->max_id >= ids->n)
		return optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: the file ends after %u names, but "
		    "ID %u has state",
		    ids->file, ids->line, ids->n, r->max_id);
	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++)
		if (c->spot[i].root == c->ids_root)
			ret = see_group(c, i, &g, err);
	if (ret == 0 && ids->ngroups > 1 && g.n > 0 && g.n != ids->ngroups) {
		uint32_t i = ids->n - 1;

		while (i > 0 && ids->v[i - 1].group >= g.n)
			i--;
		ret = optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: %u groups of names, the optimizer has "
		    "%u",
		    ids->file, ids->v[i].line, ids->ngroups, g.n);
	}
	if (ret == 0)
		ret = check_groups(ids, &g, err);
	free(g.size);
	return ret;
}

int ofs_canon_check_ids(struct canon *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct shapes model = { 0 }, state = { 0 };
	int ret = check_counts(c, ids, err);

	if (ret == 0)
		ret = model_shapes(c, &model, err);
	if (ret == 0)
		ret = state_shapes(c, &state, err);
	if (ret == 0) {
		sort(&model);
		ret = check_shapes(c, ids, &model, &state, err);
	}
	free(model.v);
	free(state.v);
	return ret;
}

/* ids=model. The states, by ID, must be a subsequence of the model's tensors,
 * by shape, in one way only: the one that takes each as early as it can is
 * then the one that takes each as late as it can. */

static int no_fit(const struct canon *c, const struct shapes *model,
    const struct shapes *state, const uint32_t *at, uint32_t k,
    struct optimfs_error *err)
{
	char shape[64];

	print_shape(c, state->v[k].entry, shape);
	return optimfs_fail(err, EINVAL,
	    "OFS636 ids=model: the state of ID %u has shape [%s], which no "
	    "tensor of the model has%s%.150s",
	    state->v[k].key, shape, k == 0 ? "" : " after ",
	    k == 0 ? "" : string(c, model->v[at[k - 1]].key));
}

static int earliest(const struct canon *c, const struct shapes *model,
    const struct shapes *state, uint32_t *at, struct optimfs_error *err)
{
	uint32_t m = 0;

	for (uint32_t k = 0; k < state->n; k++, m++) {
		if (state->v[k].entry == OFS_NONE)
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u has no state with its "
			    "parameter's shape",
			    state->v[k].key);
		while (m < model->n &&
		    !same_shape(c, model->v[m].entry, state->v[k].entry))
			m++;
		if (m == model->n)
			return no_fit(c, model, state, at, k, err);
		at[k] = m;
	}
	return 0;
}

static int unique(const struct canon *c, const struct shapes *model,
    const struct shapes *state, const uint32_t *at, struct optimfs_error *err)
{
	uint32_t m = model->n;

	for (uint32_t k = state->n; k-- > 0;) {
		do
			m--;
		while (!same_shape(c, model->v[m].entry, state->v[k].entry));
		if (m != at[k])
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u may be %.100s or %.100s; "
			    "name the IDs in a file",
			    state->v[k].key, string(c, model->v[at[k]].key),
			    string(c, model->v[m].key));
	}
	return 0;
}

/* An ID without state, between two that are as far apart in the model, has its
 * name by its place. */
static void fill(struct ofs_ids *ids, const struct shapes *model,
    const struct shapes *state, const uint32_t *at)
{
	for (uint32_t k = 0; k < state->n; k++) {
		uint32_t id = state->v[k].key, gap;

		ids->v[id].name = model->v[at[k]].key;
		if (k == 0)
			continue;
		gap = id - state->v[k - 1].key;
		if (gap != at[k] - at[k - 1])
			continue;
		for (uint32_t i = 1; i < gap; i++)
			ids->v[id - i].name = model->v[at[k] - i].key;
	}
}

static int match(struct canon *c, const struct shapes *model,
    const struct shapes *state, struct ofs_ids *ids, struct optimfs_error *err)
{
	uint32_t *at, n;

	if (state->n == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: there is no state whose shapes could "
		    "tell");
	n = state->v[state->n - 1].key;
	if (n >= model->n)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: ID %u, but the model has %u tensors", n,
		    model->n);
	at = malloc(state->n * sizeof(*at));
	ids->n = n + 1;
	ids->v = malloc(ids->n * sizeof(*ids->v));
	if (at == NULL || ids->v == NULL) {
		free(at);
		return ofs_canon_no_memory(err);
	}
	memset(ids->v, 0xff, ids->n * sizeof(*ids->v));
	if (earliest(c, model, state, at, err) == -1 ||
	    unique(c, model, state, at, err) == -1) {
		free(at);
		return -1;
	}
	fill(ids, model, state, at);
	free(at);
	return 0;
}

int ofs_canon_ids_of_model(struct canon *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct shapes model = { 0 }, state = { 0 };
	int ret = model_shapes(c, &model, err);

	if (ret == 0)
		ret = state_shapes(c, &state, err);
	if (ret == 0)
		ret = match(c, &model, &state, ids, err);
	free(model.v);
	free(state.v);
	return ret;
}
