/* write_open.h - open files with staged bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WRITE_OPEN_H
#define OFS_FS_WRITE_OPEN_H

#include "fs/fs.h"
#include "overlay/overlay.h"

/* The staged bytes of a tensor, as seen by an open file; for the file's own
 * node these are file->staged. NULL: nothing is staged. */
struct ofs_overlay_file *ofs_file_staged(const struct optimfs_file *file,
    uint32_t tensor);
/* For a tensor that has grown: reads bytes past the end of the stored tensor,
 * from off of the file on. */
int ofs_file_read_behind(const struct optimfs_file *file, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);
/* Opening an added file, and any file for writing; reading them; their current
 * size. */
int ofs_file_open_made(struct optimfs_file *file, struct optimfs_error *err);
int ofs_file_begin_write(struct optimfs_file *file, bool truncate,
    struct optimfs_error *err);
ssize_t ofs_file_read_staged(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
bool ofs_file_staged_size(const struct optimfs_file *file, uint64_t *size);
void ofs_file_close_staged(struct optimfs_file *file);
/* Tells who makes a new checkpoint if this node has become a whole tensor. */
void ofs_tell_whole(struct ofs_snapshot *snap, uint32_t node);

#endif
