/* naming.c - the path of every entry below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/naming.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/step.h"
#include "naming/file_name.h"
#include "naming/ids.h"
#include "naming/naming_impl.h"

/* A reader gives every entry the key of its program; the tree needs one place
 * for the same state whatever the program. "state.layers.0.weight.exp_avg",
 * ("optimizer", "state", 17, "exp_avg") and ("optim", "state",
 * "_fsdp_wrapped_module.layers.0.weight", "exp_avg") are all
 * optim/state/layers.0.weight/exp_avg. Nothing in a key says what it is: a model
 * may have a parameter called "state", and a dotted key can be split in many
 * ways. So names are found by passes over all entries, each of which needs what
 * those before have settled (name_all):
 *
 *   words          what each string is by itself. A checkpoint has few strings
 *                  and many paths: the later passes look only at these bits.
 *   roots          the optimizers, because their keys are sure: lists of groups,
 *                  and states whose names only optimizers have.
 *   find_model     of what belongs to no optimizer, that which looks most like
 *                  a model.
 *   collect        the names of parameters: those of the model and, where state
 *                  is not flattened, those of the optimizers. Only with them can
 *                  a flattened key be split, since names and states have dots.
 *   match_wrapped  names without the prefixes of wrappers. All names of a scope
 *                  are needed first: if two would become one, the second keeps
 *                  its prefixes.
 *   ties           entries of the model that are one tensor. They have one state.
 *   unmatched      state of a number that no group lists, which belongs to no
 *                  parameter. It must not get the name of one in the next pass.
 *   ids            names for numbers, from what the groups say, or from the
 *                  shapes of the model's tensors without tied ones.
 *   place          the path of each entry, which reads all of the above, and
 *                  changes nothing that another entry's path depends on.
 *
 * After these, state.c compares complete paths: aliases of tied parameters, and
 * what is missing. subtree= comes last, so that it means what a user has seen.
 *
 * A guess that could be wrong is never silent: it is a warning, or the key stays
 * below extra/ as it is. */

int ofs_naming_push(struct naming *c, uint32_t str, struct optimfs_error *err)
{
	if (str == OFS_NONE)
		return -1;
	if (ofs_grow(c->path, c->npath, c->path_cap, err) == -1)
		return -1;
	c->path[c->npath++] = str;
	return 0;
}

static int push_str(struct naming *c, struct ofs_str s,
    struct optimfs_error *err)
{
	return ofs_naming_push(c, ofs_catalog_str(c->cat, s.p, s.len, err),
	    err);
}

static int push_all(struct naming *c, const uint32_t *v, uint32_t n,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (ofs_naming_push(c, v[i], err) == -1)
			return -1;
	return 0;
}

/* Append each part of a dotted text as a directory. */
static int push_dotted(struct naming *c, struct ofs_str text,
    struct optimfs_error *err)
{
	size_t from = 0, dot;

	do {
		dot = ofs_naming_dot(text, from);
		if (push_str(c,
			(struct ofs_str){
			    text.p + from, (uint32_t)(dot - from) },
			err) == -1)
			return -1;
		from = dot + 1;
	} while (dot < text.len);
	return 0;
}

int ofs_naming_optim(struct naming *c, uint32_t root, struct optimfs_error *err)
{
	uint32_t name = c->root[root].name;

	c->npath = 0;
	if (ofs_naming_push(c, c->keyword[NAMING_OPTIM], err) == -1)
		return -1;
	return name == OFS_NONE ? 0 : ofs_naming_push(c, name, err);
}

uint32_t ofs_naming_state_name(struct naming *c, uint32_t root,
    struct naming_name id, bool *alias, struct optimfs_error *err)
{
	uint32_t name = ofs_naming_id_name(c, root, id.s);

	if (alias != NULL)
		*alias = false;
	if (name != OFS_NONE)
		return name;
	return ofs_naming_listed(c, naming_scope_state(root), id, alias, err);
}

/* Make raw an alias of the path of the first n components of c->path. */
static int add_alias(struct naming *c, size_t n, struct ofs_str raw,
    struct optimfs_error *err)
{
	uint32_t target = ofs_catalog_path(c->cat, c->path, n, err);
	uint32_t str = ofs_catalog_str(c->cat, raw.p, raw.len, err);
	uint32_t clean = c->path[n - 1], path;

	c->path[n - 1] = str;
	path = ofs_catalog_path(c->cat, c->path, n, err);
	c->path[n - 1] = clean;
	return ofs_catalog_alias(c->cat, path, target, err) == OFS_NONE ? -1
									: 0;
}

static int other_path(struct naming *c, uint32_t entry,
    struct optimfs_error *err)
{
	struct naming_rest rest = ofs_naming_rest(c, entry);

	if (ofs_naming_optim(c, c->slot[entry].root, err) == -1)
		return -1;
	if (rest.text.p != NULL)
		return push_str(c, rest.text, err);
	return push_all(c, rest.c, rest.n, err);
}

