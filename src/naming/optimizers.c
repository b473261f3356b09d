/* optimizers.c - the places of optimizers in a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* A path P is an optimizer if the keys below it indicate it. SURE: P has
 * param_groups with options, which a module with that name has not, or P has
 * state and the name of an optimizer. SOME: P has state with a name that only
 * optimizers use. If one candidate contains the keys of another, the better
 * grade wins, then the shorter path: "state" of Composer contains the model and
 * the optimizers, and the state of an optimizer may contain a "state". A model
 * at the top, beside an optimizer there, is not an optimizer, whatever the
 * names of its modules. */
enum grade { NO_GRADE, BY_NAME, SOME, SURE };
enum evidence {
	HAS_GROUPS = 1,
	HAS_STATE = 2,
	HAS_SURE_NAME = 4,
	IS_NAMED = 8,
	IS_TOP = 16,        /* optim or optimizer, at the top */
	HAS_FLAT_NAME = 32, /* as HAS_SURE_NAME, in a flattened key */
	HAS_OTHERS = 64,    /* tensors, neither of state nor of groups */
};

/* Textual keys are split in at most this many places. */
#define MAX_TOKENS 4

struct parts {
	uint32_t c[NAMING_DEPTH];
	uint32_t n;
};

static uint32_t find_root(const struct naming *c, const uint32_t *path,
    uint32_t n)
{
	return ofs_keys_find(&c->root_paths, path, n * sizeof(*path));
}

/* Find or create the root path[0..n). */
static struct naming_candidate *get_root(struct naming *c, const uint32_t *path,
    uint32_t n, struct optimfs_error *err)
{
	uint32_t at =
	    ofs_keys_copy(&c->root_paths, path, n * sizeof(*path), err);

	if (at == OFS_NONE)
		return NULL;
	if (at == c->nroots) {
		if (ofs_grow(c->root, c->nroots, c->root_cap, err) == -1)
			return NULL;
		c->root[c->nroots++] = (struct naming_candidate){
			.c = (const uint32_t *)c->root_paths.v[at].p,
			.n = n,
			.name = OFS_NONE,
		};
		c->length[n] = true;
	}
	return &c->root[at];
}

/* *p = the first components of an entry's path, without OFS_PATH_INDEX; returns
 * their number, which may be larger than NAMING_DEPTH. */
static uint32_t head(const struct naming *c, uint32_t entry, struct parts *p)
{
	uint32_t n;
	const uint32_t *path =
	    ofs_catalog_components(c->cat, c->cat->entries[entry].path, &n);

	p->n = n < NAMING_DEPTH ? n : NAMING_DEPTH;
	for (uint32_t i = 0; i < p->n; i++)
		p->c[i] = OFS_PATH_STR(path[i]);
	return n;
}

static struct ofs_str text_of(const struct naming *c, const struct parts *p)
{
	return ofs_catalog_string(c->cat, p->c[0]);
}

/* The start of the next component "state." or "param_groups." of text, from
 * from on; text.len when there is none. */
static size_t next_token(struct ofs_str text, size_t from)
{
	size_t dot = ofs_naming_dot(text, from);

	for (; dot < text.len;
	     from = dot + 1, dot = ofs_naming_dot(text, from)) {
		struct ofs_str part = { text.p + from, (uint32_t)(dot - from) };

		if (ofs_str_is(part, "state") ||
		    ofs_str_is(part, "param_groups"))
			return from;
	}
	return text.len;
}

/* Split text[0..end) at its dots; *fits is false when it has too many
 * components. */
static int cut(struct naming *c, struct ofs_str text, size_t end,
    struct parts *p, bool *fits, struct optimfs_error *err)
{
	size_t from = 0, dot;

	*fits = false;
	text.len = (uint32_t)end;
	for (p->n = 0; from < end; from = dot + 1) {
		dot = ofs_naming_dot(text, from);
		if (p->n == NAMING_DEPTH)
			return 0;
		p->c[p->n] =
		    ofs_catalog_str(c->cat, text.p + from, dot - from, err);
		if (p->c[p->n++] == OFS_NONE)
			return -1;
	}
	*fits = true;
	return 0;
}

