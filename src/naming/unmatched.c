/* unmatched.c - state of integer IDs that no group of parameters lists */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids.h"
#include "pickle/pickle.h"

/* The lists of IDs in the groups of all optimizers. */
struct listed {
	struct id {
		uint32_t root, id;
	} * v;
	size_t n, cap;
	/* of each optimizer: number of groups by their numbers, number of known
	 * lists of IDs, and whether a group lists anything else */
	struct lists {
		uint32_t ngroups, nlists;
		bool other;
	} * root;
};

OFS_COMPARE_BY2(compare_ids, struct id, root, id)

static int add_list(struct listed *l, uint32_t root, const struct ofs_value *v,
    struct optimfs_error *err)
{
	uint32_t n = ofs_pk_len(v->doc, v->node);

	if (ofs_reserve(l->v, l->n + (uint64_t)n, l->cap, err) == -1)
		return -1;
	l->root[root].nlists++;
	for (uint32_t i = 0; i < n; i++) {
		int64_t id;

		if (ofs_pk_int(v->doc, ofs_pk_item(v->doc, v->node, i), &id) &&
		    id >= 0 && id < UINT32_MAX)
			l->v[l->n++] = (struct id){ root, (uint32_t)id };
		else
			l->root[root].other = true;
	}
	return 0;
}

static int see_group(struct naming *c, struct listed *l, uint32_t entry,
    const struct naming_key *key, struct optimfs_error *err)
{
	struct lists *r = &l->root[c->slot[entry].root];
	const struct ofs_value *v;
	uint32_t group;

	if (!ofs_str_number(key->id.s, &group)) {
		r->other = true;
		return 0;
	}
	if (group >= r->ngroups)
		r->ngroups = group + 1;
	v = ofs_naming_list(c, entry, c->slot[entry].root, "params", &group);
	return v == NULL ? 0 : add_list(l, c->slot[entry].root, v, err);
}

/* Call fn for every entry of an optimizer until one fails. */
typedef int entry_fn(struct naming *c, struct listed *l, uint32_t entry,
    const struct naming_key *key, struct optimfs_error *err);

static int each_key(struct naming *c, struct listed *l, int kind, entry_fn *fn,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key = ofs_naming_key(c, i);

		if ((int)key.kind == kind && fn(c, l, i, &key, err) == -1)
			return -1;
	}
	return 0;
}

/* Make reads of the entry fail. A plain value becomes an item. */
static int refuse(struct ofs_catalog *cat, uint32_t entry,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_entry *e = &cat->entries[entry];
	struct ofs_item item = { .error = ofs_catalog_error(cat, why, err) };

	if (item.error == OFS_NONE)
		return -1;
	if (e->kind == OFS_ENTRY_TENSOR) {
		cat->tensors[e->ref].error = item.error;
		return 0;
	}
	if (e->kind == OFS_ENTRY_ITEM)
		item.at = cat->items[e->ref].at;
	e->ref = ofs_catalog_item(cat, &item, err);
	e->kind = OFS_ENTRY_ITEM;
	return e->ref == OFS_NONE ? -1 : 0;
}

static int see_state(struct naming *c, struct listed *l, uint32_t entry,
    const struct naming_key *key, struct optimfs_error *err)
{
	const struct lists *r = &l->root[c->slot[entry].root];
	struct id id = { .root = c->slot[entry].root };
	struct optimfs_error why;

	if (r->other || r->nlists == 0 || r->nlists < r->ngroups ||
	    !ofs_naming_is_id(c, id.root, key->id.s, &id.id) ||
	    ofs_search(&id, l->v, l->n, sizeof(id), compare_ids) != NULL)
		return 0;
	c->slot[entry].at |= SLOT_UNMATCHED;
	optimfs_fail(&why, EUCLEAN,
	    "OFS644 there is state of parameter ID %" PRIu32
	    ", which none of the %" PRIu32 " param_groups lists",
	    id.id, r->nlists);
	return refuse(c->cat, entry, &why, err);
}

int ofs_naming_unmatched(struct naming *c, struct optimfs_error *err)
{
	struct listed l = { .root = calloc(c->nroots + 1ull, sizeof(*l.root)) };
	int ret;

	ret = l.root == NULL ? ofs_no_memory(err)
			     : each_key(c, &l, NAMING_GROUP, see_group, err);
	if (ret == 0 && l.n > 0)
		qsort(l.v, l.n, sizeof(*l.v), compare_ids);
	if (ret == 0)
		ret = each_key(c, &l, NAMING_STATE, see_state, err);
	free(l.v);
	free(l.root);
	return ret;
}
