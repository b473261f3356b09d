/* ops_file.c - open files and reads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/memory.h"
#include "fuse/ops_internal.h"

static void put_handle(struct ofs_handle *h)
{
	if (atomic_fetch_sub(&h->users, 1) != 1)
		return;
	optimfs_file_close(h->file);
	free(h);
}

/* A read that was answered early may still be running. */
void ofs_op_close(struct ofs_session *s, struct ofs_handle *h)
{
	pthread_mutex_lock(&s->lock);
	*h->back = h->next;
	if (h->next != NULL)
		h->next->back = h->back;
	pthread_mutex_unlock(&s->lock);
	ofs_assemble_release(s->assemble, &h->mode, atomic_load(&h->served));
	if (h->ahead)
		ofs_ahead_release(s->ahead, h->mode.node);
	put_handle(h);
}

static void keep_handle(struct ofs_session *s, struct ofs_handle *h)
{
	atomic_init(&h->users, 1);
	pthread_mutex_lock(&s->lock);
	h->back = &s->handles;
	h->next = s->handles;
	if (h->next != NULL)
		h->next->back = &h->next;
	s->handles = h;
	pthread_mutex_unlock(&s->lock);
}

void ofs_ops_close_all(struct ofs_session *s)
{
	while (s->handles != NULL)
		ofs_op_close(s, s->handles);
}

/* Bypass the page cache? For small files, files that may change without the
 * kernel, and files opened for writing only. */
static bool bypasses(const struct ofs_session *s,
    const struct optimfs_attr *attr, const struct fuse_file_info *fi)
{
	return s->direct || !attr->exact || attr->shared ||
	    (fi->flags & O_ACCMODE) == O_WRONLY;
}

/* --- the next file ------------------------------------------------------------ */

static struct optimfs_file *open_next(void *ctx, uint64_t node, uint64_t min)
{
	struct ofs_session *s = ctx;
	struct optimfs_file *file = NULL;
	struct optimfs_attr attr;
	struct optimfs_error err;

	if (optimfs_getattr(s->fs, node, &attr, &err) == -1 ||
	    !S_ISREG(attr.mode) || !attr.exact || attr.shared ||
	    attr.size <= min ||
	    optimfs_file_open(s->fs, node, &file, &err) == -1)
		return NULL;
	return file;
}

static bool is_over(void *ctx)
{
	struct ofs_session *s = ctx;

	return fuse_session_exited(s->se) != 0;
}

/* After the reply, while the process reads what it has opened. This thread
 * counts as blocked, so that others are started if it takes long. */
static void gather_next(struct ofs_session *s,
    const struct ofs_assemble_open *mode)
{
	const struct ofs_assemble_next next = { open_next, is_over, s };
	void *scratch = ofs_op_buffer();
	struct ofs_pending p;

	if (scratch == NULL)
		return;
	ofs_pending_hold(&p, s->watch, NULL, mode->node);
	ofs_assemble_ahead(s->assemble, mode, &next, scratch);
	ofs_pending_end(&p);
}

/* --- opening ------------------------------------------------------------------ */

struct ofs_handle *ofs_op_open_rw(fuse_req_t req, uint64_t node, bool truncate,
    struct fuse_file_info *fi, struct optimfs_error *err)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_handle *h = ofs_alloc(1, sizeof(*h), err);
	struct optimfs_attr attr;

	if (h == NULL)
		return NULL;
	if (optimfs_file_open_write(s->fs, node, truncate, &h->file, err) ==
	    -1) {
		free(h);
		return NULL;
	}
	keep_handle(s, h);
	if (optimfs_getattr(s->fs, node, &attr, err) == -1) {
		ofs_op_close(s, h);
		return NULL;
	}
	fi->direct_io = bypasses(s, &attr, fi);
	fi->keep_cache = 0;
	fi->fh = (uintptr_t)h;
	return h;
}

/* Opens the node of mode and decides how it is read; sets the flags in fi.
 * NULL: err. */
static struct ofs_handle *open_handle(struct ofs_session *s,
    const struct ofs_assemble_open *mode, struct ofs_pending *pending,
    struct fuse_file_info *fi, struct optimfs_error *err)
{
	struct ofs_handle *h = calloc(1, sizeof(*h));
	void *scratch = ofs_op_buffer();
	struct optimfs_attr attr;