static uint8_t named(const struct naming *c, const uint32_t *p, uint32_t n)
{
	if (n > 0 && (ofs_naming_word(c, p[n - 1]) & TOKEN_OPTIM) != 0)
		return IS_NAMED;
	/* ('optimizers', 'AdamW'), ('optimizer_states', 0) */
	if (n > 1 && (ofs_naming_word(c, p[n - 2]) & TOKEN_OPTIM) != 0)
		return IS_NAMED;
	return 0;
}

/* The last component of a key with dots. */
static struct ofs_str last_of(struct ofs_str text)
{
	uint32_t from = text.len;

	while (from > 0 && text.p[from - 1] != '.')
		from--;
	return ofs_str_after(text, from);
}

/* Is the last component of a dotted text a name that only states have? */
static bool ends_surely(struct ofs_str text)
{
	return (ofs_naming_classify(last_of(text)) & TOKEN_SURE) != 0;
}

/* Is text, which begins with "state.", KEY and NAME of a state? A module may be
 * called state. */
static bool has_name(struct ofs_str text)
{
	struct ofs_str key = ofs_str_after(text, sizeof("state.") - 1);

	return ofs_naming_dot(key, 0) < key.len;
}

/* Does it also have the name of a state, in front of the FQN or behind it? */
static bool has_known_name(struct ofs_str text)
{
	struct ofs_str key = ofs_str_after(text, sizeof("state.") - 1);
	struct ofs_str first = { key.p, (uint32_t)ofs_naming_dot(key, 0) };

	return has_name(text) &&
	    ((ofs_naming_classify(last_of(text)) & TOKEN_KNOWN) != 0 ||
		(ofs_naming_classify(first) & TOKEN_SURE) != 0);
}

/* Options of PyTorch's and other optimizers that may be tensors without
 * dimensions. */
static bool is_option(struct ofs_str s)
{
	static const char *const options[] = { "lr", "initial_lr", "betas",
		"eps", "weight_decay", "momentum", "dampening", "alpha", "rho",
		"etas", "lambd", "lr_decay", "momentum_decay", "beta2_decay",
		"d", NULL };

	for (size_t i = 0; options[i] != NULL; i++)
		if (ofs_str_is(s, options[i]))
			return true;
	return false;
}

/* Is an entry below param_groups an option of a group? A model may have a
 * module of that name, with tensors below it. */
static bool in_group(const struct naming *c, uint32_t entry)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	uint32_t n;
	const uint32_t *path = ofs_catalog_components(c->cat, e->path, &n);
	struct ofs_str last = { NULL, 0 };

	/* betas may be a list of tensors */
	while (n > 1 && (path[n - 1] & OFS_PATH_INDEX) != 0)
		n--;
	last = last_of(ofs_catalog_string(c->cat, OFS_PATH_STR(path[n - 1])));
	if (e->kind != OFS_ENTRY_TENSOR)
		return !ofs_str_is(last, "_extra_state");
	return c->cat->tensors[e->ref].ndim == 0 && is_option(last);
}

/* The evidence of component i of p for the path before it. */
static uint8_t evidence_at(const struct naming *c, uint32_t entry,
    const struct parts *p, uint32_t n, uint32_t i)
{
	uint32_t w = ofs_naming_word(c, p->c[i]);
	struct ofs_str text = ofs_catalog_string(c->cat, p->c[i]);

	if ((w & (TOKEN_GROUPS | TOKEN_GROUPS_DOT)) != 0)
		return in_group(c, entry) ? HAS_GROUPS : 0;
	if ((w & TOKEN_STATE_DOT) != 0 && !has_name(text))
		return 0;
	if ((w & TOKEN_STATE_DOT) != 0)
		return HAS_STATE | (ends_surely(text) ? HAS_FLAT_NAME : 0);
	if ((w & TOKEN_STATE) == 0 || n - i < 3)
		return 0;
	if (i + 2 < p->n && (ofs_naming_word(c, p->c[i + 2]) & TOKEN_SURE) != 0)
		return HAS_STATE | HAS_SURE_NAME;
	return HAS_STATE;
}

