/* ids_groups.c - what the groups of an optimizer say about its IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/memory.h"
#include "naming/ids.h"
#include "pickle/pickle.h"

/* *group = the group of entry, an option of root. A number of a million or more
 * is damage. */
static bool group_of(const struct naming *c, uint32_t entry, uint32_t root,
    struct naming_key *key, uint32_t *group)
{
	if (c->slot[entry].root != root)
		return false;
	*key = ofs_naming_key(c, entry);
	return key->kind == NAMING_GROUP && ofs_str_number(key->id.s, group) &&
	    *group < 1u << 20;
}

const struct ofs_value *ofs_naming_list(const struct naming *c, uint32_t entry,
    uint32_t root, const char *name, uint32_t *group)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	const struct ofs_value *v;
	struct naming_key key;

	if (e->kind != OFS_ENTRY_VALUE ||
	    !group_of(c, entry, root, &key, group) ||
	    !ofs_str_is(ofs_naming_last(c, &key), name))
		return NULL;
	v = &c->cat->values[e->ref];
	return ofs_pk_kind(v->doc, v->node) == OFS_PK_LIST ? v : NULL;
}

static int see_option(struct naming *c, uint32_t entry, uint32_t root,
    struct ofs_ids_groups *g, struct optimfs_error *err)
{
	const struct ofs_value *v;
	struct naming_key key;
	uint32_t number;

	if (!group_of(c, entry, root, &key, &number))
		return 0;
	if (number >= g->n) {
		if (ofs_reserve(g->v, number + 1ull, g->cap, err) == -1)
			return -1;
		memset(g->v + g->n, 0, (number + 1 - g->n) * sizeof(*g->v));
		g->n = number + 1;
	}
	g->v[number].low_rank |= ofs_str_is(ofs_naming_last(c, &key), "rank");
	v = ofs_naming_list(c, entry, root, "params", &number);
	if (v != NULL)
		g->v[number].ids = v;
	v = ofs_naming_list(c, entry, root, "param_names", &number);
	if (v != NULL)
		g->v[number].names = v;
	return 0;
}

int ofs_ids_groups(struct naming *c, uint32_t root, struct ofs_ids_groups *g,
    struct optimfs_error *err)
{
	*g = (struct ofs_ids_groups){ 0 };
	for (uint32_t i = 0; i < c->cat->nentries; i++)
		if (see_option(c, i, root, g, err) == -1)
			return -1;
	return 0;
}
