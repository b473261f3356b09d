/* walk.h - walk a directory of the tree in sorted order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WALK_H
#define OFS_FS_WALK_H

#include "optimfs/optimfs.h"

/* A file or directory. path is relative to the starting point ("" for itself)
 * and valid during the call. */
struct ofs_walk_entry {
	const char *path;
	const char *name; /* last component */
	struct optimfs_attr attr;
};
typedef int ofs_walk_fn(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err);

/* Calls each for dir and everything below it, directories before their
 * contents. depth 1: only the entries of dir; 0: everything. Stops when each
 * returns -1. Memory: the listing of one directory per level. */
int ofs_walk(struct optimfs *fs, uint64_t dir, unsigned depth,
    ofs_walk_fn *each, void *ctx, struct optimfs_error *err);

/* The same in natural order (base/natural.h), as people want to read it. Memory:
 * all paths. */
int ofs_walk_sorted(struct optimfs *fs, uint64_t dir, unsigned depth,
    ofs_walk_fn *each, void *ctx, struct optimfs_error *err);

/* The attribute user.optimfs.NAME, malloc'ed; NULL: absent, or out of memory,
 * which sets *no_memory (never cleared; may be NULL). */
char *ofs_attribute(struct optimfs *fs, uint64_t node, const char *name,
    bool *no_memory);

#endif