	if (h == NULL || scratch == NULL) {
		free(h);
		ofs_no_memory(err);
		return NULL;
	}
	if (optimfs_file_open(s->fs, mode->node, &h->file, err) == -1) {
		free(h);
		return NULL;
	}
	keep_handle(s, h);
	h->mode = *mode;
	h->mode.size = optimfs_file_size(h->file);
	if (optimfs_getattr(s->fs, mode->node, &attr, err) == -1)
		goto fail;
	/* a file whose size is still unknown changes between reads */
	fi->direct_io = bypasses(s, &attr, fi);
	fi->keep_cache = !fi->direct_io && optimfs_changes(s->fs) == 0;
	if (!fi->direct_io &&
	    ofs_assemble_open(s->assemble, &h->mode, h->file, scratch, pending,
		err) == -1)
		goto fail;
	if (fi->keep_cache && !h->mode.counted)
		h->ahead = ofs_ahead_open(s->ahead, mode->node, h->mode.size,
		    h->file, scratch);
	fi->fh = (uintptr_t)h;
	return h;
fail:
	ofs_op_close(s, h);
	return NULL;
}

static void open_rw(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	struct ofs_pending p;
	struct ofs_handle *h;

	ofs_pending_hold(&p, s->watch, req, node);
	h = ofs_op_open_rw(req, node, (fi->flags & O_TRUNC) != 0, fi, &err);
	ofs_pending_end(&p);
	if (h == NULL)
		fuse_reply_err(req, ofs_op_code(&err));
	else if (fuse_reply_open(req, fi) != 0)
		ofs_op_close(s, h);
}

void ofs_op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_assemble_open mode = {
		.node = node,
		.pid = fuse_req_ctx(req)->pid,
	};
	struct ofs_pending pending;
	struct optimfs_error err;
	struct ofs_handle *h;
	int ret;

	ofs_op_count(&s->count.open);
	if (!ofs_op_may_open(req, node)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0) {
		open_rw(req, node, fi);
		return;
	}
	if (!ofs_pending_begin(&pending, s->watch, req, node)) {
		fuse_reply_err(req, EINTR);
		return;
	}
	h = open_handle(s, &mode, &pending, fi, &err);
	if (!ofs_pending_end(&pending)) {
		if (h != NULL)
			ofs_op_close(s, h);
		return;
	}
	if (h == NULL) {
		ofs_op_fail(req, &err);
		return;
	}
	mode = h->mode;
	ret = h->mode.id != 0 ? ofs_passthrough_reply_open(req, fi, h->mode.id)
			      : fuse_reply_open(req, fi);
	if (ret != 0) /* interrupted: the kernel sends no release */
		ofs_op_close(s, h);
	else if (mode.onward && s->ahead_of_opens)
		gather_next(s, &mode);
}

void ofs_op_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)node;
	ofs_op_close(ofs_op_session(req), ofs_op_handle(fi));
	fuse_reply_err(req, 0);
}

/* Reads all whole pages before the first bad byte, as long as somebody waits. For
 * readers with direct I/O; through the page cache the kernel asks again page by
 * page. */
static ssize_t read_good(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct ofs_pending *pending, struct optimfs_error *err)
{
	ssize_t good = -1;

	for (len /= 2; len >= 4096 && good == -1 && !ofs_pending_gone(pending);
	     len /= 2)
		good = optimfs_file_read(file, buf, len, off, err);
	return good;
}

static void reply_read(fuse_req_t req, struct ofs_handle *h, const char *buf,
    ssize_t n, const struct optimfs_error *err)
{
	struct ofs_session *s = ofs_op_session(req);

	if (n == -1) {
		ofs_op_fail(req, err);
		return;
	}
	atomic_fetch_add_explicit(&h->served, (uint64_t)n,
	    memory_order_relaxed);
	atomic_fetch_add_explicit(&s->count.read_bytes, (uint64_t)n,
	    memory_order_relaxed);
	fuse_reply_buf(req, buf, (size_t)n);
}

void ofs_op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
    struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_handle *h = ofs_op_handle(fi);
	char *buf = ofs_op_buffer();
	struct ofs_pending pending;
	struct optimfs_error err;
	ssize_t n;

	ofs_op_count(&s->count.read);
	if (buf == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (size > OFS_MAX_READ)
		size = OFS_MAX_READ;
	atomic_fetch_add(&h->users, 1);
	if (ofs_pending_begin(&pending, s->watch, req, node)) {
		n = optimfs_file_read(h->file, buf, size, (uint64_t)off, &err);
		if (n == -1 && s->direct)
			n = read_good(h->file, buf, size, (uint64_t)off,
			    &pending, &err);
		if (ofs_pending_end(&pending))
			reply_read(req, h, buf, n, &err);
	} else {
		fuse_reply_err(req, EINTR);
	}
	put_handle(h);
}
