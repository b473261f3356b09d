/* tree.h - the files and directories below the mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TREE_H
#define OFS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A file or directory. The children of a directory are contiguous in the array,
 * sorted bytewise by name: a lookup is a binary search. Node 0 is the root. */
struct ofs_tree_node {
	const char *name; /* encoded (naming/file_name.h), NUL-terminated */
	uint32_t parent;
	uint32_t child, nchild; /* a directory's children */
	uint32_t entry;         /* in cat->entries; OFS_NONE: a directory */
};

struct ofs_tree {
	struct ofs_tree_node *node;
	uint32_t n;
	struct ofs_arena names;
	struct ofs_tree_alias *alias; /* sorted by (dir, name) */
	uint32_t nalias;
};

/* A name that resolves but is not listed. The target OFS_NONE means that the
 * name is absent by intent. */
struct ofs_tree_alias {
	const char *name;
	uint32_t dir, target;
};

/* The tree of a catalog whose entries have tree paths; it borrows strings of
 * cat. optim, optim/state, optim/param_groups, model and extra exist when they
 * are not empty. Names that collide get ~2, ~3. */
int ofs_tree_build(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err);
void ofs_tree_fini(struct ofs_tree *tree);
/* The child or alias in dir with this name; OFS_NONE. */
uint32_t ofs_tree_lookup(const struct ofs_tree *tree, uint32_t dir,
    const char *name);
/* Is name in dir absent by intent? */
bool ofs_tree_absent(const struct ofs_tree *tree, uint32_t dir,
    const char *name);
/* The entry of a node, and its tensor; NULL: a directory, or no tensor. */
const struct ofs_entry *ofs_tree_entry(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node);
const struct ofs_tensor *ofs_tree_tensor(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node);
/* Write the path of a node below the root, without a leading slash ("" for the
 * root), to path[0..size). Where it does not fit, the first components are
 * "...", and false is returned. size is at least 5. */
bool ofs_tree_path(const struct ofs_tree *tree, uint32_t node, char *path,
    size_t size);

/* Is a node optim/.../param_groups/<i>/params? */
bool ofs_tree_is_params(const struct ofs_tree *tree, uint32_t node);

/* The component that a node other than the root has its name from, not encoded:
 * a string of the catalog. */
uint32_t ofs_tree_key(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, uint32_t node);

/* A number from another one and a name. */
uint64_t ofs_tree_ino(uint64_t with, const char *name);
/* The inode number of a node, from its path: the same in every mount. */
uint64_t ofs_tree_node_ino(const struct ofs_tree *tree, uint32_t node);

#endif
