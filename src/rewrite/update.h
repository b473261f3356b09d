/* update.h - the update operations of a format */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_UPDATE_H
#define OFS_REWRITE_UPDATE_H

#include "optimfs/error.h"

struct ofs_commit;
struct ofs_part;

/* How a commit changes the parts of a format (rewrite/rewrite_impl.h). Without
 * this table only bytes of tensors can change. Their files, and those that no
 * format has laid out, are copied whole. */
struct ofs_update_ops {
	/* Adds the new files of part, with its tasks and, in files that it
	 * lays out, the extents with changed bytes (rewrite/files.h). *state is
	 * passed to the other calls, and freed even if this fails. */
	int (*begin)(struct ofs_commit *c, const struct ofs_part *part,
	    void **state, struct optimfs_error *err);
	/* Called when these are written: adds the index. May be NULL. */
	int (*end)(void *state, struct optimfs_error *err);
	void (*free)(void *state); /* accepts NULL; NULL: there is no state */
};

#endif
