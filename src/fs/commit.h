/* commit.h - publish the changes of an opened checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_COMMIT_H
#define OFS_FS_COMMIT_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "overlay/overlay.h"

struct ofs_commit_job;
struct ofs_snapshot;
struct optimfs;

/* Runs ofs_commit_run (rewrite/commit.h) with these changes for the checkpoint
 * that fs was opened from. stage is the open staging directory beside it. */
int ofs_fs_commit_changes(struct optimfs *fs, const struct ofs_changes *changes,
    int stage, bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err);

/* Calls lay with what a commit of the changes that are staged now would work on,
 * as in struct ofs_render. EBUSY (OFS815) during a commit. ENOENT (OFS771): the
 * checkpoint has no files, or none yet. */
int ofs_fs_lay_commit(struct ofs_snapshot *snap,
    int (*lay)(void *arg, const struct ofs_commit_job *job,
	struct ofs_changes *changes, struct optimfs_error *err),
    void *arg, struct optimfs_error *err);

/* As struct ofs_filling_ops.commit, for the changes of a checkpoint. */
int ofs_fs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err);

#endif
