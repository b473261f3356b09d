/* ops_write.c - writing files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>

#include "fuse/ops_internal.h"

/* Write-through: the kernel does not delay writes, so that the result of
 * write(2) is about these bytes. None of these requests is answered early. */

void ofs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct fuse_entry_param e;
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct ofs_pending p;
	struct ofs_handle *h = NULL;

	(void)mode;
	ofs_op_count(&s->count.open);
	ofs_pending_hold(&p, s->watch, req, parent);
	if (optimfs_create(s->fs, parent, name, false, &attr, &err) == 0)
		h = ofs_op_open_rw(req, attr.node, false, fi, &err);
	ofs_pending_end(&p);
	if (h == NULL) {
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	}
	ofs_op_entry(&attr, &e);
	if (fuse_reply_create(req, &e, fi) != 0)
		ofs_op_close(s, h);
}

/* Was the command cancelled by its process? */
static bool taken_back(void *ctx)
{
	return fuse_req_interrupted(ctx) != 0;
}

void ofs_op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t size,
    off_t off, struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_handle *h = ofs_op_handle(fi);
	struct optimfs_error err;
	struct ofs_pending p;
	int ret;

	ofs_op_count(&s->count.write);
	ofs_pending_hold(&p, s->watch, req, node);
	ret = optimfs_file_is_control(h->file)
	    ? optimfs_control(s->fs, buf, size, taken_back, req, &err)
	    : optimfs_file_write(h->file, buf, size, (uint64_t)off, &err);
	ofs_pending_end(&p);
	if (ret == -1) {
		ofs_op_count(&s->count.failed);
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	}
	atomic_fetch_add_explicit(&s->count.write_bytes, size,
	    memory_order_relaxed);
	fuse_reply_write(req, size);
}

static void settle(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi,
    int (*fn)(struct optimfs_file *file, struct optimfs_error *err))
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	struct ofs_pending p;
	int ret;

	ofs_pending_hold(&p, s->watch, req, node);
	ret = fn(ofs_op_handle(fi)->file, &err);
	ofs_pending_end(&p);
	fuse_reply_err(req, ret == 0 ? 0 : ofs_op_code(&err));
}

/* On read-only mounts the kernel need not send flush: one of the four requests
 * for reading a small file. */
void ofs_op_flush(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	if (!ofs_op_session(req)->rw) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	settle(req, node, fi, optimfs_file_flush);
}

void ofs_op_fsync(fuse_req_t req, fuse_ino_t node, int datasync,
    struct fuse_file_info *fi)
{
	(void)datasync;
	settle(req, node, fi, optimfs_file_sync);
}
