/* state_dict.c - a section of the tree as the nested dicts of a program */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/state_dict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

struct child_key {
	uint32_t parent, key;
};

static bool same_child(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_state_node *v =
	    &((const struct ofs_state *)ctx)->node[index];
	const struct child_key *k = key;

	(void)n;
	return v->parent == k->parent && v->key == k->key;
}

static uint32_t new_node(struct ofs_state *s, uint32_t parent, uint32_t key,
    struct optimfs_error *err)
{
	struct ofs_state_node *up;

	if (ofs_grow(s->node, s->n, s->cap, err) == -1)
		return OFS_NONE;
	s->node[s->n] = (struct ofs_state_node){ key, OFS_NONE, parent,
		OFS_NONE, OFS_NONE, OFS_NONE, false, 0, false };
	if (parent != OFS_NONE) {
		up = &s->node[parent];
		if (up->child == OFS_NONE)
			up->child = s->n;
		else
			s->node[up->last].next = s->n;
		up->last = s->n;
	}
	return s->n++;
}

/* Find or create the child of parent with a key. */
static uint32_t child_of(struct ofs_state *s, struct ofs_map *map,
    uint32_t parent, uint32_t key, struct optimfs_error *err)
{
	struct child_key k = { parent, key };
	uint32_t hash = ofs_map_hash(&k, sizeof(k));
	uint32_t i = ofs_map_find(map, hash, same_child, s, &k, sizeof(k));

	if (i != UINT32_MAX)
		return i;
	i = new_node(s, parent, key, err);
	if (i != OFS_NONE && !ofs_map_add(map, hash, i)) {
		ofs_no_memory(err);
		return OFS_NONE;
	}
	return i;
}

/* Add an entry, below the root by its path without the first skip components. */
static int add_entry(struct ofs_state *s, struct ofs_map *map, uint32_t entry,
    uint32_t skip, struct optimfs_error *err)
{
	const struct ofs_entry *e = &s->cat->entries[entry];
	uint32_t n, at = 0;
	const uint32_t *c = ofs_catalog_components(s->cat, e->tree, &n);

	for (uint32_t i = skip; i < n; i++) {
		if (s->node[at].entry != OFS_NONE)
			goto clash;
		at = child_of(s, map, at, c[i], err);
		if (at == OFS_NONE)
			return -1;
	}
	if (s->node[at].child != OFS_NONE || s->node[at].entry != OFS_NONE)
		goto clash;
	s->node[at].entry = entry;
	return 0;
clash:
	optimfs_fail(err, EUCLEAN,
	    "OFS449 another entry has the same key, or a part of it");
	return ofs_render_fail_in(s->cat, e, err);
}

struct ofs_str ofs_state_key(const struct ofs_state *s, uint32_t node)
{
	return ofs_catalog_string(s->cat, OFS_PATH_STR(s->node[node].key));
}

bool ofs_state_key_is(const struct ofs_state *s, uint32_t node,
    const char *word)
{
	return node != 0 && ofs_str_is(ofs_state_key(s, node), word);
}

uint32_t ofs_state_child(const struct ofs_state *s, uint32_t node,
    const char *word)
{
	uint32_t i = s->node[node].child;

	while (i != OFS_NONE && !ofs_state_key_is(s, i, word))
		i = s->node[i].next;
	return i;
}

struct numbered {
	uint32_t number, node;
};

OFS_COMPARE_BY(by_number, struct numbered, number)

/* Sort the children by number, if these are 0, 1, ... without a gap. */
static int sort_list(struct ofs_state *s, uint32_t node, uint32_t n,
    struct optimfs_error *err)
{
	struct numbered *v = malloc(n * sizeof(*v));
	uint32_t k = 0;

