/* remove.h - replace a checkpoint of a run by a smaller one */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_REMOVE_H
#define OFS_RUN_REMOVE_H

#include "optimfs/run.h"

/* Has make make another checkpoint at the path new, in a stage beside the one at
 * old; then exchanges the two by one rename, looks at the old one once more, as
 * optimfs_run_remove does, and deletes it. Until the rename the new one is what
 * optimfs_run_sweep deletes, from then on it is the old one. make NULL: nothing
 * takes the place of the old one. */
int ofs_run_replace(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *w,
    int (*make)(void *ctx, const char *old, const char *new,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err);

#endif
