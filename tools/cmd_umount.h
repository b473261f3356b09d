/* cmd_umount.h - the umount.fuse.optimfs program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_CMD_UMOUNT_H
#define OFS_TOOLS_CMD_UMOUNT_H

/* umount.fuse.optimfs MNT [-flnrv] [-t TYPE], called by umount(8). Returns its
 * exit codes. */
int ofs_umount_helper(int argc, char **argv);

#endif
