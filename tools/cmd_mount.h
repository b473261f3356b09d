/* cmd_mount.h - what mount(8) calls */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_MOUNT_H
#define OFS_TOOLS_CMD_MOUNT_H

/* mount.optimfs CKPT MNT [-sfnv] [-o OPTIONS], as mount(8) calls it. Returns
 * mount(8)'s exit codes. */
int ofs_mount_helper(int argc, char **argv);

#endif
