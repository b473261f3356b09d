/* overlay_nodes.h - names and attributes of an edited tree, and of its npy */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_OVERLAY_NODES_H
#define OFS_FS_OVERLAY_NODES_H

#include "fs/fs.h"
#include "overlay/overlay.h"

/* index is a node's in the tree; those that were made come behind the static
 * ones. */

/* Is there such a node? ESTALE: an abort took it away. */
int ofs_overlay_has(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err);
/* Would an abort take its name away? */
bool ofs_overlay_moves(const struct ofs_snapshot *snap, uint32_t index);
bool ofs_overlay_at_is_dir(const struct ofs_snapshot *snap, struct ofs_at at);
/* 1: there it is; 0: nothing is called so. */
int ofs_overlay_lookup(struct ofs_snapshot *snap, struct ofs_at dir,
    const char *name, struct ofs_at *at, struct optimfs_error *err);
/* Children of a directory that may have been edited, in the order of position:
 * those of the checkpoint by name, then the others as they came. */
typedef int ofs_overlay_list_fn(void *ctx, struct ofs_at at, const char *name,
    uint64_t position);
int ofs_overlay_list(struct ofs_snapshot *snap, struct ofs_at dir,
    uint64_t start, ofs_overlay_list_fn *each, void *ctx,
    struct optimfs_error *err);
/* Its path below the mount point, mirrors included; false: it has none. */
bool ofs_overlay_at_path(const struct ofs_snapshot *snap, struct ofs_at at,
    char *path, size_t size);
uint64_t ofs_overlay_ino(const struct ofs_snapshot *snap, struct ofs_at at);
/* All of what a made node has; what differs of another. */
int ofs_overlay_attr(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_attr *attr, struct optimfs_error *err);

#endif