static int look_at_path(struct naming *c, uint32_t entry, const struct parts *p,
    uint32_t n, struct optimfs_error *err)
{
	struct naming_candidate *r;
	uint8_t e;

	for (uint32_t i = 0; i < p->n; i++) {
		e = evidence_at(c, entry, p, n, i);
		if (i == 1 && (ofs_naming_word(c, p->c[0]) & TOKEN_TOP) != 0)
			e |= IS_TOP;
		if (e == 0)
			continue;
		r = get_root(c, p->c, i, err);
		if (r == NULL)
			return -1;
		r->evidence |= e | named(c, p->c, i);
	}
	return 0;
}

static int look_at_text(struct naming *c, uint32_t entry, struct ofs_str text,
    struct optimfs_error *err)
{
	size_t at = next_token(text, 0);
	struct naming_candidate *r;
	struct parts p;
	bool fits;

	for (int k = 0; at < text.len && k < MAX_TOKENS;
	     at = next_token(text, at + 1), k++) {
		if (cut(c, text, at == 0 ? 0 : at - 1, &p, &fits, err) == -1)
			return -1;
		if (!fits)
			return 0;
		r = get_root(c, p.c, p.n, err);
		if (r == NULL)
			return -1;
		r->text |= named(c, p.c, p.n);
		if (text.p[at] == 'p')
			r->text |= in_group(c, entry) ? HAS_GROUPS : 0;
		else if (has_known_name(ofs_str_after(text, (uint32_t)at)))
			r->text |= HAS_STATE |
			    /* too little evidence to split a text */
			    (at == 0 && ends_surely(text) ? HAS_FLAT_NAME : 0);
		r->evidence |= r->text;
	}
	return 0;
}

/* A flattened key may be the name of a parameter: state.0.exp_avg, in a module
 * called state. Then there are tensors of other names beside it. */
static void look_beside(struct naming *c, uint32_t entry, const struct parts *p,
    uint32_t n)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	uint32_t found;

	if (e->kind != OFS_ENTRY_TENSOR || c->cat->tensors[e->ref].ndim == 0 ||
	    n == 0 || n > NAMING_DEPTH || !c->length[n - 1] ||
	    (ofs_naming_word(c, p->c[n - 1]) & TOKEN_ROOTED) != 0)
		return;
	found = find_root(c, p->c, n - 1);
	if (found != OFS_NONE)
		c->root[found].evidence |= HAS_OTHERS;
}

static uint8_t grade(uint8_t e)
{
	if ((e & HAS_GROUPS) != 0)
		return SURE;
	if ((e & HAS_STATE) != 0 && (e & IS_NAMED) != 0)
		return SURE;
	if ((e & HAS_SURE_NAME) != 0 ||
	    ((e & HAS_FLAT_NAME) != 0 && (e & HAS_OTHERS) == 0))
		return SOME;
	return (e & IS_TOP) != 0 ? BY_NAME : NO_GRADE;
}

/* Is this root in the state or groups of an accepted one? */
static bool inside_another(const struct naming *c,
    const struct naming_candidate *r)
{
	uint32_t found;

	for (uint32_t i = 0; i < r->n; i++) {
		if ((ofs_naming_word(c, r->c[i]) & TOKEN_ROOTED) == 0)
			continue;
		found = find_root(c, r->c, i);
		if (found != OFS_NONE && c->root[found].accepted)
			return true;
	}
	return false;
}

static bool accept(struct naming *c, struct naming_candidate *r)
{
	uint32_t found;

	if (r->dropped || inside_another(c, r))
		return false;
	r->accepted = true;
	for (uint32_t i = 0; i < r->n; i++) {
		found = find_root(c, r->c, i);
		if (found == OFS_NONE || c->root[found].accepted)
			continue;
		if ((ofs_naming_word(c, r->c[i]) & TOKEN_ROOTED) != 0)
			c->root[found].dropped = true;
	}
	return true;
}

