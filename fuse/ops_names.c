/* ops_names.c - creating, removing and renaming; setting attributes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/clock.h"
#include "fuse/ops_internal.h"

/* The kernel answers EROFS for a read-only mount; after a remount with rw the
 * library does. */

/* Changes wait while a commit runs: the loop starts other threads meanwhile. */
static void finish(fuse_req_t req, struct ofs_pending *p, int ret,
    const struct optimfs_error *err)
{
	ofs_pending_end(p);
	fuse_reply_err(req, ret == 0 ? 0 : ofs_op_code(err));
}

static void reply_node(fuse_req_t req, struct ofs_pending *p, int ret,
    const struct optimfs_attr *attr, const struct optimfs_error *err)
{
	struct fuse_entry_param e;

	ofs_pending_end(p);
	if (ret == -1) {
		fuse_reply_err(req, ofs_op_code(err));
		return;
	}
	ofs_op_entry(attr, &e);
	fuse_reply_entry(req, &e);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, bool dir)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_pending p;
	struct optimfs_attr attr;
	struct optimfs_error err;

	ofs_pending_hold(&p, s->watch, req, parent);
	reply_node(req, &p,
	    optimfs_create(s->fs, parent, name, dir, &attr, &err), &attr, &err);
}

void ofs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, dev_t rdev)
{
	(void)rdev;
	if (S_ISREG(mode))
		make(req, parent, name, false);
	else
		fuse_reply_err(req, EPERM);
}

void ofs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode)
{
	(void)mode;
	make(req, parent, name, true);
}

static void take_away(fuse_req_t req, fuse_ino_t parent, const char *name,
    bool dir)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_pending p;
	struct optimfs_error err;

	ofs_pending_hold(&p, s->watch, req, parent);
	finish(req, &p, optimfs_remove(s->fs, parent, name, dir, &err), &err);
}

void ofs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	take_away(req, parent, name, false);
}

void ofs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	take_away(req, parent, name, true);
}

void ofs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
    fuse_ino_t newparent, const char *newname, unsigned flags)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_pending p;
	struct optimfs_error err;

	if ((flags & ~(unsigned)RENAME_NOREPLACE) != 0) {
		fuse_reply_err(req, EINVAL);
		return;
	}
	ofs_pending_hold(&p, s->watch, req, parent);
	finish(req, &p,
	    optimfs_rename(s->fs, parent, name, newparent, newname,
		(flags & RENAME_NOREPLACE) == 0, &err),
	    &err);
}

/* There are only files and directories, without links. */
void ofs_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
    const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, ofs_op_session(req)->rw ? EPERM : EROFS);
}

void ofs_op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t newparent,
    const char *newname)
{
	(void)node, (void)newparent, (void)newname;
	fuse_reply_err(req, ofs_op_session(req)->rw ? EPERM : EROFS);
}

static int64_t mtime_of(const struct stat *attr, int to_set)
{
	return (to_set & FUSE_SET_ATTR_MTIME_NOW) != 0
	    ? ofs_now_ns()
	    : ofs_time_ns(&attr->st_mtim);
}

/* Owner and mode are those of the checkpoint. Setting them has no effect and is
 * no error, because copying programs do it. */
static int change(struct ofs_session *s, fuse_ino_t node,
    const struct stat *attr, int to_set, struct ofs_handle *h,
    struct optimfs_error *err)
{
	uint64_t size = (uint64_t)attr->st_size;
	int ret = 0;

	if (!s->rw)
		return optimfs_fail(err, EROFS, "mounted read-only");
	if ((to_set & FUSE_SET_ATTR_SIZE) != 0)
		ret = h != NULL ? optimfs_file_truncate(h->file, size, err)
				: optimfs_truncate(s->fs, node, size, err);
	if (ret == 0 &&
	    (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0)
		ret =
		    optimfs_set_mtime(s->fs, node, mtime_of(attr, to_set), err);
	return ret;
}

void ofs_op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr,
    int to_set, struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_handle *h = fi == NULL ? NULL : ofs_op_handle(fi);
	struct optimfs_attr now;
	struct optimfs_error err;
	struct ofs_pending p;
	int ret;

	ofs_pending_hold(&p, s->watch, req, node);
	ret = change(s, node, attr, to_set, h, &err);
	ofs_pending_end(&p);
	if (ret == 0)
		ret = optimfs_getattr(s->fs, node, &now, &err);
	if (ret == 0)
		ofs_op_reply_attr(req, &now, h);
	else
		fuse_reply_err(req, ofs_op_code(&err));
}

void ofs_op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name,
    const char *value, size_t size, int flags)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	struct ofs_pending p;

	(void)flags;
	ofs_pending_hold(&p, s->watch, req, node);
	finish(req, &p, optimfs_setxattr(s->fs, node, name, value, size, &err),
	    &err);
}

/* Attributes cannot be removed. */
void ofs_op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name)
{
	(void)node, (void)name;
	fuse_reply_err(req, ofs_op_session(req)->rw ? EPERM : EROFS);
}

void ofs_op_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync,
    struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	struct ofs_pending p;

	(void)datasync, (void)fi;
	ofs_pending_hold(&p, s->watch, req, node);
	finish(req, &p, optimfs_sync(s->fs, &err), &err);
}
