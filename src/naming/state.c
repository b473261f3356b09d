/* state.c - renamed state, and missing state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/search.h"
#include "base/str.h"
#include "naming/naming_impl.h"
#include "pickle/pickle.h"

/* A parameter with state. */
struct has {
	uint32_t root, name;
};

static bool has_state(const struct ofs_keys *p, uint32_t root, uint32_t name)
{
	struct has k = { root, name };

	return ofs_keys_find(p, &k, sizeof(k)) != OFS_NONE;
}

static int add_state(struct ofs_keys *p, uint32_t root, uint32_t name,
    struct optimfs_error *err)
{
	struct has k = { root, name };

	return ofs_keys_copy(p, &k, sizeof(k), err) == OFS_NONE ? -1 : 0;
}

static int collect(struct naming *c, struct ofs_keys *p,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);
		uint32_t name;

		if (key.kind != NAMING_STATE)
			continue;
		name = ofs_naming_state_name(c, c->slot[i].root, key.id, NULL,
		    err);
		if (name == OFS_NONE ||
		    add_state(p, c->slot[i].root, name, err) == -1)
			return -1;
	}
	return 0;
}

/* The listed name of an entry of the model. */

static uint32_t model_name(struct naming *c, uint32_t entry,
    struct optimfs_error *err)
{
	struct naming_rest rest;

	ofs_naming_in_model(c, entry, &rest);
	return ofs_naming_listed(c, SCOPE_MODEL, ofs_naming_fqn(c, rest), NULL,
	    err);
}

static uint32_t state_dir(struct naming *c, uint32_t root, uint32_t name,
    struct optimfs_error *err)
{
	if (ofs_naming_optim(c, root, err) == -1 ||
	    ofs_naming_push(c, c->keyword[NAMING_STATES], err) == -1 ||
	    ofs_naming_push(c, name, err) == -1)
		return OFS_NONE;
	return ofs_catalog_path(c->cat, c->path, c->npath, err);
}

static int alias(struct naming *c, struct ofs_keys *p, uint32_t root,
    uint32_t name, uint32_t holder, struct optimfs_error *err)
{
	uint32_t from, to;

	if (has_state(p, root, name))
		return 0;
	from = state_dir(c, root, name, err);
	if (from == OFS_NONE)
		return -1;
	to = state_dir(c, root, holder, err);
	if (to == OFS_NONE ||
	    ofs_catalog_alias(c->cat, from, to, err) == OFS_NONE)
		return -1;
	/* so that it is not reported as missing */
	return add_state(p, root, name, err);
}

OFS_COMPARE_BY2(by_first, struct naming_tie, first, entry)

/* tie[0..n) are all names of one tensor but the first. One of them has the
 * state; the others become aliases of it. */
static int tie_group(struct naming *c, struct ofs_keys *p, uint32_t root,
    const struct naming_tie *tie, uint32_t n, struct optimfs_error *err)
{
	uint32_t holder, name;

	holder = model_name(c, tie[0].first, err);
	for (uint32_t i = 0;
	     i < n && holder != OFS_NONE && !has_state(p, root, holder); i++)
		holder = model_name(c, tie[i].entry, err);
	if (holder == OFS_NONE)
		return -1;
	if (!has_state(p, root, holder))
		return 0;
	name = model_name(c, tie[0].first, err);
	if (name == OFS_NONE || alias(c, p, root, name, holder, err) == -1)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		name = model_name(c, tie[i].entry, err);
		if (name == OFS_NONE ||
		    alias(c, p, root, name, holder, err) == -1)
			return -1;
	}
	return 0;
}

/* A tie that the reader reported, without the model: make an alias if one of
 * the names has state. */
static int reported_tie(struct naming *c, struct ofs_keys *p, uint32_t root,
    const struct ofs_name_tie *tie, struct optimfs_error *err)
{
	if (has_state(p, root, tie->target))
		return alias(c, p, root, tie->name, tie->target, err);
	if (has_state(p, root, tie->name))
		return alias(c, p, root, tie->target, tie->name, err);
	return 0;
}

static int reported_ties(struct naming *c, struct ofs_keys *p,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nties; i++)
		for (uint32_t r = 0; r < c->nroots; r++)
			if (c->root[r].accepted &&
			    reported_tie(c, p, r, &c->cat->ties[i], err) == -1)
				return -1;
	return 0;
}

static int tie(struct naming *c, struct ofs_keys *p, struct optimfs_error *err)
{
	uint32_t end;

	if (c->nties == 0)
		return 0;
	qsort(c->tie, c->nties, sizeof(*c->tie), by_first);
	for (uint32_t i = 0; i < c->nties; i = end) {
		for (end = i + 1;
		     end < c->nties && c->tie[end].first == c->tie[i].first;
		     end++)
			;
		for (uint32_t r = 0; r < c->nroots; r++)
			if (c->root[r].accepted &&
			    tie_group(c, p, r, c->tie + i, end - i, err) == -1)
				return -1;
	}
	return 0;
}

