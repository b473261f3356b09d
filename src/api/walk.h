/* walk.h - everything below a directory of the tree, in sorted order */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_API_WALK_H
#define OFS_API_WALK_H

#include "optimfs/optimfs.h"

/* One file or directory met on the way. path is below the starting point,
 * borrowed for the call; "" is the starting point itself. */
struct ofs_walk_entry {
	const char *path;
	const char *name; /* its last component */
	struct optimfs_attr attr;
};
typedef int ofs_walk_fn(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err);

/* Call each for the entries of dir, for a directory before what is in it;
 * depth 1 is dir's own entries only, 0 everything. Stops when each returns -1.
 * Memory is that of one directory's listing a level. */
int ofs_walk(struct optimfs *fs, uint64_t dir, unsigned depth,
    ofs_walk_fn *each, void *ctx, struct optimfs_error *err);

#endif
