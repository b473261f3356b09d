/* model.c - the place of the model in a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* Which path with tensors, that is not an optimizer, is the model? In this
 * order: a key at the top with a model's name; such a key beside an optimizer
 * ('app.model' where there is 'app.optim'); the path whose last components
 * contain most of the names in the optimizers' state; the tensors at the top; a
 * key with a model's name anywhere. */
enum rule { BY_KEY, BESIDE_OPTIMIZER, BY_FQN, AT_TOP, BY_KEY_BELOW, NO_RULE };

struct candidate {
	enum rule rule;
	uint32_t likely; /* number of TOKEN_MODEL: smaller is likelier */
	uint32_t n;
	uint32_t c[NAMING_DEPTH];
};

static bool is_tensor(const struct naming *c, uint32_t entry)
{
	const struct ofs_entry *e = &c->cat->entries[entry];

	return e->kind == OFS_ENTRY_TENSOR && c->slot[entry].root == OFS_NONE &&
	    (c->cat->tensors[e->ref].flags & OFS_TENSOR_FILE) == 0;
}

static const uint32_t *path_of(const struct naming *c, uint32_t entry,
    uint32_t *n)
{
	return ofs_catalog_components(c->cat, c->cat->entries[entry].path, n);
}

static int compare_paths(const struct naming *c, const uint32_t *a,
    const uint32_t *b, uint32_t n)
{
	int d = 0;

	for (uint32_t i = 0; i < n && d == 0; i++)
		d = ofs_str_compare(ofs_catalog_string(c->cat, a[i]),
		    ofs_catalog_string(c->cat, b[i]));
	return d;
}

static bool better(const struct naming *c, const struct candidate *a,
    const struct candidate *b)
{
	if (a->rule != b->rule)
		return a->rule < b->rule;
	if (a->n != b->n)
		return a->n < b->n;
	if (a->likely != b->likely)
		return a->likely < b->likely;
	return compare_paths(c, a->c, b->c, a->n) < 0;
}

static bool beside_optimizer(const struct naming *c, uint32_t first)
{
	for (uint32_t i = 0; i < c->nroots; i++)
		if (c->root[i].accepted && c->root[i].n > 1 &&
		    c->root[i].c[0] == first)
			return true;
	return false;
}

/* Only the order of their names makes one of them the model. */
static bool is_rival(const struct naming *c, const struct candidate *a,
    const struct candidate *b)
{
	return a->rule == b->rule && a->n == b->n && a->likely == b->likely &&
	    compare_paths(c, a->c, b->c, a->n) != 0;
}

/* Update best with the candidates of one path, and rival, as likely as best. */
static void by_key(const struct naming *c, const uint32_t *path, uint32_t n,
    struct candidate *best, struct candidate *rival)
{
	struct candidate k = { .rule = NO_RULE };
	uint32_t w;

	for (uint32_t i = 0; i + 1 < n && i < 3; i++) {
		k.c[i] = OFS_PATH_STR(path[i]);
		w = TOKEN_MODEL_OF(ofs_naming_word(c, path[i]));
		if (w == 0)
			continue;
		k.rule = i == 0                   ? BY_KEY
		    : beside_optimizer(c, k.c[0]) ? BESIDE_OPTIMIZER
						  : BY_KEY_BELOW;
		k.likely = w;
		k.n = i + 1;
		if (is_rival(c, &k, best))
			*rival = better(c, &k, best) ? *best : k;
		if (better(c, &k, best))
			*best = k;
	}
}

/* Counts entries by path. */
struct tally {
	struct ofs_keys paths;
	uint32_t *count, cap; /* of each path */
};

static int count(struct tally *t, const uint32_t *path, uint32_t n,
    struct optimfs_error *err)
{
	uint32_t known = t->paths.n;
	struct ofs_str key = { (const char *)path,
		n * (uint32_t)sizeof(*path) };
	uint32_t at = ofs_keys_add(&t->paths, key, err);

	if (at == OFS_NONE ||
	    ofs_reserve(t->count, at + 1ull, t->cap, err) == -1)
		return -1;
	if (at == known)
		t->count[at] = 0;
	t->count[at]++;
	return 0;
}

