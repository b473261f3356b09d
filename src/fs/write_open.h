/* write_open.h - open files that a writer has made, or writes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_WRITE_OPEN_H
#define OFS_FS_WRITE_OPEN_H

#include "fs/fs.h"
#include "overlay/overlay.h"

/* The staged bytes that elements of a tensor are read with. file is who reads:
 * its own node's; NULL where nothing is staged. */
struct ofs_overlay_file *ofs_overlay_staged(const struct optimfs_file *file,
    uint32_t tensor);
/* Of a tensor that became longer than the checkpoint has it: bytes from off of
 * the file on, all of them behind its own. */
int ofs_overlay_read_behind(const struct optimfs_file *file, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);
/* Open files. Made ones; any for writing; reading those; how long one is now. */
int ofs_overlay_open_made(struct optimfs_file *file, struct optimfs_error *err);
int ofs_overlay_open_write(struct optimfs_file *file, bool truncate,
    struct optimfs_error *err);
ssize_t ofs_overlay_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
bool ofs_overlay_size(const struct optimfs_file *file, uint64_t *size);
void ofs_overlay_close(struct optimfs_file *file);

#endif
