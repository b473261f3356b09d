/* canon_roots.c - which keys are an optimizer's, by what lies below them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "canon_roots.h"

#include <stdlib.h>
#include <string.h>

/* A path P is taken for an optimizer's when what lies below it says so: P has
 * param_groups, or has state and is called like an optimizer (SURE); or P has
 * state with a state's name in it that nothing but optimizers use (SOME). Of
 * two that hold one another's keys, the better grade wins, then the shorter:
 * Composer's "state" holds the model and the optimizers, and an optimizer's
 * state may itself hold a "state". */
enum grade { NO_GRADE, BY_NAME, SOME, SURE };
enum evidence {
	HAS_GROUPS = 1,
	HAS_STATE = 2,
	HAS_SURE_NAME = 4,
	IS_NAMED = 8,
	IS_TOP = 16, /* called optim or optimizer, not below anything */
};

static bool same_root(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct canon_root *r = &((const struct canon *)ctx)->root[index];

	return r->n * sizeof(*r->c) == n && memcmp(r->c, key, n) == 0;
}

uint32_t ofs_root_find(const struct canon *c, const uint32_t *path, uint32_t n)
{
	static const uint32_t nothing;
	const uint32_t *key = n == 0 ? &nothing : path;
	size_t len = n * sizeof(*path);

	return ofs_map_find(&c->root_map, ofs_map_hash(key, len), same_root, c,
	    key, len);
}

struct canon_root *ofs_root_get(struct canon *c, const uint32_t *path,
    uint32_t n, struct optimfs_error *err)
{
	uint32_t found = ofs_root_find(c, path, n), cap;
	struct canon_root *r;
	uint32_t *copy;

	if (found != UINT32_MAX)
		return &c->root[found];
	if (c->nroots == c->root_cap) {
		cap = c->root_cap == 0 ? 16 : c->root_cap * 2;
		r = reallocarray(c->root, cap, sizeof(*r));
		if (r == NULL)
			goto no_memory;
		c->root = r;
		c->root_cap = cap;
	}
	copy = ofs_arena_alloc(&c->arena, (n + 1) * sizeof(*copy));
	if (copy == NULL)
		goto no_memory;
	copy[0] = 0;
	if (n > 0)
		memcpy(copy, path, n * sizeof(*copy));
	r = &c->root[c->nroots];
	*r = (struct canon_root){ .c = copy, .n = n, .name = OFS_NONE };
	if (!ofs_map_add(&c->root_map, ofs_map_hash(copy, n * sizeof(*copy)),
		c->nroots))
		goto no_memory;
	c->nroots++;
	c->length[n] = true;
	return r;
no_memory:
	ofs_canon_no_memory(err);
	return NULL;
}

uint32_t ofs_root_head(const struct canon *c, uint32_t entry,
    struct canon_parts *p)
{
	uint32_t n;
	const uint32_t *path =
	    ofs_catalog_components(c->cat, c->cat->entries[entry].path, &n);

	p->n = n < CANON_DEPTH ? n : CANON_DEPTH;
	for (uint32_t i = 0; i < p->n; i++)
		p->c[i] = OFS_PATH_STR(path[i]);
	return n;
}

struct ofs_str ofs_root_text(const struct canon *c, const struct canon_parts *p)
{
	return ofs_catalog_string(c->cat, p->c[0]);
}

size_t ofs_root_token(struct ofs_str text, size_t from)
{
	size_t dot = ofs_canon_dot(text, from);

	for (; dot < text.len;
	     from = dot + 1, dot = ofs_canon_dot(text, from)) {
		struct ofs_str part = { text.p + from, (uint32_t)(dot - from) };

		if (ofs_canon_str_is(part, "state") ||
		    ofs_canon_str_is(part, "param_groups"))
			return from;
	}
	return text.len;
}

int ofs_root_cut(struct canon *c, struct ofs_str text, size_t end,
    struct canon_parts *p, bool *fits, struct optimfs_error *err)
{
	size_t from = 0, dot;

	*fits = false;
	text.len = (uint32_t)end;
	for (p->n = 0; from < end; from = dot + 1) {
		dot = ofs_canon_dot(text, from);
		if (p->n == CANON_DEPTH)
			return 0;
		p->c[p->n] =
		    ofs_catalog_str(c->cat, text.p + from, dot - from, err);
		if (p->c[p->n++] == OFS_NONE)
			return -1;
	}
	*fits = true;
	return 0;
}

static uint8_t named(const struct canon *c, const uint32_t *p, uint32_t n)
{
	if (n > 0 && (ofs_canon_word(c, p[n - 1]) & WORD_OPTIM) != 0)
		return IS_NAMED;
	/* ('optimizers', 'AdamW'), ('optimizer_states', 0) */
	if (n > 1 && (ofs_canon_word(c, p[n - 2]) & WORD_OPTIM) != 0)
		return IS_NAMED;
	return 0;
}

/* The last component of a dotted text is a state's name. */
static bool ends_surely(struct ofs_str text)
{
	size_t from = text.len;

	while (from > 0 && text.p[from - 1] != '.')
		from--;
	return (ofs_canon_classify(ofs_canon_after(text, from)) & WORD_SURE) !=
	    0;
}

