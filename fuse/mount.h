/* mount.h - check a mount and start its daemon */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_MOUNT_H
#define OFS_FUSE_MOUNT_H

#include "optimfs/error.h"

#include "fuse/opts.h"

/* Mounts source on point. In the foreground: returns after the unmount.
 * Otherwise returns when the mount answers, served by a child process in its
 * own session; or with the child's error. The child does not return. EINVAL
 * (OFS758) and ELOOP (OFS757): unsuitable mount point. */
int ofs_mount(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err);
/* Only the checks before a mount. */
int ofs_mount_check(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err);

#endif
