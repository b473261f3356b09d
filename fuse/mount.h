/* mount.h - check a mount that is wanted, and start its daemon */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_MOUNT_H
#define OFS_FUSE_MOUNT_H

#include "optimfs/error.h"

#include "fuse/opts.h"

/* Mount source on point. In the foreground: returns when it was unmounted.
 * Else returns when the mount answers, served by a child process of its own
 * session; or with the child's error. The child itself never returns. EINVAL
 * (OFS758) and ELOOP (OFS757) for a mount point that will not do. */
int ofs_mount(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err);
/* Only the checks that come first. */
int ofs_mount_check(const char *source, const char *point,
    const struct ofs_mount_options *options, struct optimfs_error *err);

#endif
