/* mirror_name.c - file names in mirrors that change them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "fs/fs.h"
#include "naming/file_name.h"

/* A suffix can make a name too long, and changes the order of names: "a.npy"
 * comes after "a-b.npy". */

static bool suffixed(const struct ofs_snapshot *snap, const struct ofs_space *s,
    uint32_t index)
{
	return s->ops->suffix[0] != '\0' &&
	    snap->tree.node[index].entry != OFS_NONE;
}

const char *ofs_mirror_name(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t index, char name[OFS_NAME_MAX + 1])
{
	const char *plain = snap->tree.node[index].name, *other;

	if (s->ops->rename != NULL) {
		other = s->ops->rename(snap, index);
		if (other != NULL) {
			ofs_name_encode(other, strlen(other), name);
			return name;
		}
	}
	if (!suffixed(snap, s, index))
		return plain;
	ofs_name_suffix(plain, s->ops->suffix, name);
	return name;
}

struct beginning {
	const char *p;
	size_t n;
};

static int compare_begin(const void *key, const void *item)
{
	const struct beginning *b = key;
	const struct ofs_tree_node *v = item;

	return strncmp(b->p, v->name, b->n);
}

/* Finds a name that was shortened: candidates with the same beginning are
 * neighbours. */
static uint32_t find_cut(const struct ofs_snapshot *snap,
    const struct ofs_space *s, uint32_t dir, const char *name)
{
	const struct ofs_tree_node *v = snap->tree.node, *d = &v[dir];
	size_t kept = ofs_name_kept(name, strlen(s->ops->suffix));
	struct beginning begin = { name, kept };
	char cut[OFS_NAME_MAX + 1];
	uint32_t i;

	if (kept == 0)
		return OFS_NONE;
	i = d->child +
	    (uint32_t)ofs_lower_bound(&begin, v + d->child, d->nchild,
		sizeof(*v), compare_begin);
	for (; i < d->child + d->nchild && strncmp(v[i].name, name, kept) == 0;
	     i++)
		if (suffixed(snap, s, i) &&
		    strcmp(ofs_mirror_name(snap, s, i, cut), name) == 0)
			return i;
	return OFS_NONE;
}

struct by_name {
	const struct ofs_snapshot *snap;
	const struct ofs_space *s;
};

static int compare(const void *a, const void *b, void *ctx)
{
	const struct by_name *by = ctx;
	char x[OFS_NAME_MAX + 1], y[OFS_NAME_MAX + 1];

	return strcmp(ofs_mirror_name(by->snap, by->s, *(const uint32_t *)a, x),
	    ofs_mirror_name(by->snap, by->s, *(const uint32_t *)b, y));
}

static void *make_order(const struct ofs_snapshot *snap,
    const struct ofs_space *s)
{
	const struct ofs_tree_node *v = snap->tree.node;
	uint32_t *order = malloc((size_t)snap->tree.n * sizeof(*order));
	struct by_name by = { snap, s };

	if (order == NULL)
		return NULL;
	for (uint32_t i = 0; i < snap->tree.n; i++)
		order[i] = i;
	for (uint32_t i = 0; i < snap->tree.n; i++) {
		uint32_t *first = order + v[i].child, k = 1;

		if (v[i].entry != OFS_NONE)
			continue;
		while (k < v[i].nchild &&
		    compare(&first[k - 1], &first[k], &by) <= 0)
			k++;
		if (k < v[i].nchild)
			qsort_r(first, v[i].nchild, sizeof(*first), compare,
			    &by);
	}
	return order;
}

struct sought {
	const struct ofs_snapshot *snap;
	const struct ofs_space *s;
	const char *name;
};

static int compare_sought(const void *key, const void *item)
{
	const struct sought *x = key;
	char name[OFS_NAME_MAX + 1];

	return strcmp(x->name,
	    ofs_mirror_name(x->snap, x->s, *(const uint32_t *)item, name));
}

/* Finds a name among those of a mirror that renames, which are sorted. */
static uint32_t find_renamed(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t dir, const char *name)
{
	const struct ofs_tree_node *d = &snap->tree.node[dir];
	const struct sought x = { snap, s, name };
	const uint32_t *order, *found;

	order = ofs_space_table(snap, s, &s->order, make_order, NULL);
	if (order == NULL)
		return OFS_NONE;
	found = ofs_search(&x, order + d->child, d->nchild, sizeof(*order),
	    compare_sought);
	return found == NULL ? OFS_NONE : *found;
}

uint32_t ofs_mirror_find(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t dir, const char *name)
{
	uint32_t index = ofs_tree_lookup(&snap->tree, dir, name);
	char bare[OFS_NAME_MAX + 1];

	if (s->ops->rename != NULL && snap->tree.node[dir].entry == OFS_NONE)
		return find_renamed(snap, s, dir, name);
	if (index != OFS_NONE && !suffixed(snap, s, index))
		return index;
	if (s->ops->suffix[0] == '\0' ||
	    !ofs_name_bare(name, s->ops->suffix, bare))
		return OFS_NONE;
	index = ofs_tree_lookup(&snap->tree, dir, bare);
	if (index != OFS_NONE && suffixed(snap, s, index))
		return index;
	return find_cut(snap, s, dir, name);
}

int ofs_mirror_child(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, uint32_t *child, struct optimfs_error *err)
{
	const uint32_t *order;

	*child = index;
	if (s->ops->suffix[0] == '\0' && s->ops->rename == NULL)
		return 0;
	order = ofs_space_table(snap, s, &s->order, make_order, err);
	if (order == NULL)
		return -1;
	*child = order[index];
	return 0;
}