/* Note a parameter of a group without state, while others have state. Uses only
 * keys and values that are in memory: DCP stores the params of a group as an
 * item. */

static int note_missing(struct naming *c, const struct ofs_keys *p,
    uint32_t root, uint32_t name, struct optimfs_error *err)
{
	struct ofs_str s = ofs_catalog_string(c->cat, name), in = { "", 0 };
	const struct ofs_flat_param *flat = ofs_catalog_flat(c->cat, name);
	bool frozen = flat != NULL && flat->grad == 0;
	uint32_t path;

	if (has_state(p, root, name))
		return 0;
	if (c->root[root].name != OFS_NONE)
		in = ofs_catalog_string(c->cat, c->root[root].name);
	if (!frozen &&
	    ofs_catalog_note(c->cat, OFS_NOTE_MISSING, ENODATA, err,
		"OFS642 optim/%s%sstate/%s: in param_groups, but without "
		"state%s",
		in.p, in.len > 0 ? "/" : "", s.p,
		flat != NULL && flat->grad == 1 ? " though it is trained"
						: "") == -1)
		return -1;
	path = state_dir(c, root, name, err);
	return path == OFS_NONE ||
		ofs_catalog_alias(c->cat, path, OFS_NONE, err) == OFS_NONE
	    ? -1
	    : 0;
}

static int one_param(struct naming *c, const struct ofs_keys *p, uint32_t root,
    const struct ofs_value *v, uint32_t node, struct optimfs_error *err)
{
	struct naming_name id = { ofs_pk_str(v->doc, node), OFS_NONE };
	char number[24];
	uint32_t name;
	int64_t i;

	if (ofs_pk_int(v->doc, node, &i)) {
		id.s.p = number;
		id.s.len =
		    (uint32_t)snprintf(number, sizeof(number), "%" PRId64, i);
	} else if (ofs_pk_kind(v->doc, node) != OFS_PK_STR)
		return 0;
	name = ofs_naming_state_name(c, root, id, NULL, err);
	if (name == OFS_NONE)
		return -1;
	return note_missing(c, p, root, name, err);
}

static int params(struct naming *c, const struct ofs_keys *p, uint32_t entry,
    struct optimfs_error *err)
{
	const struct ofs_value v = c->cat->values[c->cat->entries[entry].ref];

	if (ofs_pk_kind(v.doc, v.node) != OFS_PK_LIST)
		return 0;
	for (uint32_t i = 0; i < ofs_pk_len(v.doc, v.node); i++)
		if (one_param(c, p, c->slot[entry].root, &v,
			ofs_pk_item(v.doc, v.node, i), err) == -1)
			return -1;
	return 0;
}

static bool has_params(const struct naming *c, uint32_t entry,
    const struct naming_key *key)
{
	return c->cat->entries[entry].kind == OFS_ENTRY_VALUE &&
	    ofs_str_is(ofs_naming_last(c, key), "params");
}

static int missing(struct naming *c, const struct ofs_keys *p,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);
		uint32_t root = c->slot[i].root, number, name;

		if (key.kind != NAMING_GROUP ||
		    (!c->root[root].numbers && !c->root[root].names))
			continue;
		if (has_params(c, i, &key)) {
			if (params(c, p, i, err) == -1)
				return -1;
			continue;
		}
		/* the name of a flattened group is its one parameter */
		if (ofs_str_number(key.id.s, &number))
			continue;
		name = ofs_naming_state_name(c, root, key.id, NULL, err);
		if (name == OFS_NONE ||
		    note_missing(c, p, root, name, err) == -1)
			return -1;
	}
	return 0;
}

/* Are there ties, or groups with names, to look up in the state? */
static bool asked(const struct naming *c)
{
	uint32_t number;

	if (c->nties > 0 || c->cat->nties > 0)
		return true;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);

		if (key.kind == NAMING_GROUP &&
		    (has_params(c, i, &key) ||
			!ofs_str_number(key.id.s, &number)))
			return true;
	}
	return false;
}

int ofs_naming_finish(struct naming *c, struct optimfs_error *err)
{
	struct ofs_keys p = { 0 };
	int ret = 0;

	if (c->nroots == 0 || !asked(c))
		return 0;
	ret = collect(c, &p, err);
	if (ret == 0)
		ret = tie(c, &p, err);
	if (ret == 0)
		ret = reported_ties(c, &p, err);
	if (ret == 0)
		ret = missing(c, &p, err);
	ofs_keys_fini(&p);
	return ret;
}
