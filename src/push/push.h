/* push.h - the first commit of a new checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_H
#define OFS_PUSH_H

#include "fs/fs.h"

/* The commit writes what was copied into the mount to a directory in the layout
 * of the template, and makes it the checkpoint. 0: done; 1: done, but may not
 * survive a power failure (OFS803); -1: nothing has changed. */
extern const struct ofs_filling_ops ofs_push_ops;
/* Cleans up after an interrupted commit. published: finishes it; otherwise what is
 * staged remains. */
void ofs_push_settle(struct ofs_stage *st, bool published);

/* check.c */
/* Does the new checkpoint at path have what was written? A layout may store one
 * value for several names, or only the optimizer's copy of a weight. EINVAL
 * (OFS822, OFS828) with both values. view has its files. The stop function of watch
 * is called. */
int ofs_push_check(struct ofs_snapshot *snap, struct ofs_at view,
    const char *path, const struct optimfs_watch *watch,
    struct optimfs_error *err);

#endif
