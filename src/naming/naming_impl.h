/* naming_impl.h - shared declarations of naming */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_NAMING_IMPL_H
#define OFS_NAMING_NAMING_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/keys.h"
#include "naming/naming.h"

/* The root of an optimizer or a model has at most this many components. */
#define NAMING_DEPTH 8

/* Fixed components of tree paths. */
enum naming_keyword {
	NAMING_OPTIM,
	NAMING_STATES,
	NAMING_GROUPS,
	NAMING_MODEL,
	NAMING_EXTRA,
	NAMING_EMPTY,
	NAMING_NKEYWORDS
};

/* Properties of a key by itself. */
enum naming_token {
	TOKEN_STATE = 1 << 0,      /* "state" */
	TOKEN_GROUPS = 1 << 1,     /* "param_groups" */
	TOKEN_STATE_DOT = 1 << 2,  /* begins with "state." */
	TOKEN_GROUPS_DOT = 1 << 3, /* begins with "param_groups." */
	/* has "state." or "param_groups." after a dot */
	TOKEN_TOKEN = 1 << 4,
	TOKEN_OPTIM = 1 << 5,   /* a name of an optimizer */
	TOKEN_TOP = 1 << 6,     /* "optim" or "optimizer" */
	TOKEN_KNOWN = 1 << 7,   /* a name of a state, such as step */
	TOKEN_SURE = 1 << 8,    /* a name that only states have */
	TOKEN_WRAPPED = 1 << 9, /* has the prefix of a wrapper in it */
	TOKEN_MODULE = 1 << 10, /* begins with "module." */
	TOKEN_NUMBER = 1 << 11, /* a decimal integer, 0 to 999999999 */
	/* 4 bits: rank among names of models, likeliest first; 0: none */
	TOKEN_MODEL = 1 << 12,
	/* name of a state with the shape of its parameter */
	TOKEN_SHAPED = 1 << 16,
	TOKEN_MASTER = 1 << 17, /* the parameter itself, in float32 */
	/* means over the rows and over the columns of a parameter */
	TOKEN_ROWS = 1 << 18,
	TOKEN_COLUMNS = 1 << 19,
};
#define TOKEN_MODEL_OF(w) ((w) / TOKEN_MODEL & 15u)
#define TOKEN_ROOTED \
 (TOKEN_STATE | TOKEN_GROUPS | TOKEN_STATE_DOT | TOKEN_GROUPS_DOT)

/* A possible root of an optimizer's keys. */
struct naming_candidate {
	const uint32_t *c; /* components, without OFS_PATH_INDEX */
	uint32_t n;
	/* below optim/, a component: it has the flags that it has in paths of
	 * entries; OFS_NONE: the only optimizer */
	uint32_t name;
	uint8_t evidence, grade;
	uint8_t text; /* the part of evidence that dotted keys give */
	bool accepted, dropped;
	/* kinds of the keys of its state, and the first of each */
	bool numbers, names;
	bool integers; /* a key of its state is an integer, not text */
	bool sound;   /* state under some number is readable */
	uint32_t ids; /* index in cat->id_names; OFS_NONE: IDs have no names */
	uint32_t first_number, first_name;
	uint32_t max_id;
};

/* The root of an entry, OFS_NONE for none, and the start of the rest of its
 * path: an index of a component, or with SLOT_TEXT an offset in the only
 * one. */
struct naming_slot {
	uint32_t root, at;
};
#define SLOT_TEXT 0x80000000u
/* state of an ID that is in no group's list */
#define SLOT_UNMATCHED 0x40000000u

/* The rest of an entry's path below a root: components or text. */
struct naming_rest {
	const uint32_t *c;
	uint32_t n;
	struct ofs_str text; /* p NULL: components */
};

/* The name of a parameter or a group, with its string; OFS_NONE when it is only
 * a part of a string. */
struct naming_name {
	struct ofs_str s;
	uint32_t str;
};

/* The key of an entry; NAMING_NONE: it is of no optimizer. */
struct naming_key {
	enum { NAMING_NONE, NAMING_STATE, NAMING_GROUP, NAMING_OTHER } kind;
	struct naming_name id; /* an FQN, number or group */
	bool integer;          /* id is a key that is an integer */
	struct ofs_str tail;   /* the rest of a flattened key, may have dots */
	const uint32_t *more;  /* components after tail */
	uint32_t nmore;
};

/* The raw name (string) of a clean one in a scope: the model, or the state or
 * groups of one optimizer. */
struct naming_match {
	uint32_t raw;
	bool aliased, warned;
};

/* An entry of the model, and the first entry with the same tensor. */
struct naming_tie {
	uint32_t entry, first;
};

struct naming_model {
	enum { MODEL_NONE, MODEL_TOP, MODEL_BELOW, MODEL_TEXT } kind;
	uint32_t c[NAMING_DEPTH]; /* for MODEL_BELOW */
	uint32_t n;
	char *prefix; /* for MODEL_TEXT, with its last dot */
};

struct naming {
	struct ofs_catalog *cat;
	const struct optimfs_options *opt;
	struct ofs_arena arena;
	uint32_t *word; /* enum naming_token of each string */
	uint32_t nwords;
	bool wrapped; /* some key has the prefix of a wrapper or "module." */
	uint32_t keyword[NAMING_NKEYWORDS]; /* strings */

