/* mountinfo.h - find mounts */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_MOUNTINFO_H
#define OFS_FUSE_MOUNTINFO_H

#include <stdbool.h>

#include "optimfs/error.h"

struct ofs_mountinfo {
	char *point, *type, *source;
	unsigned major, minor; /* device number of the file system */
	bool rw;
};

/* The topmost mount at exactly this path, which has no symbolic links. The path
 * is not looked up, so a dead mount does no harm. false: none, or no /proc;
 * then m is empty. */
bool ofs_mountinfo_find(const char *point, struct ofs_mountinfo *m);
/* Is that mount still there, and not another one at its place, which may have got
 * its device number? */
bool ofs_mountinfo_still(const struct ofs_mountinfo *m);
void ofs_mountinfo_fini(struct ofs_mountinfo *m);
/* Where optimfs has mounted source, a path without symbolic links, or something in
 * it; malloc'ed. NULL: nowhere in this mount name space. */
char *ofs_mountinfo_shows(const char *source);

/* Resolves symbolic links, "." and "..". Only the parent is looked up, because
 * the last component may be a dead mount. malloc'ed; NULL sets err. */
char *ofs_mount_point_path(const char *path, struct optimfs_error *err);

#endif
