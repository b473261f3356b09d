/* ops_internal.h - declarations shared by the files of ops.h */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_OPS_INTERNAL_H
#define OFS_FUSE_OPS_INTERNAL_H

#include "fuse/ops.h"

/* An open file. */
struct ofs_handle {
	struct ofs_handle *next, **back; /* in the session's handles */
	struct optimfs_file *file;
	struct ofs_assemble_open mode;
	bool ahead; /* counted by ofs_ahead_open */
	atomic_uint_least64_t served;
	atomic_uint users; /* the open, and reads, which may last longer */
};

static inline struct ofs_handle *ofs_op_handle(const struct fuse_file_info *fi)
{
	return (struct ofs_handle *)(uintptr_t)fi->fh;
}

struct ofs_session *ofs_op_session(fuse_req_t req);
void ofs_op_count(atomic_uint_least64_t *n);
/* A buffer of OFS_MAX_READ bytes for each thread; NULL: out of memory. */
void *ofs_op_buffer(void);
/* An errno value that the kernel accepts. */
int ofs_op_code(const struct optimfs_error *err);
/* Replies with an error, which is also recorded in .optimfs/errors. */
void ofs_op_fail(fuse_req_t req, const struct optimfs_error *err);

/* ops.c */
void ofs_op_entry(const struct optimfs_attr *a, struct fuse_entry_param *e);
/* h: the open file, or NULL. */
void ofs_op_reply_attr(fuse_req_t req, const struct optimfs_attr *a,
    const struct ofs_handle *h);

/* ops_access.c */
/* Takes the modes of the source as they are now, for a user who is not that of
 * the mount. True: they have changed, and the kernel may not know. */
bool ofs_op_look(fuse_req_t req, fuse_ino_t node);
/* The kernel has let the caller open the node: may it still? */
bool ofs_op_may_open(fuse_req_t req, fuse_ino_t node);

/* ops_file.c */
/* Opens for writing; sets the flags in fi. NULL: err. */
struct ofs_handle *ofs_op_open_rw(fuse_req_t req, uint64_t node, bool truncate,
    struct fuse_file_info *fi, struct optimfs_error *err);
void ofs_op_close(struct ofs_session *s, struct ofs_handle *h);
void ofs_op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void ofs_op_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void ofs_op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
    struct fuse_file_info *fi);

/* ops_names.c */
void ofs_op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr,
    int to_set, struct fuse_file_info *fi);
void ofs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, dev_t rdev);
void ofs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode);
void ofs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void ofs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void ofs_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
    const char *name);
void ofs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
    fuse_ino_t newparent, const char *newname, unsigned flags);
void ofs_op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t newparent,
    const char *newname);
void ofs_op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name,
    const char *value, size_t size, int flags);
void ofs_op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name);
void ofs_op_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync,
    struct fuse_file_info *fi);

/* ops_write.c */
void ofs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, struct fuse_file_info *fi);
void ofs_op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t size,
    off_t off, struct fuse_file_info *fi);
void ofs_op_flush(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void ofs_op_fsync(fuse_req_t req, fuse_ino_t node, int datasync,
    struct fuse_file_info *fi);

#endif
