/* naming_impl.h - parts of naming */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_NAMING_IMPL_H
#define OFS_NAMING_NAMING_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "naming/naming.h"

/* Keys deeper than this are no optimizer's or model's root. */
#define NAMING_DEPTH 8

/* Components of tree paths. */
enum naming_keyword {
	NAMING_OPTIM,
	NAMING_STATES,
	NAMING_GROUPS,
	NAMING_MODEL,
	NAMING_EXTRA,
	NAMING_EMPTY,
	NAMING_NKEYWORDS
};

/* What a key says by itself. */
enum naming_token {
	TOKEN_STATE = 1 << 0,      /* "state" */
	TOKEN_GROUPS = 1 << 1,     /* "param_groups" */
	TOKEN_STATE_DOT = 1 << 2,  /* "state." and more */
	TOKEN_GROUPS_DOT = 1 << 3, /* "param_groups." and more */
	TOKEN_TOKEN = 1 << 4,   /* "state." or "param_groups." after any dot */
	TOKEN_OPTIM = 1 << 5,   /* what optimizers are called */
	TOKEN_TOP = 1 << 6,     /* "optim" or "optimizer" */
	TOKEN_KNOWN = 1 << 7,   /* a state's name, such as step */
	TOKEN_SURE = 1 << 8,    /* one that nothing else is called by */
	TOKEN_WRAPPED = 1 << 9, /* has a wrapper's prefix in it */
	TOKEN_MODULE = 1 << 10, /* begins with "module." */
	TOKEN_NUMBER = 1 << 11, /* a decimal integer, 0 to 999999999 */
	TOKEN_MODEL = 1 << 12,  /* and up, 4 bits: what models are called, the
				* likeliest first; 0 for none */
	TOKEN_SHAPED = 1 << 16, /* a state's name: shaped as its parameter */
};
#define TOKEN_MODEL_OF(w) ((w) / TOKEN_MODEL & 15u)
#define TOKEN_ROOTED \
 (TOKEN_STATE | TOKEN_GROUPS | TOKEN_STATE_DOT | TOKEN_GROUPS_DOT)

/* Where an optimizer's keys begin. */
struct naming_candidate {
	const uint32_t *c; /* components, without OFS_PATH_INDEX */
	uint32_t n;
	uint32_t name; /* below optim/; OFS_NONE for the only one */
	uint8_t evidence, grade;
	bool accepted, dropped;
	/* what the keys of its state are, with the first of each kind */
	bool numbers, names;
	bool sound; /* state of some number can be read */
	uint32_t first_number, first_name;
	uint32_t max_id;
};

/* The root that an entry lies below, OFS_NONE for none, and where what is
 * below begins: a component, or a byte of the only one (TEXT). */
struct naming_slot {
	uint32_t root, at;
};
#define SLOT_TEXT      0x80000000u
#define SLOT_UNMATCHED 0x40000000u /* state of an ID that no group lists */

/* What is left of an entry's path below a root: components, or text. */
struct naming_rest {
	const uint32_t *c;
	uint32_t n;
	struct ofs_str text; /* p NULL for components */
};

/* A parameter's or a group's name, and the string that it is; OFS_NONE where it
 * is a part of one. */
struct naming_name {
	struct ofs_str s;
	uint32_t str;
};

/* An optimizer's entry. */
struct naming_key {
	enum { NAMING_STATE, NAMING_GROUP, NAMING_OTHER } kind;
	struct naming_name id; /* FQN, number or group */
	struct ofs_str tail;   /* what follows in a flattened key, dots in it */
	const uint32_t *more;  /* components after that */
	uint32_t nmore;
};

struct naming_set {
	struct ofs_str *v;
	uint32_t n, cap;
	struct ofs_map map;
};

/* The one raw name that a clean name stands for, in a scope: the model, or the
 * state or the groups of one optimizer. */
struct naming_match {
	uint32_t scope, clean, raw; /* strings */
	bool aliased, warned;
};

/* An entry of the model, and the first that is the same tensor. */
struct naming_tie {
	uint32_t entry, first;
};

struct naming_model {
	enum { MODEL_NONE, MODEL_TOP, MODEL_BELOW, MODEL_TEXT } kind;
	uint32_t c[NAMING_DEPTH]; /* BELOW */
	uint32_t n;
	char *prefix; /* TEXT: with its last dot */
	size_t len;
};

struct naming {
	struct ofs_catalog *cat;
	const struct optimfs_options *opt;
	struct ofs_arena arena;
	uint32_t *word; /* enum naming_token, by string */
	uint32_t nwords;
	bool wrapped; /* some key has a wrapper's prefix or "module." */
	uint32_t keyword[NAMING_NKEYWORDS]; /* strings */

	struct naming_candidate *root;
	uint32_t nroots, root_cap;
	struct ofs_map root_map;
	bool length[NAMING_DEPTH + 1]; /* some root has this many */
	uint64_t ntext;                /* entries split as text */
	struct naming_slot *slot;      /* by entry */

	struct naming_model model;
	struct naming_set fqns;    /* that a flattened key may hold */
	struct naming_set guessed; /* the same, by their state's name */