	struct naming_candidate *root;
	uint32_t nroots, root_cap;
	struct ofs_keys root_paths; /* of each root: c */
	/* some root has this number of components */
	bool length[NAMING_DEPTH + 1];
	uint64_t ntext;           /* entries that were split as text */
	struct naming_slot *slot; /* of each entry */

	struct naming_model model;
	struct ofs_keys fqns; /* names that a flattened key may contain */
	/* the same, found by the names of their states */
	struct ofs_keys guessed;

	struct naming_match *match;
	uint32_t match_cap;
	struct ofs_keys matches; /* of each: scope and clean name */
	/* of each scope: the bytes of "module.module..." that every name begins
	 * with; UINT32_MAX: there is no name */
	uint32_t *strip;
	/* of each string: without wrappers; OFS_NONE: unknown */
	uint32_t *clean;
	char *scratch;
	size_t scratch_len;

	struct naming_tie *tie; /* in the order of entries */
	uint32_t nties, tie_cap;

	uint32_t *path; /* the components of the current path */
	size_t npath, path_cap;
};

/* tokens.c */
uint32_t ofs_naming_classify(struct ofs_str s);
/* Is a component one that a wrapper puts into names? */
bool ofs_naming_is_wrapper(struct ofs_str part);
int ofs_naming_words(struct naming *c, struct optimfs_error *err);
uint32_t ofs_naming_word(const struct naming *c, uint32_t component);
/* The end of the component of text that begins at from: the next dot or the
 * end. */
size_t ofs_naming_dot(struct ofs_str text, size_t from);

/* optimizers.c: fill root and slot, and name each root. */
int ofs_naming_roots(struct naming *c, struct optimfs_error *err);
/* Only find the roots, and decide which are accepted. */
int ofs_naming_detect(struct naming *c, struct optimfs_error *err);
/* Do not accept roots that repeat another one by ID. */
int ofs_naming_drop_duplicates(struct naming *c, uint32_t *naccepted,
    struct optimfs_error *err);
/* The rest of the path of an entry that has a root. */
struct naming_rest ofs_naming_rest(const struct naming *c, uint32_t entry);
/* The number of components of path[0..n), fewer than n, that joined by dots
 * give key; OFS_NONE when no number does. */
uint32_t ofs_naming_match(const struct naming *c, const uint32_t *path,
    uint32_t n, const char *key);

/* optimizer_names.c: name several optimizers by the last components of their
 * paths in which all differ, or else by their paths. */
int ofs_naming_name_roots(struct naming *c, uint32_t naccepted,
    struct optimfs_error *err);
/* Append the components, joined. */
void ofs_naming_join(const struct naming *c, const uint32_t *path, uint32_t n,
    char between, struct ofs_buf *b);
/* Fail with ENOENT because option= matched nothing; the message lists the
 * keys. */
int ofs_naming_no_such_key(struct naming *c, const char *option,
    const char *key, struct optimfs_error *err);

/* model.c */
int ofs_naming_find_model(struct naming *c, struct optimfs_error *err);
/* Is entry in the model? *rest gets the rest of its path, else the whole
 * path. */
bool ofs_naming_in_model(const struct naming *c, uint32_t entry,
    struct naming_rest *rest);
/* The parameter name in rest; s.p is NULL when it is several components. */
struct naming_name ofs_naming_fqn(const struct naming *c,
    struct naming_rest rest);

/* flat_key.c */
int ofs_naming_collect(struct naming *c, struct optimfs_error *err);
struct naming_key ofs_naming_key(const struct naming *c, uint32_t entry);
/* The state or the option of a key, if it is one component; else p is NULL. */
struct ofs_str ofs_naming_last(const struct naming *c,
    const struct naming_key *key);

/* wrappers.c: names without the prefixes of wrappers. */
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
/* The string with which raw is listed in scope; OFS_NONE on failure. *alias, if
 * alias is not NULL, is set when raw must become an alias, once for each. */
uint32_t ofs_naming_listed(struct naming *c, uint32_t scope,
    struct naming_name raw, bool *alias, struct optimfs_error *err);

/* The string of a name without the prefixes of wrappers; with module_too, also
 * without each "module." that it then begins with. OFS_NONE on failure. */
uint32_t ofs_naming_unwrapped(struct naming *c, struct ofs_str name,
    bool module_too, struct optimfs_error *err);

/* unmatched.c: when the lists of all groups are known, reads of state of an
 * integer ID that is in no list fail (EUCLEAN, OFS644). */
int ofs_naming_unmatched(struct naming *c, struct optimfs_error *err);

/* ties.c */
/* Fill tie: the tensors of the model that are the same view of the same
 * extent. */
int ofs_naming_ties(struct naming *c, struct optimfs_error *err);
/* Is entry another name of the tensor of an earlier entry? */
bool ofs_naming_tied(const struct naming *c, uint32_t entry);

/* state.c, after every entry has its tree path: add aliases for the state of
 * tied parameters, and notes of missing state. */
int ofs_naming_finish(struct naming *c, struct optimfs_error *err);

/* naming.c: append to c->path. */
int ofs_naming_push(struct naming *c, uint32_t str, struct optimfs_error *err);
/* c->path = optim[/NAME]. */
int ofs_naming_optim(struct naming *c, uint32_t root,
    struct optimfs_error *err);
/* The name in the tree of a key of the state. */
uint32_t ofs_naming_state_name(struct naming *c, uint32_t root,
    struct naming_name id, bool *alias, struct optimfs_error *err);

#endif
