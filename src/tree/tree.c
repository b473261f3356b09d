/* tree.c - finding files and directories below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tree/tree.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/search.h"
#include "tree/tree_impl.h"

void ofs_tree_fini(struct ofs_tree *tree)
{
	free(tree->node);
	free(tree->alias);
	ofs_arena_fini(&tree->names);
	*tree = (struct ofs_tree){ 0 };
}

int ofs_tree_build(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct ofs_tree t = { 0 };

	if (ofs_tree_nodes(&t, cat, err) == -1 ||
	    ofs_tree_aliases(&t, cat, err) == -1) {
		ofs_tree_fini(&t);
		return -1;
	}
	*tree = t;
	return 0;
}

static int compare_name(const void *key, const void *item)
{
	const struct ofs_tree_node *v = item;

	return strcmp(key, v->name);
}

uint32_t ofs_tree_child(const struct ofs_tree *tree, uint32_t dir,
    const char *name)
{
	const struct ofs_tree_node *d = &tree->node[dir];
	const struct ofs_tree_node *v = ofs_search(name, &tree->node[d->child],
	    d->nchild, sizeof(*v), compare_name);

	return v == NULL ? OFS_NONE : (uint32_t)(v - tree->node);
}

static int compare_alias(const void *key, const void *item)
{
	const struct ofs_tree_alias *x = key, *y = item;

	if (x->dir != y->dir)
		return x->dir < y->dir ? -1 : 1;
	return strcmp(x->name, y->name);
}

static const struct ofs_tree_alias *find_alias(const struct ofs_tree *tree,
    uint32_t dir, const char *name)
{
	struct ofs_tree_alias key = { .dir = dir, .name = name };

	return ofs_search(&key, tree->alias, tree->nalias, sizeof(key),
	    compare_alias);
}

uint32_t ofs_tree_lookup(const struct ofs_tree *tree, uint32_t dir,
    const char *name)
{
	uint32_t node = ofs_tree_child(tree, dir, name);
	const struct ofs_tree_alias *alias;

	if (node != OFS_NONE)
		return node;
	alias = find_alias(tree, dir, name);
	return alias == NULL ? OFS_NONE : alias->target;
}

bool ofs_tree_absent(const struct ofs_tree *tree, uint32_t dir,
    const char *name)
{
	const struct ofs_tree_alias *alias = find_alias(tree, dir, name);

	return alias != NULL && alias->target == OFS_NONE;
}

const struct ofs_entry *ofs_tree_entry(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node)
{
	uint32_t entry = tree->node[node].entry;

	return entry == OFS_NONE ? NULL : &cat->entries[entry];
}

const struct ofs_tensor *ofs_tree_tensor(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node)
{
	return ofs_entry_tensor(cat, ofs_tree_entry(tree, cat, node));
}

bool ofs_tree_path(const struct ofs_tree *tree, uint32_t node, char *path,
    size_t size)
{
	char *end = path + size - 1, *p = end;

	*p = '\0';
	for (; node != 0; node = tree->node[node].parent) {
		const struct ofs_tree_node *v = &tree->node[node];
		size_t n = strlen(v->name), slash = p < end;
		size_t before = v->parent == 0 ? 0 : strlen(".../");
		bool fits = n + slash + before <= (size_t)(p - path);

		if (slash)
			*--p = '/';
		p -= fits ? n : strlen("...");
		memcpy(p, fits ? v->name : "...", fits ? n : strlen("..."));
		if (!fits)
			break;
	}
	memmove(path, p, (size_t)(end - p) + 1);
	return node == 0;
}

uint32_t ofs_tree_key(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node)
{
	const uint32_t *c;
	uint32_t depth = 0, n;

	for (uint32_t i = node; i != 0; i = tree->node[i].parent)
		depth++;
	/* a directory's is in the paths of all files below */
	while (tree->node[node].entry == OFS_NONE)
		node = tree->node[node].child;
	c = ofs_catalog_components(cat, ofs_tree_entry(tree, cat, node)->tree,
	    &n);
	return OFS_PATH_STR(c[depth - 1]);
}

uint64_t ofs_tree_ino(uint64_t with, const char *name)
{
	uint64_t ino = XXH64(name, strlen(name), with);

	/* 0 is not a valid inode number, and 1 is the root */
	return ino < 2 ? ino + 2 : ino;
}

uint64_t ofs_tree_node_ino(const struct ofs_tree *tree, uint32_t node)
{
	uint64_t ino = 1;

	for (; node != 0; node = tree->node[node].parent)
		ino = ofs_tree_ino(ino, tree->node[node].name);
	return ino;
}

static bool is_called(const struct ofs_tree *tree, uint32_t node,
    const char *name)
{
	return strcmp(tree->node[node].name, name) == 0;
}

bool ofs_tree_is_params(const struct ofs_tree *tree, uint32_t node)
{
	uint32_t group = tree->node[node].parent;

	return group != 0 && is_called(tree, node, "params") &&
	    is_called(tree, tree->node[group].parent, "param_groups");
}
