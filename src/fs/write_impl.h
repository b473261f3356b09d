/* write_impl.h - what the calls that change something ask first */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WRITE_IMPL_H
#define OFS_FS_WRITE_IMPL_H

#include "fs/overlay_nodes.h"
#include "fs/write_open.h"
#include "overlay/overlay_impl.h"

/* Is it mounted for writing? EROFS. */
int ofs_may_write(const struct optimfs *fs, struct optimfs_error *err);
/* EPERM (OFS814), always. */
int ofs_not_writable(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
/* ESTALE (OFS835), always: why what was committed is not shown. */
int ofs_not_shown(const struct optimfs_error *why, struct optimfs_error *err);
/* Where a node is that may be changed: of the tree, or of npy/. EROFS, ESTALE
 * (OFS835), EPERM (OFS814). */
int ofs_writable_at(struct ofs_snapshot *snap, uint64_t node, struct ofs_at *at,
    struct optimfs_error *err);
/* The same of a directory: ENOTDIR. */
int ofs_writable_dir(struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err);
/* As the public calls, from inside. */
int ofs_file_open_write(struct ofs_snapshot *snap, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err);
int ofs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);
int ofs_file_flush(struct optimfs_file *file, struct optimfs_error *err);
/* The file is open for writing. */
int ofs_overlay_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);

#endif
