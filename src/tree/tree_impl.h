/* tree_impl.h - shared declarations of the files that build a tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TREE_TREE_IMPL_H
#define OFS_TREE_TREE_IMPL_H

#include "tree/tree.h"

/* Fill tree->node from the tree paths of cat's entries. After a failure tree
 * may only be freed with _fini. */
int ofs_tree_nodes(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err);
/* Fill tree->alias. Aliases whose directory or target is not in the tree, or
 * whose name a child has, are left out. */
int ofs_tree_aliases(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err);
/* The child of dir with this name, without aliases; OFS_NONE. */
uint32_t ofs_tree_child(const struct ofs_tree *tree, uint32_t dir,
    const char *name);

/* rank[i] = the rank of name[i] in bytewise order, counted from 0; equal names
 * have equal ranks. *nranks gets the number of ranks. */
int ofs_tree_rank(const char *const *name, uint32_t n, uint32_t *rank,
    uint32_t *nranks, struct optimfs_error *err);

/* A node before its place among its siblings is known. Directories come before
 * their contents. */
struct ofs_tree_draft {
	const char *name;
	uint32_t parent; /* index of a draft; 0 for the root */
	uint32_t key;
	uint32_t entry;
};

/* order[0..n) are the drafts of one directory, sorted by name. Drafts with a
 * name that is taken get "~2", "~3"; then order is sorted again. */
int ofs_tree_collide(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct ofs_tree_draft *draft, uint32_t *order, uint32_t n,
    struct optimfs_error *err);

#endif