/* Is it a key at the top? */
static bool is_top(const struct naming *c, const struct naming_candidate *r,
    uint32_t token)
{
	return r->n == 1 && (ofs_naming_word(c, r->c[0]) & token) != 0;
}

/* If an optimizer is at the top, a model beside it is not one. */
static void drop_models(struct naming *c)
{
	uint32_t model = TOKEN_MODEL_OF(~0u) * TOKEN_MODEL;
	bool beside = false;

	for (uint32_t i = 0; i < c->nroots; i++)
		beside |= c->root[i].grade == SURE &&
		    is_top(c, &c->root[i], TOKEN_OPTIM);
	for (uint32_t i = 0; beside && i < c->nroots; i++)
		c->root[i].dropped |= is_top(c, &c->root[i], model);
}

/* Better grades first, then shorter paths; two of equal grade and length cannot
 * contain one another. The name alone makes an optimizer only if there is no
 * better candidate: it may be the options of a training job. */
static void choose(struct naming *c)
{
	bool any = false;

	for (uint32_t i = 0; i < c->nroots; i++)
		c->root[i].grade = grade(c->root[i].evidence);
	drop_models(c);
	for (int g = SURE; g > BY_NAME || (g == BY_NAME && !any); g--)
		for (uint32_t n = 0; n <= NAMING_DEPTH; n++)
			for (uint32_t i = 0; c->length[n] && i < c->nroots; i++)
				if (c->root[i].grade == g &&
				    c->root[i].n == n && accept(c, &c->root[i]))
					any = true;
}

int ofs_naming_detect(struct naming *c, struct optimfs_error *err)
{
	struct parts p;
	uint32_t n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		n = head(c, i, &p);
		if (look_at_path(c, i, &p, n, err) == -1)
			return -1;
		if (n == 1 && (ofs_naming_word(c, p.c[0]) & TOKEN_TOKEN) != 0 &&
		    look_at_text(c, i, text_of(c, &p), err) == -1)
			return -1;
	}
	for (uint32_t i = 0; c->nroots > 0 && i < c->cat->nentries; i++) {
		n = head(c, i, &p);
		look_beside(c, i, &p, n);
	}
	choose(c);
	return 0;
}

/* The longest accepted root of path[0..n). The empty root, a file that is the
 * state dict of an optimizer, has only state and groups. */
static uint32_t root_of_path(const struct naming *c, const struct parts *p,
    uint32_t n, uint32_t *at)
{
	uint32_t len = n - 1 < NAMING_DEPTH ? n - 1 : NAMING_DEPTH, found;

	for (uint32_t i = len + 1; i-- > 0;) {
		if (!c->length[i])
			continue;
		if (i == 0 && c->opt->optim_key == NULL &&
		    (ofs_naming_word(c, p->c[0]) & TOKEN_ROOTED) == 0)
			continue;
		found = find_root(c, p->c, i);
		if (found == OFS_NONE || !c->root[found].accepted)
			continue;
		*at = i;
		return found;
	}
	return OFS_NONE;
}

static int root_of_text(struct naming *c, struct ofs_str text,
    struct naming_slot *slot, struct optimfs_error *err)
{
	size_t at = next_token(text, 0);
	uint32_t found;
	struct parts p;
	bool fits;

	for (int k = 0; at < text.len && k < MAX_TOKENS;
	     at = next_token(text, at + 1), k++) {
		if (cut(c, text, at == 0 ? 0 : at - 1, &p, &fits, err) == -1)
			return -1;
		if (!fits)
			return 0;
		found = find_root(c, p.c, p.n);
		if (found == OFS_NONE || !c->root[found].accepted ||
		    grade(c->root[found].text) == NO_GRADE)
			continue;
		*slot = (struct naming_slot){ found, SLOT_TEXT | (uint32_t)at };
		return 0;
	}
	return 0;
}

static int place(struct naming *c, uint32_t entry, struct optimfs_error *err)
{
	struct naming_slot *slot = &c->slot[entry];
	struct parts p;
	uint32_t n = head(c, entry, &p);

	if (n == 0)
		return 0;
	slot->root = root_of_path(c, &p, n, &slot->at);
	if (slot->root != OFS_NONE || n > 1 ||
	    (ofs_naming_word(c, p.c[0]) & TOKEN_TOKEN) == 0)
		return 0;
	return root_of_text(c, text_of(c, &p), slot, err);
}

