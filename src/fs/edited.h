/* edited.h - names and attributes of nodes that a writer has changed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_EDITED_H
#define OFS_FS_EDITED_H

#include "fs/fs.h"
#include "overlay/overlay.h"

/* Indexes are those of tree nodes; added nodes come after the static ones. */

/* Does a node exist that was added, or may be hidden (ofs_overlay_hides)? ESTALE: an
 * abort removed it, or hid it again, but the kernel still knows its name. */
int ofs_edited_has(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
/* Would an abort change its name? */
bool ofs_edited_moves(const struct ofs_snapshot *snap, uint32_t index);
bool ofs_edited_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* 1: found; 0: no such name. */
int ofs_edited_lookup(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err);
/* Lists the children of a directory in the order of position: those of the
 * checkpoint by name, then the added ones in the order of creation. */
typedef int ofs_edited_list_fn(void *ctx, struct ofs_at at, const char *name,
    uint64_t position);
int ofs_edited_list(struct ofs_snapshot *snap, struct ofs_at dir,
    uint64_t start, ofs_edited_list_fn *each, void *ctx,
    struct optimfs_error *err);
/* The path below the mount point, with the mirror; false: it has none. */
bool ofs_edited_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char *path, size_t size);
uint64_t ofs_edited_ino(const struct ofs_snapshot *snap, struct ofs_at at);
/* Sets all attributes of an added node, and the changed ones of another. */
int ofs_edited_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err);

#endif
