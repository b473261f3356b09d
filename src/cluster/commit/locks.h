/* locks.h - the ranks of a checkpoint that is to be written */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_LOCKS_H
#define OFS_CLUSTER_COMMIT_LOCKS_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "cluster/group.h"
#include "cluster/manifest.h"

struct ofs_coordinator;
struct ofs_stage;
/* Take the lock of a checkpoint that is to be written, and bring a commit to
 * its end that was interrupted. path is absolute. template gets the path of what
 * is to be read instead, malloc'ed, where path waits for a checkpoint; or NULL.
 * s: of several ranks; NULL. coordinator, which is not looked at without, gets their
 * directories, or NULL where the one at path is all there is. */
typedef struct ofs_stage *ofs_stage_open_fn(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *s,
    char **template, struct ofs_coordinator **coordinator,
    struct optimfs_error *err);
/* Before anybody looks: rank 0 takes the locks of all directories, and finishes
 * or takes back there what was cut short. All ranks call it; fails on all
 * alike. own: why ofs_manifest_new failed, or code 0. */
int ofs_manifest_begin(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_options *options,
    ofs_stage_open_fn *open, const struct optimfs_error *own,
    struct optimfs_error *err);
struct ofs_writing {
	struct ofs_stage *stage;
	char *template; /* beside an empty directory; NULL */
	/* The directories; NULL: all is in one that rank 0 sees, and needs
	 * nobody for that. */
	struct ofs_coordinator *coordinator;
};
void ofs_writing_free(struct ofs_writing *writing);

#endif
