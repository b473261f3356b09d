/* unmount.h - take a mount away */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_UNMOUNT_H
#define OFS_FUSE_UNMOUNT_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "fuse/mountinfo.h"

/* Unmount point; lazy: at once, whoever still uses it. Where we lack the
 * right, fusermount3 does it. EBUSY and so on. */
int ofs_unmount(const char *point, bool lazy, struct optimfs_error *err);
/* End the connection of a mount: whoever waits for it gets an error. -1 where
 * neither the control file system nor the right to force it is there. */
int ofs_connection_abort(const struct ofs_mountinfo *m,
    struct optimfs_error *err);

#endif
