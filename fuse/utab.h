/* utab.h - what umount(8) has to know of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_UTAB_H
#define OFS_FUSE_UTAB_H

#include <stdbool.h>

/* util-linux keeps options of mounts that the kernel does not know in
 * /run/mount/utab. As root, umount(8) takes the type of a mount that has no
 * line there from statfs(2): "fuse", which has no helper. With a line it finds
 * the type fuse.optimfs and the helper umount.fuse.optimfs. */

/* Adds a line for a mount, if the helper is installed and this process has
 * permission. */
void ofs_utab_add(const char *source, const char *point);
/* Has point a line, with that source unless NULL? */
bool ofs_utab_has(const char *source, const char *point);
/* Unmounts point, which has a line, and removes that; lazy: even if in use. */
bool ofs_utab_unmount(const char *point, bool lazy);

#endif
