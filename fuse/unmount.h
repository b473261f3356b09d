/* unmount.h - unmount a mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_UNMOUNT_H
#define OFS_FUSE_UNMOUNT_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "fuse/mountinfo.h"

/* Unmounts point; lazy: at once, even if in use. Without the privilege,
 * fusermount3 does it. EBUSY and others. */
int ofs_unmount(const char *point, bool lazy, struct optimfs_error *err);
/* Aborts the connection of a mount: waiting processes get an error. -1: neither
 * the control file system nor the privilege to force it is available. */
int ofs_connection_abort(const struct ofs_mountinfo *m,
    struct optimfs_error *err);

#endif