/* Append the rest of a key of a state or a group. */
static int push_rest(struct naming *c, const struct naming_key *key,
    struct optimfs_error *err)
{
	if (key->tail.p != NULL && key->kind == NAMING_STATE &&
	    push_dotted(c, key->tail, err) == -1)
		return -1;
	if (key->tail.p != NULL && key->kind == NAMING_GROUP &&
	    push_str(c, key->tail, err) == -1)
		return -1;
	return push_all(c, key->more, key->nmore, err);
}

static int optim_path(struct naming *c, uint32_t entry,
    struct optimfs_error *err)
{
	uint32_t root = c->slot[entry].root, name;
	enum naming_keyword part = NAMING_STATES;
	struct naming_key key = ofs_naming_key(c, entry);
	bool alias;
	size_t n;

	if (key.kind == NAMING_OTHER)
		return other_path(c, entry, err);
	if (key.kind == NAMING_GROUP) {
		part = NAMING_GROUPS;
		name = ofs_naming_listed(c, naming_scope_groups(root), key.id,
		    &alias, err);
	} else
		name = ofs_naming_state_name(c, root, key.id, &alias, err);
	if (ofs_naming_optim(c, root, err) == -1 ||
	    ofs_naming_push(c, c->keyword[part], err) == -1 ||
	    ofs_naming_push(c, name, err) == -1)
		return -1;
	n = c->npath;
	if (push_rest(c, &key, err) == -1)
		return -1;
	/* last, because it interns paths, and key.more is in their pool */
	return alias ? add_alias(c, n, key.id.s, err) : 0;
}

static int model_path(struct naming *c, struct naming_rest rest,
    struct optimfs_error *err)
{
	struct naming_name fqn = ofs_naming_fqn(c, rest);
	uint32_t name;
	bool alias;

	c->npath = 0;
	if (ofs_naming_push(c, c->keyword[NAMING_MODEL], err) == -1)
		return -1;
	if (fqn.s.p == NULL)
		return push_all(c, rest.c, rest.n, err);
	name = ofs_naming_listed(c, SCOPE_MODEL, fqn, &alias, err);
	if (ofs_naming_push(c, name, err) == -1)
		return -1;
	return alias ? add_alias(c, c->npath, fqn.s, err) : 0;
}

/* Build the tree path of entry in c->path. */
static int tree_path(struct naming *c, uint32_t entry,
    struct optimfs_error *err)
{
	struct naming_rest rest;

	if (c->slot[entry].root != OFS_NONE)
		return optim_path(c, entry, err);
	if (ofs_naming_in_model(c, entry, &rest))
		return model_path(c, rest, err);
	c->npath = 0;
	if (ofs_naming_push(c, c->keyword[NAMING_EXTRA], err) == -1)
		return -1;
	/* a file that is a single object */
	if (rest.n == 0)
		return ofs_naming_push(c, c->keyword[NAMING_EMPTY], err);
	return push_all(c, rest.c, rest.n, err);
}

/* Is c->path the path of the index? Nearly all of a model are. */
static bool is_stored(const struct naming *c, uint32_t path)
{
	uint32_t n;
	const uint32_t *stored = ofs_catalog_components(c->cat, path, &n);

	return n == c->npath &&
	    memcmp(stored, c->path, n * sizeof(*stored)) == 0;
}

static int place(struct naming *c, uint32_t entry, struct optimfs_error *err)
{
	uint32_t tree = c->cat->entries[entry].path;

	if (tree_path(c, entry, err) == -1)
		return -1;
	if (!is_stored(c, tree))
		tree = ofs_catalog_path(c->cat, c->path, c->npath, err);
	if (tree == OFS_NONE)
		return -1;
	c->cat->entries[entry].tree = tree;
	return 0;
}

/* subtree=: components with their names in the mount. */
struct subtree {
	const char *seg[64];
	size_t len[64];
	uint32_t n;
};

static int parse_subtree(const char *text, struct subtree *s,
    struct optimfs_error *err)
{
	for (;;) {
		text += strspn(text, "/");
		if (*text == '\0')
			return 0;
		if (s->n == sizeof(s->seg) / sizeof(*s->seg))
			return optimfs_fail(err, EINVAL,
			    "OFS638 subtree= has more than %u components",
			    s->n);
		s->seg[s->n] = text;
		s->len[s->n] = strcspn(text, "/");
		text += s->len[s->n++];
	}
}

static bool in_subtree(const struct naming *c, uint32_t tree,
    const struct subtree *s)
{
	char name[OFS_NAME_MAX + 1];
	uint32_t n;
	const uint32_t *path = ofs_catalog_components(c->cat, tree, &n);

	if (n < s->n)
		return false;
	for (uint32_t i = 0; i < s->n; i++) {
		struct ofs_str key = ofs_catalog_string(c->cat, path[i]);
		size_t len = ofs_name_encode(key.p, key.len, name);

		if (len != s->len[i] || memcmp(name, s->seg[i], len) != 0)
			return false;
	}
	return true;
}