uint32_t ofs_naming_match(const struct naming *c, const uint32_t *path,
    uint32_t n, const char *key)
{
	size_t left = strlen(key);

	if (left == 0)
		return 0;
	for (uint32_t i = 0; i + 1 < n; i++) {
		struct ofs_str s = ofs_catalog_string(c->cat, path[i]);

		if (s.len > left || memcmp(s.p, key, s.len) != 0)
			return OFS_NONE;
		if (s.len == left)
			return i + 1;
		if (key[s.len] != '.')
			return OFS_NONE;
		key += s.len + 1;
		left -= s.len + 1;
	}
	return OFS_NONE;
}

/* Does the only component begin with key and a dot? */
static bool text_below(struct ofs_str text, const char *key)
{
	size_t n = strlen(key);

	return n > 0 && text.len > n + 1 && memcmp(text.p, key, n) == 0 &&
	    text.p[n] == '.';
}

/* optim_key=: the user names the only optimizer. */
static int place_given(struct naming *c, uint32_t entry,
    struct optimfs_error *err)
{
	const char *key = c->opt->optim_key;
	struct parts p;
	uint32_t n = head(c, entry, &p), at;
	struct naming_candidate *r;
	bool fits = true;

	if (n == 0)
		return 0;
	at = ofs_naming_match(c, p.c, n < NAMING_DEPTH ? n : NAMING_DEPTH, key);
	if (at == OFS_NONE && n == 1 && text_below(text_of(c, &p), key)) {
		at = SLOT_TEXT | (uint32_t)(strlen(key) + 1);
		if (cut(c, text_of(c, &p), strlen(key), &p, &fits, err) == -1)
			return -1;
	}
	if (at == OFS_NONE || !fits)
		return 0;
	r = get_root(c, p.c, (at & SLOT_TEXT) != 0 ? p.n : at, err);
	if (r == NULL)
		return -1;
	r->accepted = true;
	c->slot[entry] = (struct naming_slot){ (uint32_t)(r - c->root), at };
	return 0;
}

int ofs_naming_roots(struct naming *c, struct optimfs_error *err)
{
	uint32_t naccepted = 0;
	bool given = c->opt->optim_key != NULL;

	c->slot = malloc(c->cat->nentries * sizeof(*c->slot) + 1);
	if (c->slot == NULL)
		return ofs_no_memory(err);
	if (!given && ofs_naming_detect(c, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		c->slot[i] = (struct naming_slot){ OFS_NONE, 0 };
		if ((given ? place_given(c, i, err) : place(c, i, err)) == -1)
			return -1;
		if (c->slot[i].root != OFS_NONE &&
		    (c->slot[i].at & SLOT_TEXT) != 0)
			c->ntext++;
	}
	for (uint32_t i = 0; i < c->nroots; i++)
		naccepted += c->root[i].accepted;
	if (given && naccepted == 0)
		return ofs_naming_no_such_key(c, "optim_key", c->opt->optim_key,
		    err);
	if (naccepted > 1 && !given &&
	    ofs_naming_drop_duplicates(c, &naccepted, err) == -1)
		return -1;
	if (naccepted > 1 && !given)
		return ofs_naming_name_roots(c, naccepted, err);
	return 0;
}

struct naming_rest ofs_naming_rest(const struct naming *c, uint32_t entry)
{
	struct naming_slot slot = c->slot[entry];
	uint32_t at = slot.at & ~(SLOT_TEXT | SLOT_UNMATCHED), n;
	struct naming_rest rest = { 0 };
	const uint32_t *path =
	    ofs_catalog_components(c->cat, c->cat->entries[entry].path, &n);

	if ((slot.at & SLOT_TEXT) != 0) {
		rest.text =
		    ofs_str_after(ofs_catalog_string(c->cat, path[0]), at);
		return rest;
	}
	rest.c = path + at;
	rest.n = n - at;
	return rest;
}
