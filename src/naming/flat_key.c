/* flat_key.c - "state.layers.0.weight.exp_avg" -> name and state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* A flattened key does not show where its FQN ends, and both the FQN and the
 * rest may have dots. The rules, in this order: the longest name that the model
 * or the keys of param_groups have; a state name at the start, as Megatron
 * writes it; a state name at the end, or further left one that only states
 * have; a name that was split off another key of the same optimizer; the last
 * dot. */

struct split {
	struct ofs_str id, tail;
};

static bool split_at(struct ofs_str text, size_t dot, struct split *s)
{
	s->id = (struct ofs_str){ text.p, (uint32_t)dot };
	s->tail = ofs_str_after(text, dot + 1);
	return true;
}

/* The last dot before end; text.len when there is none. */
static size_t dot_before(struct ofs_str text, size_t end)
{
	while (end > 0)
		if (text.p[--end] == '.')
			return end;
	return text.len;
}

static void last_dot(struct ofs_str text, struct split *s)
{
	size_t dot = dot_before(text, text.len);

	if (dot < text.len)
		split_at(text, dot, s);
}

static bool longest(const struct ofs_keys *set, struct ofs_str text,
    struct split *s)
{
	size_t dot;

	if (set->n == 0)
		return false;
	for (dot = dot_before(text, text.len); dot < text.len;
	     dot = dot_before(text, dot))
		if (ofs_keys_has(set,
			(struct ofs_str){ text.p, (uint32_t)dot }))
			return split_at(text, dot, s);
	return false;
}

static uint32_t word_at(struct ofs_str text, size_t from)
{
	struct ofs_str part = ofs_str_after(text, from);

	part.len = (uint32_t)(ofs_naming_dot(text, from) - from);
	return ofs_naming_classify(part);
}

static bool state_first(const struct ofs_keys *fqns, struct ofs_str text,
    struct split *s)
{
	size_t dot = ofs_naming_dot(text, 0);
	size_t last = dot_before(text, text.len);
	struct ofs_str fqn;

	if (dot == text.len || (word_at(text, 0) & TOKEN_KNOWN) == 0)
		return false;
	fqn = ofs_str_after(text, dot + 1);
	if (!ofs_keys_has(fqns, fqn) &&
	    ((word_at(text, 0) & TOKEN_SURE) == 0 ||
		(word_at(text, last + 1) & TOKEN_KNOWN) != 0))
		return false;
	s->id = fqn;
	s->tail = (struct ofs_str){ text.p, (uint32_t)dot };
	return true;
}

static bool known_state(struct ofs_str text, struct split *s)
{
	size_t dot = dot_before(text, text.len);

	if (dot < text.len && (word_at(text, dot + 1) & TOKEN_KNOWN) != 0)
		return split_at(text, dot, s);
	for (; dot < text.len; dot = dot_before(text, dot))
		if ((word_at(text, dot + 1) & TOKEN_SURE) != 0)
			return split_at(text, dot, s);
	return false;
}

static struct split split_state(const struct naming *c, struct ofs_str text)
{
	struct split s = { text, { 0 } };

	if (!longest(&c->fqns, text, &s) && !state_first(&c->fqns, text, &s) &&
	    !known_state(text, &s) && !longest(&c->guessed, text, &s))
		last_dot(text, &s);
	return s;
}

static struct split split_group(const struct naming *c, struct ofs_str text)
{
	struct split s = { text, { 0 } };

	if (!longest(&c->fqns, text, &s))
		last_dot(text, &s);
	return s;
}

/* *text = the part of a flattened key after "state." or "param_groups.";
 * returns its token, or 0. */
static uint32_t flattened(struct ofs_str s, struct ofs_str *text)
{
	*text = s;
	if (ofs_str_take(text, "state."))
		return TOKEN_STATE_DOT;
	return ofs_str_take(text, "param_groups.") ? TOKEN_GROUPS_DOT : 0;
}

/* The kind of key that rest is; *text = the dotted text of a flattened one. */
static uint32_t kind_of(const struct naming *c, struct naming_rest rest,
    struct ofs_str *text)
{
	uint32_t w;

	*text = (struct ofs_str){ 0 };
	if (rest.text.p != NULL)
		return flattened(rest.text, text);
	w = ofs_naming_word(c, rest.c[0]) & TOKEN_ROOTED;
	if ((w & (TOKEN_STATE_DOT | TOKEN_GROUPS_DOT)) != 0)
		return flattened(ofs_catalog_string(c->cat, rest.c[0]), text);
	return rest.n > 1 ? w : 0;
}

struct naming_key ofs_naming_key(const struct naming *c, uint32_t entry)
{
	struct naming_key key = { .kind = NAMING_NONE, .id.str = OFS_NONE };
	struct naming_rest rest;
	struct ofs_str text;
	struct split s;
	uint32_t w, number;

