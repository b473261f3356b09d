/* commit.h - what a writer changed becomes the checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_COMMIT_H
#define OFS_REWRITE_COMMIT_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "overlay/overlay.h"

struct optimfs;

/* Make a new generation of the checkpoint that fs was opened from, with all
 * changes, and publish it (docs/architecture.md, "Commit"). stage is the
 * staging directory beside the checkpoint. 0: done and safe; 1: published, but
 * not known to be safe (err, OFS803); -1: nothing has changed. Before anything
 * is written all changes are looked at, and the first that the format has no
 * place for is named (OFS826). What fs shows is the old generation, which may
 * be gone from the disk. */
int ofs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err);

/* Commit what fs->edit holds, and let go of it. stop, which may be NULL, is
 * asked now and then until the point of no return (ECANCELED). */
int ofs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err);

#endif
