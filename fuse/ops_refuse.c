/* ops_refuse.c - everything that would change a read-only tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "fuse/ops_internal.h"

/* A read-only mount is EROFS before it comes to us; these are for one that
 * somebody has remounted rw. */

void ofs_op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr,
    int to_set, struct fuse_file_info *fi)
{
	(void)node, (void)attr, (void)to_set, (void)fi;
	fuse_reply_err(req, EROFS);
}

void ofs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

void ofs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

void ofs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

void ofs_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
    const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

void ofs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
    fuse_ino_t newparent, const char *newname, unsigned flags)
{
	(void)parent, (void)name, (void)newparent, (void)newname, (void)flags;
	fuse_reply_err(req, EROFS);
}

void ofs_op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t newparent,
    const char *newname)
{
	(void)node, (void)newparent, (void)newname;
	fuse_reply_err(req, EROFS);
}

void ofs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

void ofs_op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name,
    const char *value, size_t size, int flags)
{
	(void)node, (void)name, (void)value, (void)size, (void)flags;
	fuse_reply_err(req, EROFS);
}

void ofs_op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name)
{
	(void)node, (void)name;
	fuse_reply_err(req, EROFS);
}