/* Collect the names of parameters with state. */
static int state_names(struct naming *c, struct ofs_keys *names,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);

		if (key.kind == NAMING_STATE &&
		    ofs_keys_add(names, key.id.s, err) == OFS_NONE)
			return -1;
	}
	return 0;
}

static void most(const struct tally *t, struct candidate *best)
{
	const uint32_t *path;
	uint32_t first = 0;
	bool tied = false;

	for (uint32_t i = 1; i < t->paths.n; i++) {
		if (t->count[i] > t->count[first]) {
			first = i;
			tied = false;
		} else if (t->count[i] == t->count[first]) {
			tied = true;
		}
	}
	/* a tie is a copy of the model, and either may be the model */
	if (t->paths.n == 0 || tied)
		return;
	path = (const uint32_t *)t->paths.v[first].p;
	best->rule = BY_FQN;
	best->n = t->paths.v[first].len / sizeof(*path);
	for (uint32_t i = 0; i < best->n; i++)
		best->c[i] = OFS_PATH_STR(path[i]);
}

static int by_fqn(struct naming *c, struct candidate *best,
    struct optimfs_error *err)
{
	struct ofs_keys names = { 0 };
	struct tally t = { 0 };
	const uint32_t *path;
	uint32_t n;
	int ret = state_names(c, &names, err);

	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++) {
		if (!is_tensor(c, i))
			continue;
		path = path_of(c, i, &n);
		if (n > 0 && n <= NAMING_DEPTH &&
		    ofs_keys_has(&names,
			ofs_catalog_string(c->cat, path[n - 1])))
			ret = count(&t, path, n - 1, err);
	}
	if (ret == 0)
		most(&t, best);
	ofs_keys_fini(&names);
	ofs_keys_fini(&t.paths);
	free(t.count);
	return ret;
}

/* In textual keys, names of the model may begin with "model.", as those of the
 * optimizer do with "optim.", or a model may have a child "model". The names in
 * the optimizer's state decide. */

static bool try_prefix(const struct ofs_keys *tops, const char *prefix,
    struct ofs_str text)
{
	size_t n = strlen(prefix), dot = ofs_naming_dot(text, 0);
	char key[1024];

	memcpy(key, prefix, n);
	for (; dot < text.len; dot = ofs_naming_dot(text, dot + 1)) {
		if (n + dot > sizeof(key))
			return false;
		memcpy(key + n, text.p, dot);
		if (ofs_keys_has(tops,
			(struct ofs_str){ key, (uint32_t)(n + dot) }))
			return true;
	}
	return false;
}

static const char *const prefixes[] = { "", "model.", "state_dict.", "module.",
	"app.model.", "state.model.", NULL };
#define MAX_TRIES 256

static const char *find_prefix(const struct naming *c,
    const struct ofs_keys *tops)
{
	int tries = 0;

	for (uint32_t i = 0; i < c->cat->nentries && tries < MAX_TRIES; i++) {
		struct naming_rest rest;

		if (c->slot[i].root == OFS_NONE ||
		    (c->slot[i].at & SLOT_TEXT) == 0)
			continue;
		rest = ofs_naming_rest(c, i);
		if (!ofs_str_take(&rest.text, "state."))
			continue;
		for (int k = 0; prefixes[k] != NULL; k++)
			if (try_prefix(tops, prefixes[k], rest.text))
				return prefixes[k];
		tries++;
	}
	return "";
}

static int top_names(const struct naming *c, struct ofs_keys *tops,
    struct optimfs_error *err)
{
	const uint32_t *path;
	uint32_t n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (!is_tensor(c, i))
			continue;
		path = path_of(c, i, &n);
		if (n == 1 &&
		    ofs_keys_add(tops, ofs_catalog_string(c->cat, path[0]),
			err) == OFS_NONE)
			return -1;
	}
	return 0;
}