	if (v == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = s->node[node].child; i != OFS_NONE;
	     i = s->node[i].next) {
		v[k].node = i;
		ofs_str_number(ofs_state_key(s, i), &v[k++].number);
	}
	qsort(v, n, sizeof(*v), by_number);
	s->node[node].list = v[n - 1].number == n - 1;
	s->node[node].child = v[0].node;
	s->node[node].last = v[n - 1].node;
	for (k = 0; k < n; k++)
		s->node[v[k].node].next = k + 1 < n ? v[k + 1].node : OFS_NONE;
	free(v);
	return 0;
}

/* Has the model a parameter whose name is a number? */
static bool model_has_numbers(const struct ofs_catalog *cat)
{
	for (uint32_t i = 0; i < cat->nentries; i++) {
		uint32_t n, v;
		const uint32_t *c;

		if (cat->entries[i].tree == OFS_NONE)
			continue;
		c = ofs_catalog_components(cat, cat->entries[i].tree, &n);
		if (n == 2 && ofs_catalog_string_is(cat, c[0], "model") &&
		    ofs_str_number(ofs_catalog_string(cat, OFS_PATH_STR(c[1])),
			&v))
			return true;
	}
	return false;
}

/* The tree has names only: decide which containers are lists, and which dicts
 * have integer keys. param_groups is always a list; the keys of state are IDs
 * if all are numbers. An optimizer may have other state beside that of its
 * parameters: then those that are numbers are IDs, unless they can be names. */
static int classify(struct ofs_state *s, uint32_t node,
    struct optimfs_error *err)
{
	bool numbers = true, some = false, indexes = true, tuple = true;
	uint32_t n = 0, v;

	for (uint32_t i = s->node[node].child; i != OFS_NONE;
	     i = s->node[i].next, n++) {
		bool number = ofs_str_number(ofs_state_key(s, i), &v);

		numbers = numbers && number;
		some = some || number;
		indexes = indexes && (s->node[i].key & OFS_PATH_INDEX) != 0;
		tuple = tuple && (s->node[i].key & OFS_PATH_TUPLE) != 0;
	}
	if (s->optim && some && !numbers && ofs_state_key_is(s, node, "state"))
		s->node[node].numbers = !model_has_numbers(s->cat);
	if (n == 0 || !numbers)
		return 0;
	s->node[node].numbers = ofs_state_key_is(s, node, "state") &&
	    !(s->cat->nid_names > 0 && model_has_numbers(s->cat));
	if (!indexes && !ofs_state_key_is(s, node, "param_groups"))
		return 0;
	if (sort_list(s, node, n, err) == -1)
		return -1;
	s->node[node].tuple = tuple && s->node[node].list ? n : 0;
	return 0;
}

int ofs_state_build_of(struct ofs_state *s, const struct ofs_catalog *cat,
    const uint32_t *entries, uint32_t n, uint32_t skip, bool optim,
    struct optimfs_error *err)
{
	struct ofs_map map = { 0 };
	int ret;

	*s = (struct ofs_state){ .cat = cat, .optim = optim };
	ret = new_node(s, OFS_NONE, 0, err) == OFS_NONE ? -1 : 0;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_entry(s, &map, entries[i], skip, err);
	for (uint32_t i = 0; i < s->n && ret == 0; i++)
		ret = classify(s, i, err);
	ofs_map_fini(&map);
	if (ret == -1)
		ofs_state_fini(s);
	return ret;
}

int ofs_state_build(struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, struct optimfs_error *err)
{
	uint32_t *entries = NULL, n = 0;
	int ret = ofs_render_entries(from, to, section, &entries, &n, err);

	if (ret == 0)
		ret = ofs_state_build_of(s, from->cat, entries, n, 1,
		    section != NULL && strcmp(section, "optim") == 0, err);
	if (ret == 0 && n > 0)
		s->ordered = ofs_catalog_evidence(from->cat, entries[0],
				 entries[n - 1]) != OFS_UNORDERED;
	free(entries);
	return ret;
}

void ofs_state_fini(struct ofs_state *s)
{
	free(s->node);
	*s = (struct ofs_state){ 0 };
}
