/* write_impl.h - checks that precede every change */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WRITE_IMPL_H
#define OFS_FS_WRITE_IMPL_H

#include "fs/edited.h"
#include "fs/write_open.h"
#include "overlay/overlay_impl.h"

/* EROFS unless mounted for writing. */
int ofs_may_write(const struct optimfs *fs, struct optimfs_error *err);
/* Always fails with EPERM (OFS814). */
int ofs_not_writable(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
/* Always fails with ESTALE (OFS835): the committed state cannot be shown
 * because of why. */
int ofs_not_shown(const struct optimfs_error *why, struct optimfs_error *err);
/* The location of a node that may be changed: in the tree or in npy/. EROFS,
 * ESTALE (OFS835), EPERM (OFS814). */
int ofs_writable_at(struct ofs_snapshot *snap, uint64_t node, struct ofs_at *at,
    struct optimfs_error *err);
/* As above, for a directory: ENOTDIR. */
int ofs_writable_dir(struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err);
/* As the public calls, on a snapshot. */
int ofs_file_open_write(struct ofs_snapshot *snap, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err);
int ofs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);
int ofs_file_flush(struct optimfs_file *file, struct optimfs_error *err);
/* The file must be open for writing. */
int ofs_file_resize(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);

#endif