static int set_prefix(struct naming *c, const char *prefix,
    struct optimfs_error *err)
{
	c->model.prefix = ofs_arena_strndup(&c->arena, prefix, strlen(prefix));
	if (c->model.prefix == NULL)
		return ofs_no_memory(err);
	c->model.kind = MODEL_TEXT;
	return 0;
}

static int find_text(struct naming *c, struct optimfs_error *err)
{
	struct ofs_keys tops = { 0 };
	const char *prefix = "";
	int ret = top_names(c, &tops, err);

	if (ret == 0)
		prefix = find_prefix(c, &tops);
	ofs_keys_fini(&tops);
	if (ret == -1 || prefix[0] == '\0')
		return ret;
	return set_prefix(c, prefix, err);
}

static bool below(const struct naming_model *m, const uint32_t *path,
    uint32_t n)
{
	if (n <= m->n)
		return false;
	for (uint32_t i = 0; i < m->n; i++)
		if (OFS_PATH_STR(path[i]) != m->c[i])
			return false;
	return true;
}

/* Is it what programs call a state dict, rather than a module? */
static bool is_state_dict(const struct naming *c, uint32_t key)
{
	static const char *const names[] = { "model", "state_dict",
		"model_state_dict", "model_state" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (ofs_catalog_string_is(c->cat, key, names[i]))
			return true;
	return false;
}

/* A file or directory called "model" may hold {"model": ...}: if all tensors
 * below the path have one and the same key next, and it is what a state dict is
 * called, the model is below that. */
static void descend(const struct naming *c, struct naming_model *m)
{
	uint32_t next = OFS_NONE, n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		const uint32_t *path = path_of(c, i, &n);

		if (!is_tensor(c, i) || !below(m, path, n))
			continue;
		if (n < m->n + 2 ||
		    (next != OFS_NONE && OFS_PATH_STR(path[m->n]) != next))
			return;
		next = OFS_PATH_STR(path[m->n]);
	}
	if (next != OFS_NONE && m->n < NAMING_DEPTH && is_state_dict(c, next))
		m->c[m->n++] = next;
}

static void put_path(const struct naming *c, const struct candidate *k,
    struct ofs_buf *b)
{
	for (uint32_t i = 0; i < k->n; i++) {
		struct ofs_str s = ofs_catalog_string(c->cat, k->c[i]);

		ofs_buf_printf(b, "%s%.*s", i == 0 ? "" : ".",
		    OFS_STR_ARGS(s, 80));
	}
	ofs_buf_putc(b, '\0');
}

/* A choice that the user may want to make. */
static int name_rival(struct naming *c, const struct candidate *best,
    const struct candidate *rival, struct optimfs_error *err)
{
	struct ofs_buf a = { 0 }, b = { 0 };
	int ret;

	put_path(c, best, &a);
	put_path(c, rival, &b);
	ret = a.bad || b.bad
	    ? ofs_no_memory(err)
	    : ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
		  "OFS630 there are two models, and nothing says which is the "
		  "one to show: model/ is %s, and %s is below extra/ "
		  "(model_key=%s shows it instead)",
		  (char *)a.data, (char *)b.data, (char *)b.data);
	ofs_buf_fini(&a);
	ofs_buf_fini(&b);
	return ret;
}

static int find_model(struct naming *c, struct optimfs_error *err)
{
	struct candidate best = { .rule = NO_RULE }, rival = best;
	bool top = false;
	const uint32_t *path;
	uint32_t n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (!is_tensor(c, i))
			continue;
		path = path_of(c, i, &n);
		top = top || n == 1;
		by_key(c, path, n, &best, &rival);
	}
	if (best.rule > BESIDE_OPTIMIZER && c->nroots > 0 &&
	    by_fqn(c, &best, err) == -1)
		return -1;
	if (best.rule == BY_KEY_BELOW && top)
		best.rule = AT_TOP;
	if (best.rule == NO_RULE && !top)
		return 0;
	if (best.rule == AT_TOP || best.rule == NO_RULE || best.n == 0) {
		c->model.kind = MODEL_TOP;
		return 0;
	}
	c->model.kind = MODEL_BELOW;
	c->model.n = best.n;
	memcpy(c->model.c, best.c, best.n * sizeof(*best.c));
	descend(c, &c->model);
	return is_rival(c, &rival, &best) ? name_rival(c, &best, &rival, err)
					  : 0;
}