	struct naming_match *match;
	uint32_t nmatches, match_cap;
	struct ofs_map match_map;
	/* by scope: does "module." lead every name? */
	enum { STRIP_UNKNOWN, STRIP_MODULE, STRIP_NEVER } * strip;
	uint32_t *clean; /* by string: without wrappers; OFS_NONE: unknown */
	char *scratch;
	size_t scratch_len;

	uint32_t ids_root; /* whose IDs cat->ids names */

	struct naming_tie *tie; /* of entries, in their order */
	uint32_t nties, tie_cap;

	uint32_t *path; /* components being put together */
	size_t npath, path_cap;
};

/* tokens.c */
uint32_t ofs_naming_classify(struct ofs_str s);
int ofs_naming_words(struct naming *c, struct optimfs_error *err);
uint32_t ofs_naming_word(const struct naming *c, uint32_t component);
/* The end of the component of text that begins at from: a dot, or the end. */
size_t ofs_naming_dot(struct ofs_str text, size_t from);

/* string_set.c: strings, borrowed */
int ofs_naming_set_add(struct naming_set *set, struct ofs_str s,
    struct optimfs_error *err);
bool ofs_naming_set_has(const struct naming_set *set, struct ofs_str s);
void ofs_naming_set_fini(struct naming_set *set);

/* optimizers.c: fill root, slot and each root's name. */
int ofs_naming_roots(struct naming *c, struct optimfs_error *err);
/* Only the roots, and which of them are accepted. */
int ofs_naming_detect(struct naming *c, struct optimfs_error *err);
/* Of the accepted roots, those that are another by ID are no longer. */
int ofs_naming_drop_duplicates(struct naming *c, uint32_t *naccepted,
    struct optimfs_error *err);
/* What is left of an entry that has a root. */
struct naming_rest ofs_naming_rest(const struct naming *c, uint32_t entry);
/* How many components of c[0..n), fewer than n, joined by dots make key;
 * OFS_NONE for none. */
uint32_t ofs_naming_match(const struct naming *c, const uint32_t *path,
    uint32_t n, const char *key);

/* optimizer_names.c: of several optimizers, the last components of their paths
 * in which all differ, or else the paths. */
int ofs_naming_name_roots(struct naming *c, uint32_t naccepted,
    struct optimfs_error *err);
/* Fail with ENOENT because option= matched nothing; says what there is. */
int ofs_naming_no_such_key(struct naming *c, const char *option,
    const char *key, struct optimfs_error *err);

/* model.c */
int ofs_naming_find_model(struct naming *c, struct optimfs_error *err);
/* Is entry in the model? *rest gets what is left, the whole path if not. */
bool ofs_naming_in_model(const struct naming *c, uint32_t entry,
    struct naming_rest *rest);
/* rest as a parameter's name; s.p NULL when it is several components. */
struct naming_name ofs_naming_fqn(const struct naming *c,
    struct naming_rest rest);

/* flat_key.c */
int ofs_naming_collect(struct naming *c, struct optimfs_error *err);
void ofs_naming_key(const struct naming *c, struct naming_rest rest,
    struct naming_key *key);

/* wrappers.c: names without what wrappers put before them. */
int ofs_naming_match_wrapped(struct naming *c, struct optimfs_error *err);
enum { SCOPE_MODEL };
static inline uint32_t naming_scope_state(uint32_t root)
{
	return 1 + 2 * root;
}
static inline uint32_t naming_scope_groups(uint32_t root)
{
	return 2 + 2 * root;
}
/* The string that raw is listed by in scope; *alias, when not NULL, is set when
 * raw should resolve too and was not asked for so before. OFS_NONE: failed. */
uint32_t ofs_naming_listed(struct naming *c, uint32_t scope,
    struct naming_name raw, bool *alias, struct optimfs_error *err);

/* unmatched.c. Where all groups' lists are known: state of an integer ID
 * that none of them has fails when it is read (EUCLEAN, OFS644). */
int ofs_naming_unmatched(struct naming *c, struct optimfs_error *err);

/* ties.c */
/* Fill tie: the model's tensors that are one view of one stored extent. */
int ofs_naming_ties(struct naming *c, struct optimfs_error *err);
/* Is entry another name for a tensor that came before it? */
bool ofs_naming_tied(const struct naming *c, uint32_t entry);

/* state.c: after every entry has its tree path. Aliases of tied
 * parameters' state, and notes of state that is missing. */
int ofs_naming_finish(struct naming *c, struct optimfs_error *err);

/* naming.c: a tree path being put together. */
int ofs_naming_push(struct naming *c, uint32_t str, struct optimfs_error *err);
int ofs_naming_push_str(struct naming *c, struct ofs_str s,
    struct optimfs_error *err);
/* c->path = optim[/NAME]. */
int ofs_naming_optim(struct naming *c, uint32_t root,
    struct optimfs_error *err);
/* The name of a state's key in the tree. */
uint32_t ofs_naming_state_name(struct naming *c, uint32_t root,
    struct naming_name id, bool *alias, struct optimfs_error *err);

#endif
