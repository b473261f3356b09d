/* commit.h - what was changed in an opened checkpoint is published */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_COMMIT_H
#define OFS_FS_COMMIT_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "overlay/overlay.h"

struct optimfs;

/* ofs_commit_run (rewrite/commit.h) for the checkpoint that fs was opened from,
 * with these changes. stage is the staging directory beside it. */
int ofs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err);

/* Commit what fs->overlay holds, and forget it. */
int ofs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err);

#endif