/* model_key=: a path of keys, or a prefix of textual ones. */
static int find_given(struct naming *c, struct optimfs_error *err)
{
	const char *key = c->opt->model_key;
	struct ofs_buf dotted = { 0 };
	const uint32_t *path;
	uint32_t n, at;
	int ret = 0;

	if (key[0] == '\0') {
		c->model.kind = MODEL_TOP;
		return 0;
	}
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		path = path_of(c, i, &n);
		at = ofs_naming_match(c, path,
		    n <= NAMING_DEPTH ? n : NAMING_DEPTH, key);
		if (at == OFS_NONE)
			continue;
		c->model.kind = MODEL_BELOW;
		c->model.n = at;
		for (uint32_t k = 0; k < at; k++)
			c->model.c[k] = OFS_PATH_STR(path[k]);
		return 0;
	}
	ofs_buf_printf(&dotted, "%s.", key);
	ofs_buf_putc(&dotted, 0);
	if (dotted.bad)
		ret = ofs_no_memory(err);
	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++) {
		struct ofs_str text;

		path = path_of(c, i, &n);
		if (n != 1)
			continue;
		text = ofs_catalog_string(c->cat, path[0]);
		if (!ofs_str_take(&text, (char *)dotted.data))
			continue;
		ret = set_prefix(c, (char *)dotted.data, err);
		break;
	}
	ofs_buf_fini(&dotted);
	if (ret == -1 || c->model.kind == MODEL_TEXT)
		return ret;
	return ofs_naming_no_such_key(c, "model_key", key, err);
}

int ofs_naming_find_model(struct naming *c, struct optimfs_error *err)
{
	if (c->opt->model_key != NULL)
		return find_given(c, err);
	if (find_model(c, err) == -1)
		return -1;
	if (c->model.kind == MODEL_TOP && c->ntext > 0)
		return find_text(c, err);
	return 0;
}

/* Is it an entry that modules add to a state dict and that is not a tensor? */
static bool extra_state(struct ofs_str s)
{
	return ofs_str_is(s, "_extra_state") ||
	    ofs_str_ends(s, "._extra_state");
}

/* Is it a tensor of a kind that cannot be read, such as quantized weights? */
static bool is_other_tensor(const struct naming *c, uint32_t entry)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	uint32_t error;

	if (e->kind != OFS_ENTRY_ITEM)
		return false;
	error = c->cat->items[e->ref].error;
	return error != OFS_NONE && c->cat->notes[error].number == 533;
}

bool ofs_naming_in_model(const struct naming *c, uint32_t entry,
    struct naming_rest *rest)
{
	const struct naming_model *m = &c->model;
	uint32_t n;
	const uint32_t *path = path_of(c, entry, &n);
	struct ofs_str s;

	*rest = (struct naming_rest){ path, n, { 0 } };
	if (c->slot[entry].root != OFS_NONE || m->kind == MODEL_NONE || n == 0)
		return false;
	if (m->kind == MODEL_BELOW) {
		if (!below(m, path, n))
			return false;
		rest->c += m->n;
		rest->n -= m->n;
		return true;
	}
	s = ofs_catalog_string(c->cat, path[0]);
	if (n != 1)
		return false;
	if (m->kind == MODEL_TOP)
		return is_tensor(c, entry) || is_other_tensor(c, entry) ||
		    extra_state(s);
	if (!ofs_str_take(&s, m->prefix))
		return false;
	rest->text = s;
	return true;
}

struct naming_name ofs_naming_fqn(const struct naming *c,
    struct naming_rest rest)
{
	struct naming_name name = { rest.text, OFS_NONE };

	if (rest.text.p == NULL && rest.n == 1) {
		name.s = ofs_catalog_string(c->cat, rest.c[0]);
		name.str = OFS_PATH_STR(rest.c[0]);
	}
	return name;
}