/* What component i of p says about the path before it. */
static uint8_t evidence_at(const struct canon *c, const struct canon_parts *p,
    uint32_t n, uint32_t i)
{
	uint32_t w = ofs_canon_word(c, p->c[i]);

	if ((w & (WORD_GROUPS | WORD_GROUPS_DOT)) != 0)
		return HAS_GROUPS;
	if ((w & WORD_STATE_DOT) != 0)
		return HAS_STATE |
		    (ends_surely(ofs_catalog_string(c->cat, p->c[i]))
			    ? HAS_SURE_NAME
			    : 0);
	if ((w & WORD_STATE) == 0 || n - i < 3)
		return 0;
	if (i + 2 < p->n && (ofs_canon_word(c, p->c[i + 2]) & WORD_SURE) != 0)
		return HAS_STATE | HAS_SURE_NAME;
	return HAS_STATE;
}

static int look_at_path(struct canon *c, const struct canon_parts *p,
    uint32_t n, struct optimfs_error *err)
{
	struct canon_root *r;
	uint8_t e;

	for (uint32_t i = 0; i < p->n; i++) {
		e = evidence_at(c, p, n, i);
		if (i == 1 && (ofs_canon_word(c, p->c[0]) & WORD_TOP) != 0)
			e |= IS_TOP;
		if (e == 0)
			continue;
		r = ofs_root_get(c, p->c, i, err);
		if (r == NULL)
			return -1;
		r->evidence |= e | named(c, p->c, i);
	}
	return 0;
}

static int look_at_text(struct canon *c, struct ofs_str text,
    struct optimfs_error *err)
{
	size_t at = ofs_root_token(text, 0);
	struct canon_root *r;
	struct canon_parts p;
	bool fits;

	for (int k = 0; at < text.len && k < ROOT_TOKENS;
	     at = ofs_root_token(text, at + 1), k++) {
		if (ofs_root_cut(c, text, at == 0 ? 0 : at - 1, &p, &fits,
			err) == -1)
			return -1;
		if (!fits)
			return 0;
		r = ofs_root_get(c, p.c, p.n, err);
		if (r == NULL)
			return -1;
		r->evidence |= named(c, p.c, p.n);
		if (text.p[at] == 'p')
			r->evidence |= HAS_GROUPS;
		else
			r->evidence |= HAS_STATE;
		/* a name in the middle of a text is too little to cut it */
		if (at == 0 && ends_surely(text))
			r->evidence |= HAS_SURE_NAME;
	}
	return 0;
}

static uint8_t grade(uint8_t e)
{
	if ((e & HAS_GROUPS) != 0)
		return SURE;
	if ((e & HAS_STATE) != 0 && (e & IS_NAMED) != 0)
		return SURE;
	if ((e & HAS_STATE) != 0 && (e & HAS_SURE_NAME) != 0)
		return SOME;
	return (e & IS_TOP) != 0 ? BY_NAME : NO_GRADE;
}

/* Does an accepted root hold this one in its state or groups? */
static bool inside_another(const struct canon *c, const struct canon_root *r)
{
	uint32_t found;

	for (uint32_t i = 0; i < r->n; i++) {
		if ((ofs_canon_word(c, r->c[i]) & WORD_ROOTED) == 0)
			continue;
		found = ofs_root_find(c, r->c, i);
		if (found != UINT32_MAX && c->root[found].accepted)
			return true;
	}
	return false;
}

static bool accept(struct canon *c, struct canon_root *r)
{
	uint32_t found;

	if (r->dropped || inside_another(c, r))
		return false;
	r->accepted = true;
	for (uint32_t i = 0; i < r->n; i++) {
		found = ofs_root_find(c, r->c, i);
		if (found == UINT32_MAX || c->root[found].accepted)
			continue;
		if ((ofs_canon_word(c, r->c[i]) & WORD_ROOTED) != 0)
			c->root[found].dropped = true;
	}
	return true;
}

/* The better grades first, then the shorter paths; those of one grade and
 * length cannot hold one another. A name alone makes an optimizer only where
 * there is no better one: it may be a training job's options. */
static void choose(struct canon *c)
{
	bool any = false;

	for (uint32_t i = 0; i < c->nroots; i++)
		c->root[i].grade = grade(c->root[i].evidence);
	for (int g = SURE; g > BY_NAME || (g == BY_NAME && !any); g--)
		for (uint32_t n = 0; n <= CANON_DEPTH; n++)
			for (uint32_t i = 0; c->length[n] && i < c->nroots; i++)
				if (c->root[i].grade == g &&
				    c->root[i].n == n && accept(c, &c->root[i]))
					any = true;
}

int ofs_root_detect(struct canon *c, struct optimfs_error *err)
{
	struct canon_parts p;
	uint32_t n;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		n = ofs_root_head(c, i, &p);
		if (look_at_path(c, &p, n, err) == -1)
			return -1;
		if (n == 1 && (ofs_canon_word(c, p.c[0]) & WORD_TOKEN) != 0 &&
		    look_at_text(c, ofs_root_text(c, &p), err) == -1)
			return -1;
	}
	choose(c);
	return 0;
}