	if (c->slot[entry].root == OFS_NONE)
		return key;
	rest = ofs_naming_rest(c, entry);
	w = kind_of(c, rest, &text);
	key.kind = w == 0                                ? NAMING_OTHER
	    : (w & (TOKEN_STATE | TOKEN_STATE_DOT)) != 0 ? NAMING_STATE
							 : NAMING_GROUP;
	if (w == 0)
		return key;
	if (text.p == NULL) {
		key.id.s = ofs_catalog_string(c->cat, rest.c[1]);
		key.id.str = OFS_PATH_STR(rest.c[1]);
		key.integer = key.kind == NAMING_STATE &&
		    (rest.c[1] & OFS_PATH_PLAIN) != 0 &&
		    ofs_str_number(key.id.s, &number);
		key.more = rest.c + 2;
		key.nmore = rest.n - 2;
		return key;
	}
	if (rest.text.p == NULL && rest.n > 1) {
		key.id.s = text; /* 'state.l.weight', 'exp_avg' */
	} else {
		s = key.kind == NAMING_STATE ? split_state(c, text)
					     : split_group(c, text);
		key.id.s = s.id;
		key.tail = s.tail;
	}
	if (rest.text.p == NULL) {
		key.more = rest.c + 1;
		key.nmore = rest.n - 1;
	}
	return key;
}

struct ofs_str ofs_naming_last(const struct naming *c,
    const struct naming_key *key)
{
	if (key->tail.p == NULL && key->nmore == 1)
		return ofs_catalog_string(c->cat, key->more[0]);
	return key->nmore == 0 ? key->tail : (struct ofs_str){ 0 };
}

/* Add a name of the model, and its form in an optimizer. */
static int add_fqn(struct naming *c, struct ofs_str fqn,
    struct optimfs_error *err)
{
	uint32_t w = ofs_naming_classify(fqn);
	struct ofs_str clean = fqn;
	char *out;

	if (ofs_keys_add(&c->fqns, fqn, err) == OFS_NONE)
		return -1;
	if ((w & TOKEN_WRAPPED) != 0) {
		out = ofs_arena_alloc(&c->arena, fqn.len);
		if (out == NULL)
			return ofs_no_memory(err);
		clean.len = (uint32_t)ofs_clean_fqn(fqn.p, fqn.len, out);
		clean.p = out;
		if (ofs_keys_add(&c->fqns, clean, err) == OFS_NONE)
			return -1;
	}
	if (!ofs_str_take(&clean, "module."))
		return 0;
	return ofs_keys_add(&c->fqns, clean, err) == OFS_NONE ? -1 : 0;
}

static int collect_model(struct naming *c, struct optimfs_error *err)
{
	struct naming_rest rest;
	struct ofs_str fqn;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (!ofs_naming_in_model(c, i, &rest))
			continue;
		fqn = ofs_naming_fqn(c, rest).s;
		if (fqn.p != NULL && add_fqn(c, fqn, err) == -1)
			return -1;
	}
	return 0;
}

/* The key of a group contains the name of its parameter; options have no
 * dots. */
static int collect_group(struct naming *c, struct ofs_str text,
    struct optimfs_error *err)
{
	size_t dot = dot_before(text, text.len);
	struct ofs_str id = { text.p, (uint32_t)dot };
	uint32_t number;

	if (dot == text.len || ofs_str_number(id, &number))
		return 0;
	return ofs_keys_add(&c->fqns, id, err) == OFS_NONE ? -1 : 0;
}

static int collect_state(struct naming *c, struct ofs_str text,
    struct optimfs_error *err)
{
	struct split s;

	if (longest(&c->fqns, text, &s) || !known_state(text, &s))
		return 0;
	return ofs_keys_add(&c->guessed, s.id, err) == OFS_NONE ? -1 : 0;
}

/* Call fn with the text of each flattened key of a kind. */
static int collect_text(struct naming *c, uint32_t kind,
    int (*fn)(struct naming *c, struct ofs_str text, struct optimfs_error *err),
    struct optimfs_error *err)
{
	struct ofs_str text;

	for (uint32_t i = 0; i < c->cat->nentries; i++)
		if (c->slot[i].root != OFS_NONE &&
		    kind_of(c, ofs_naming_rest(c, i), &text) == kind &&
		    fn(c, text, err) == -1)
			return -1;
	return 0;
}

/* Are names of the model needed? They are for flattened keys, for numbers,
 * which may be IDs, and for ids=. */
static bool worthwhile(const struct naming *c)
{
	struct naming_rest rest;

	if (c->ntext > 0 || c->opt->ids != NULL)
		return true;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (c->slot[i].root == OFS_NONE)
			continue;
		rest = ofs_naming_rest(c, i);
		switch (ofs_naming_word(c, rest.c[0]) & TOKEN_ROOTED) {
		case TOKEN_STATE:
			if (rest.n > 1 &&
			    (ofs_naming_word(c, rest.c[1]) & TOKEN_NUMBER) != 0)
				return true;
			break;
		case TOKEN_STATE_DOT:
		case TOKEN_GROUPS_DOT:
			return true;
		}
	}
	return false;
}

int ofs_naming_collect(struct naming *c, struct optimfs_error *err)
{
	if (c->nroots == 0 || !worthwhile(c))
		return 0;
	if (collect_model(c, err) == -1)
		return -1;
	if (collect_text(c, TOKEN_GROUPS_DOT, collect_group, err) == -1)
		return -1;
	return collect_text(c, TOKEN_STATE_DOT, collect_state, err);
}
