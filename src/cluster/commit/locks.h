/* locks.h - lock a checkpoint of several ranks for writing */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_LOCKS_H
#define OFS_CLUSTER_COMMIT_LOCKS_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "cluster/group.h"
#include "cluster/manifest.h"

struct ofs_coordinator;
struct ofs_stage;
/* Takes the lock of a checkpoint for writing and completes an interrupted
 * commit. path is absolute. *template: path waits for its first commit. s: the
 * manifest with several ranks, or NULL. *coordinator (used only with s) gets
 * the directories, or NULL if path is the only one. */
typedef struct ofs_stage *ofs_stage_open_fn(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *s,
    bool *template, struct ofs_coordinator **coordinator,
    struct optimfs_error *err);
/* Before the files are listed: rank 0 takes the locks of all directories, and
 * finishes or reverts interrupted commits. Collective; fails on all ranks
 * alike. own: the error of ofs_manifest_new, or code 0. */
int ofs_manifest_begin(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_options *options,
    ofs_stage_open_fn *open, const struct optimfs_error *own,
    struct optimfs_error *err);
struct ofs_writing {
	struct ofs_stage *stage;
	bool template; /* of an empty directory */
	/* The directories; NULL: a single one that rank 0 sees, which needs no
	 * other rank. */
	struct ofs_coordinator *coordinator;
};
void ofs_writing_free(struct ofs_writing *writing);

#endif
