/* update.h - the update operations of a format */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_UPDATE_H
#define OFS_REWRITE_UPDATE_H

#include <stdbool.h>

#include "optimfs/error.h"

struct ofs_commit;
struct ofs_part;

/* How a commit changes the parts of a format (rewrite/rewrite_impl.h). For a
 * format without this table only bytes of tensors can change, and their files
 * are copied whole. */
struct ofs_update_ops {
	/* Assigns places in new files to the tasks of part and to extents with
	 * changed bytes. *state is passed to the other calls, and freed even if
	 * this fails. */
	int (*begin)(struct ofs_commit *c, const struct ofs_part *part,
	    void **state, struct optimfs_error *err);
	/* Called when all bytes are written: writes the index. May be NULL. */
	int (*end)(void *state, struct optimfs_error *err);
	void (*free)(void *state); /* accepts NULL; NULL: there is no state */
	/* Only changed items are rewritten, not the whole files. */
	bool items;
};

#endif
