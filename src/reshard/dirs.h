/* dirs.h - the directories that files of a view lie in */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RESHARD_DIRS_H
#define OFS_RESHARD_DIRS_H

#include "optimfs/error.h"

#include "fs/view.h"

/* Makes the directories of a view in dir, if they do not exist. */
int ofs_view_dirs_make(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct optimfs_error *err);
/* Syncs them, and dir. */
int ofs_view_dirs_sync(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct optimfs_error *err);

#endif
