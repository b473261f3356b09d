/* cmd_mount.h - the mount.optimfs program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_MOUNT_H
#define OFS_TOOLS_CMD_MOUNT_H

/* mount.optimfs CKPT MNT [-sfnv] [-o OPTIONS], called by mount(8). Returns its
 * exit codes. */
int ofs_mount_helper(int argc, char **argv);

#endif