static int narrow(struct naming *c, struct optimfs_error *err)
{
	struct subtree s = { .n = 0 };
	uint32_t kept = 0;

	if (c->opt->subtree == NULL)
		return 0;
	if (parse_subtree(c->opt->subtree, &s, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (in_subtree(c, c->cat->entries[i].tree, &s))
			kept++;
		else
			c->cat->entries[i].tree = OFS_NONE;
	}
	if (kept == 0 && s.n > 0)
		return optimfs_fail(err, ENOENT,
		    "OFS638 subtree=%s: nothing has this path, or is below "
		    "it",
		    c->opt->subtree);
	return 0;
}

static int warn_of_text(struct naming *c, struct optimfs_error *err)
{
	if (c->ntext == 0)
		return 0;
	return ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS640 no map of keys: %" PRIu64
	    " dotted keys of optimizers were split at parameter names",
	    c->ntext);
}

/* The file of the first shard of a tensor; OFS_NONE: it has none. */
static uint32_t object_of(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	const struct ofs_tensor *t = &cat->tensors[e->ref];

	return t->nshards == 0 ? OFS_NONE : cat->shards[t->shard].at.object;
}

/* Two files that both have a tensor of the same key are two models, or two saves of
 * one: the second cannot be just another name. */
static int check_key(const struct naming *c, const struct ofs_entry *first,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = c->cat;
	uint32_t a = object_of(cat, first), b = object_of(cat, e), n;
	const uint32_t *path;
	struct ofs_str key;

	if (a == OFS_NONE || b == OFS_NONE || a == b)
		return 0;
	path = ofs_catalog_components(cat, e->path, &n);
	key = n == 0 ? (struct ofs_str){ "", 0 }
		     : ofs_catalog_string(cat, OFS_PATH_STR(path[n - 1]));
	return optimfs_fail(err, EPROTO,
	    "OFS674 %.200s and %.200s both have %.*s: the files are not of one "
	    "model",
	    cat->objects[a].path, cat->objects[b].path, OFS_STR_ARGS(key, 200));
}

static int check_keys(const struct naming *c, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = c->cat;
	uint32_t *seen = calloc(cat->npaths + 1, sizeof(*seen));
	int ret = seen == NULL ? ofs_no_memory(err) : 0;

	for (uint32_t i = 0; i < cat->nentries && ret == 0; i++) {
		const struct ofs_entry *e = &cat->entries[i];

		/* a format that joins its files knows what they share */
		if (e->kind != OFS_ENTRY_TENSOR || e->nfile == 0)
			continue;
		if (seen[e->path] != 0)
			ret = check_key(c, &cat->entries[seen[e->path] - 1], e,
			    err);
		seen[e->path] = i + 1;
	}
	free(seen);
	return ret;
}

static int keywords(struct naming *c, struct optimfs_error *err)
{
	static const char *const text[NAMING_NKEYWORDS] = { "optim", "state",
		"param_groups", "model", "extra", "" };

	for (int i = 0; i < NAMING_NKEYWORDS; i++)
		c->keyword[i] =
		    ofs_catalog_str(c->cat, text[i], strlen(text[i]), err);
	return ofs_catalog_failed(c->cat, err) ? -1 : 0;
}

static int name_all(struct naming *c, struct optimfs_error *err)
{
	if (check_keys(c, err) == -1 || keywords(c, err) == -1 ||
	    ofs_naming_words(c, err) == -1 || ofs_naming_roots(c, err) == -1 ||
	    ofs_naming_find_model(c, err) == -1 ||
	    ofs_naming_collect(c, err) == -1 ||
	    ofs_naming_match_wrapped(c, err) == -1 ||
	    ofs_naming_ties(c, err) == -1)
		return -1;
	ofs_naming_integers(c);
	if (ofs_naming_unmatched(c, err) == -1 || ofs_naming_ids(c, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (i % OFS_STEP_EVERY == 0 &&
		    ofs_step(c->cat->dir.watch, "naming tensors", i,
			c->cat->nentries, err) == -1)
			return -1;
		if (place(c, i, err) == -1)
			return -1;
	}
	if (ofs_naming_finish(c, err) == -1 || warn_of_text(c, err) == -1)
		return -1;
	return narrow(c, err);
}

int ofs_name_entries(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct naming c = { .cat = cat, .opt = opt };
	int ret;

	ret = name_all(&c, err);
	ofs_arena_fini(&c.arena);
	ofs_keys_fini(&c.root_paths);
	ofs_keys_fini(&c.matches);
	ofs_keys_fini(&c.fqns);
	ofs_keys_fini(&c.guessed);
	free(c.word);
	free(c.root);
	free(c.slot);
	free(c.match);
	free(c.strip);
	free(c.clean);
	free(c.scratch);
	free(c.tie);
	free(c.path);
	return ret;
}
