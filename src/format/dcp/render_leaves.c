/* render_leaves.c - which entries are one value of a DCP checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "format/dcp/render.h"
#include "pickle/pickle.h"

/* PyTorch (traverse_state_dict) always takes dicts apart, and a list if it has a
 * tensor, a dict, or a list that is taken apart. Anything else is one value: a
 * tuple with tensors, and a list of such tuples. In the catalog the items of
 * both are entries. Those of one container follow each other. */

/* More than the nesting limit of pickles. */
#define DEPTH_MAX 80u

struct leaves {
	struct ofs_dcp_files *f;
	const uint32_t *entry;
	uint32_t n;
	/* Entries before this one are in the same container of this depth, a
	 * list that is taken apart. */
	uint32_t apart[DEPTH_MAX];
};

static const uint32_t *path_of(const struct leaves *l, uint32_t i, uint32_t *n)
{
	return ofs_dcp_entry_path(l->f, l->entry[i], n);
}

/* The first entry from i on that is in another container of this depth. */
static uint32_t end_of(const struct leaves *l, uint32_t i, uint32_t depth)
{
	uint32_t n;
	const uint32_t *c = path_of(l, i, &n);

	for (i++; i < l->n; i++) {
		const uint32_t *next = path_of(l, i, &n);

		if (n <= depth || memcmp(c, next, depth * sizeof(*c)) != 0)
			break;
	}
	return i;
}

/* Is entry i, which has lists only below depth, no reason to take them apart?
 * *tuple is set if it is in a tuple. */
static bool is_inert(const struct leaves *l, uint32_t i, uint32_t depth,
    bool *tuple)
{
	const struct ofs_catalog *cat = l->f->cat;
	const struct ofs_entry *e = &cat->entries[l->entry[i]];
	uint32_t n;
	const uint32_t *c = path_of(l, i, &n);

	while (depth < n && (c[depth] & OFS_PATH_FLAGS) == OFS_PATH_INDEX)
		depth++;
	if (depth < n) {
		*tuple = (c[depth] & OFS_PATH_TUPLE) != 0;
		return *tuple;
	}
	return e->kind == OFS_ENTRY_VALUE &&
	    ofs_pk_kind(cat->values[e->ref].doc, cat->values[e->ref].node) !=
	    OFS_PK_DICT;
}

/* Are entries [i, end), which are all of a list or tuple, one value? */
static bool is_one(const struct leaves *l, uint32_t i, uint32_t end,
    uint32_t depth)
{
	uint32_t n;
	bool tuple = false;

	if ((path_of(l, i, &n)[depth] & OFS_PATH_TUPLE) != 0)
		return true;
	for (; i < end; i++)
		if (!is_inert(l, i, depth, &tuple))
			return false;
	return tuple;
}

/* The number of components of the key of entry i; *end gets the first entry
 * behind those that have the same. */
static uint32_t key_length(struct leaves *l, uint32_t i, uint32_t *end)
{
	uint32_t n;
	const uint32_t *c = path_of(l, i, &n);

	/* the root is a dict in any case */
	for (uint32_t depth = 1; depth < n && depth < DEPTH_MAX; depth++) {
		if ((c[depth] & OFS_PATH_INDEX) == 0 || i < l->apart[depth])
			continue;
		*end = end_of(l, i, depth);
		if (is_one(l, i, *end, depth))
			return depth;
		l->apart[depth] = *end;
	}
	*end = i + 1;
	return n;
}

void ofs_dcp_leaves(struct ofs_dcp_files *f, const uint32_t *entry, uint32_t n)
{
	struct leaves l = { .f = f, .entry = entry, .n = n };

	f->nleaves = 0;
	for (uint32_t i = 0, end; i < n; i = end) {
		struct ofs_dcp_leaf *leaf = &f->leaf[f->nleaves++];

		leaf->entry = entry[i];
		leaf->nkey = key_length(&l, i, &end);
	}
}
