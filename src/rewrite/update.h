/* update.h - what a format does in a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_UPDATE_H
#define OFS_REWRITE_UPDATE_H

#include <stdbool.h>

#include "optimfs/error.h"

struct ofs_commit;
struct ofs_part;

/* How a format's parts take changes (rewrite/rewrite_impl.h). Without such a
 * table only bytes of tensors can change, and their files are copied whole. */
struct ofs_update_ops {
	/* Give the tasks that belong to part, and the extents with changed
	 * bytes, places in new files. *state is for the others, and is freed
	 * whatever this returns. */
	int (*begin)(struct ofs_commit *c, const struct ofs_part *part,
	    void **state, struct optimfs_error *err);
	/* All bytes are there: write what says where. NULL: there is no such.
	 */
	int (*end)(void *state, struct optimfs_error *err);
	void (*free)(void *state); /* of NULL, too; NULL: there is no state */
	/* Only items that change get new bytes, not the files they are in. */
	bool items;
};

#endif
