/* mountinfo.h - what is mounted where */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_MOUNTINFO_H
#define OFS_FUSE_MOUNTINFO_H

#include <stdbool.h>
#include <sys/types.h>

#include "optimfs/error.h"

struct ofs_mountinfo {
	char *point, *type, *source;
	unsigned major, minor; /* of the file system's device number */
	bool rw;
};

/* The topmost mount at exactly this path, which has no links in it; it is
 * not looked up, so that a dead mount does no harm. false: none, or /proc
 * is not there. Then m holds nothing. */
bool ofs_mountinfo_find(const char *point, struct ofs_mountinfo *m);
void ofs_mountinfo_fini(struct ofs_mountinfo *m);

/* path without links, "." and "..", where its last component may be a dead
 * mount: only its parent is looked up then. malloc'ed; NULL sets err. */
char *ofs_mount_point_path(const char *path, struct optimfs_error *err);

#endif
