/* alias.c - names that resolve without being listed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "naming/file_name.h"
#include "tree/tree_impl.h"

/* The directory of the previous path, because aliases come in runs. */
struct walk {
	const struct ofs_tree *tree;
	const struct ofs_catalog *cat;
	uint32_t path; /* its path; OFS_NONE at first */
	uint32_t dir;  /* its node; OFS_NONE: not in the tree */
};

static uint32_t step(const struct walk *w, uint32_t dir, uint32_t component)
{
	struct ofs_str s = ofs_catalog_string(w->cat, component);
	char name[OFS_NAME_MAX + 1];

	ofs_name_encode(s.p, s.len, name);
	return ofs_tree_child(w->tree, dir, name);
}

static bool same_dir(const struct walk *w, const uint32_t *c, uint32_t n)
{
	const uint32_t *last;
	uint32_t nlast;

	if (w->path == OFS_NONE)
		return false;
	last = ofs_catalog_components(w->cat, w->path, &nlast);
	return nlast == n && memcmp(last, c, (n - 1) * sizeof(*c)) == 0;
}

/* The node of the directory of path; *component gets the last component. */
static uint32_t directory(struct walk *w, uint32_t path, uint32_t *component)
{
	uint32_t n, dir = 0;
	const uint32_t *c = ofs_catalog_components(w->cat, path, &n);

	if (n == 0)
		return OFS_NONE;
	*component = c[n - 1];
	if (same_dir(w, c, n))
		return w->dir;
	for (uint32_t i = 0; i + 1 < n && dir != OFS_NONE; i++)
		dir = step(w, dir, c[i]);
	w->path = path;
	w->dir = dir;
	return dir;
}

static int alias_order(const void *pa, const void *pb)
{
	const struct ofs_tree_alias *a = pa, *b = pb;
	int c;

	if (a->dir != b->dir)
		return a->dir < b->dir ? -1 : 1;
	c = strcmp(a->name, b->name);
	if (c != 0)
		return c;
	return (a->target > b->target) - (a->target < b->target);
}

static void drop_doubles(struct ofs_tree *tree)
{
	uint32_t n = 0;

	qsort(tree->alias, tree->nalias, sizeof(*tree->alias), alias_order);
	for (uint32_t i = 0; i < tree->nalias; i++)
		if (n == 0 || tree->alias[n - 1].dir != tree->alias[i].dir ||
		    strcmp(tree->alias[n - 1].name, tree->alias[i].name) != 0)
			tree->alias[n++] = tree->alias[i];
	tree->nalias = n;
}

static int add_alias(struct ofs_tree *tree, struct walk *w,
    const struct ofs_alias *alias, struct optimfs_error *err)
{
	uint32_t component, dir, target;
	char name[OFS_NAME_MAX + 1];
	struct ofs_str s;
	size_t len;

	target = alias->target;
	if (target != OFS_NONE) {
		target = directory(w, alias->target, &component);
		if (target != OFS_NONE)
			target = step(w, target, component);
		if (target == OFS_NONE)
			return 0;
	}
	dir = directory(w, alias->path, &component);
	if (dir == OFS_NONE || step(w, dir, component) != OFS_NONE)
		return 0;
	s = ofs_catalog_string(w->cat, component);
	len = ofs_name_encode(s.p, s.len, name);
	tree->alias[tree->nalias] = (struct ofs_tree_alias){
		.name = ofs_arena_strndup(&tree->names, name, len),
		.dir = dir,
		.target = target,
	};
	if (tree->alias[tree->nalias].name == NULL)
		return ofs_no_memory(err);
	tree->nalias++;
	return 0;
}

int ofs_tree_aliases(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct walk w = { .tree = tree, .cat = cat, .path = OFS_NONE };

	if (cat->naliases == 0)
		return 0;
	tree->alias = calloc(cat->naliases, sizeof(*tree->alias));
	if (tree->alias == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < cat->naliases; i++)
		if (add_alias(tree, &w, &cat->aliases[i], err) == -1)
			return -1;
	drop_doubles(tree);
	return 0;
}
