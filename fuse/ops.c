/* ops.c - the kernel's calls, each turned into one of the library */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Nothing changes below a mount, so the kernel need not ask twice. */
#define FOREVER 1e9
/* What stat(2) calls the best size for I/O: python reads text in units of it,
 * cp at least as much. */
#define BLOCK_SIZE (128 * 1024)
/* Largest value the kernel takes, XATTR_SIZE_MAX. */
#define XATTR_MAX 65536
/* Cookies of a directory: "." and ".." come before the entries. */
#define FIRST_ENTRY 2
#define UNKNOWN_INO 0xffffffffu

static struct ofs_session *session(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static void count(atomic_uint_least64_t *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* An open file. */
struct ofs_handle {
	struct ofs_handle *next, **back; /* in the session's handles */
	struct optimfs_file *file;
	struct ofs_assemble_open mode;
	atomic_uint_least64_t served;
	atomic_uint users; /* open, and reads, which may outlive that */
};

static struct ofs_handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct ofs_handle *)(uintptr_t)fi->fh;
}

/* A buffer of OFS_MAX_READ bytes for each thread; NULL: out of memory. */
static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	if (pthread_key_create(&buffer_key, free) != 0)
		abort();
}

static void *thread_buffer(void)
{
	void *buf;

	pthread_once(&buffer_once, make_key);
	buf = pthread_getspecific(buffer_key);
	if (buf == NULL && posix_memalign(&buf, 4096, OFS_MAX_READ) == 0)
		pthread_setspecific(buffer_key, buf);
	return buf;
}

/* An errno value the kernel takes: it mistrusts others. */
static int code_of(const struct optimfs_error *err)
{
	return err->code > 0 && err->code < 512 ? err->code : EIO;
}

/* A failure that a user should find in .optimfs/errors. */
static void fail(fuse_req_t req, const struct optimfs_error *err)
{
	struct ofs_session *s = session(req);

	count(&s->count.failed);
	optimfs_log_error(s->fs, err);
	fuse_reply_err(req, code_of(err));
}

void ofs_ops_late(struct ofs_session *s, uint64_t node)
{
	struct optimfs_error err;

	count(&s->count.late);
	optimfs_fail(&err, ETIMEDOUT,
	    "OFS760 node %" PRIu64 ": no answer from the source in %u seconds "
	    "(-o timeout=)",
	    node, s->timeout);
	optimfs_log_error(s->fs, &err);
}

static void to_stat(const struct optimfs_attr *a, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = a->ino;
	st->st_mode = a->mode;
	st->st_nlink = a->nlink;
	st->st_uid = a->uid;
	st->st_gid = a->gid;
	st->st_size = (off_t)a->size;
	st->st_blocks = (blkcnt_t)((a->stored + 511) / 512);
	st->st_blksize = BLOCK_SIZE;
	st->st_mtim.tv_sec = a->mtime_ns / 1000000000;
	st->st_mtim.tv_nsec = a->mtime_ns % 1000000000;
	if (st->st_mtim.tv_nsec < 0) {
		st->st_mtim.tv_sec--;
		st->st_mtim.tv_nsec += 1000000000;
	}
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* A size that is not exact is asked for again, once the file is open. */
static double attr_timeout(const struct optimfs_attr *a)
{
	return a->exact ? FOREVER : 0;
}

static void to_entry(const struct optimfs_attr *a, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = a->node,
		.attr_timeout = attr_timeout(a),
		.entry_timeout = FOREVER,
	};
	to_stat(a, &e->attr);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->max_read = OFS_MAX_READ; /* as in the mount's options */
	/* splicing is slower here, and ends files early that shrink */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
	    FUSE_CAP_SPLICE_MOVE);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ofs_session *s = session(req);
	struct fuse_entry_param e = { .entry_timeout = FOREVER };
	struct optimfs_attr attr;
	struct optimfs_error err;

	count(&s->count.lookup);
	if (optimfs_lookup(s->fs, parent, name, &attr, &err) == 0)
		to_entry(&attr, &e);
	else if (err.code != ENOENT) {
		fuse_reply_err(req, code_of(&err));
		return;
	}
	/* no such name: an entry without a node, for the kernel to remember */
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	struct ofs_session *s = session(req);
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct stat st;

	count(&s->count.getattr);
	if (optimfs_getattr(s->fs, node, &attr, &err) == -1) {
		fuse_reply_err(req, code_of(&err));
		return;
	}
	to_stat(&attr, &st);
	if (fi != NULL && S_ISREG(attr.mode))
		st.st_size = (off_t)optimfs_file_size(handle_of(fi)->file);
	fuse_reply_attr(req, &st, attr_timeout(&attr));
}

static void op_access(fuse_req_t req, fuse_ino_t node, int mask)
{
	(void)node;
	fuse_reply_err(req, (mask & 2) != 0 ? EROFS : 0);
}

static void op_opendir(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	(void)node;
	fi->cache_readdir = 1;
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

/* Filling the answer to readdir. */
struct listing {
	fuse_req_t req;
	char *buf;
	size_t len, size;
	bool plus;
};

static int list(struct listing *l, const char *name,
    const struct fuse_entry_param *e, off_t next)
{
	size_t n = l->plus ? fuse_add_direntry_plus(l->req, l->buf + l->len,
				 l->size - l->len, name, e, next)
			   : fuse_add_direntry(l->req, l->buf + l->len,
				 l->size - l->len, name, &e->attr, next);

	if (n > l->size - l->len)
		return 1;
	l->len += n;
	return 0;
}

static int list_entry(void *ctx, const struct optimfs_dirent *d)
{
	struct fuse_entry_param e = { 0 };

	if (d->attr != NULL)
		to_entry(d->attr, &e);
	e.attr.st_ino = d->ino;
	e.attr.st_mode = d->mode;
	if (d->attr != NULL)
		e.attr.st_mode = d->attr->mode;
	return list(ctx, d->name, &e, (off_t)(d->position + 1 + FIRST_ENTRY));
}

/* Of these the kernel wants a name and a number, no node. */
static int list_dots(struct listing *l, uint64_t ino, off_t off)
{
	struct fuse_entry_param e = { .attr = { .st_mode = S_IFDIR } };

	e.attr.st_ino = ino;
	if (off == 0 && list(l, ".", &e, 1) != 0)
		return 1;
	e.attr.st_ino = UNKNOWN_INO;
	return list(l, "..", &e, FIRST_ENTRY);
}

static void read_directory(fuse_req_t req, fuse_ino_t node, size_t size,
    off_t off, bool plus)
{
	struct ofs_session *s = session(req);
	struct listing l = { .req = req, .plus = plus };
	uint64_t start = off > FIRST_ENTRY ? (uint64_t)off - FIRST_ENTRY : 0;
	struct optimfs_attr attr;
	struct optimfs_error err;
	int ret;

	count(&s->count.readdir);
	l.buf = thread_buffer();
	l.size = size < OFS_MAX_READ ? size : OFS_MAX_READ;
	if (l.buf == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	ret = optimfs_getattr(s->fs, node, &attr, &err);
	if (ret == 0 &&
	    (off >= FIRST_ENTRY || list_dots(&l, attr.ino, off) == 0))
		ret = optimfs_readdir(s->fs, node, start, plus, list_entry, &l,
		    &err);
	if (ret == -1)
		fail(req, &err);
	else
		fuse_reply_buf(req, l.buf, l.len);
}

static void op_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
    struct fuse_file_info *fi)
{
	(void)fi;
	read_directory(req, node, size, off, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size,
    off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	read_directory(req, node, size, off, true);
}

static void put_handle(struct ofs_handle *h)
{
	if (atomic_fetch_sub(&h->users, 1) != 1)
		return;
	optimfs_file_close(h->file);
	free(h);
}

/* A read that was answered early may still go on. */
static void close_handle(struct ofs_session *s, struct ofs_handle *h)
{
	pthread_mutex_lock(&s->lock);
	*h->back = h->next;
	if (h->next != NULL)
		h->next->back = h->back;
	pthread_mutex_unlock(&s->lock);
	ofs_assemble_release(s->assemble, &h->mode, atomic_load(&h->served));
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
		close_handle(s, s->handles);
}

/* Open node and decide how it is read; fi gets what the kernel must know.
 * NULL: err. */
static struct ofs_handle *open_handle(fuse_req_t req, uint64_t node,
    struct ofs_pending *pending, struct fuse_file_info *fi,
    struct optimfs_error *err)
{
	struct ofs_session *s = session(req);
	struct ofs_handle *h = calloc(1, sizeof(*h));
	void *scratch = thread_buffer();
	struct optimfs_attr attr;

	if (h == NULL || scratch == NULL) {
		free(h);
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	if (optimfs_file_open(s->fs, node, &h->file, err) == -1) {
		free(h);
		return NULL;
	}
	keep_handle(s, h);
	h->mode.node = node;
	h->mode.size = optimfs_file_size(h->file);
	h->mode.pid = fuse_req_ctx(req)->pid;
	if (optimfs_getattr(s->fs, node, &attr, err) == -1)
		goto fail;
	/* one that is open and still not exact says something else each time */
	fi->direct_io = s->direct || !attr.exact;
	fi->keep_cache = !fi->direct_io;
	if (!fi->direct_io &&
	    ofs_assemble_open(s->assemble, &h->mode, h->file, scratch, pending,
		err) == -1)
		goto fail;
	fi->fh = (uintptr_t)h;
	return h;
fail:
	close_handle(s, h);
	return NULL;
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct ofs_session *s = session(req);
	struct ofs_pending pending;
	struct optimfs_error err;
	struct ofs_handle *h;
	int ret;

	count(&s->count.open);
	if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC) != 0) {
		fuse_reply_err(req, EROFS);
		return;
	}
	if (!ofs_pending_begin(&pending, s->watch, req, node)) {
		fuse_reply_err(req, EINTR);
		return;
	}
	h = open_handle(req, node, &pending, fi, &err);
	if (!ofs_pending_end(&pending)) {
		if (h != NULL)
			close_handle(s, h);
		return;
	}
	if (h == NULL) {
		fail(req, &err);
		return;
	}
	ret = h->mode.id != 0 ? ofs_passthrough_reply_open(req, fi, h->mode.id)
			      : fuse_reply_open(req, fi);
	if (ret != 0) /* interrupted: there will be no release */
		close_handle(s, h);
}

static void op_release(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	(void)node;
	close_handle(session(req), handle_of(fi));
	fuse_reply_err(req, 0);
}

/* All that is good before the first bad byte, to a page. For readers of whole
 * requests: behind the page cache the kernel asks again page by page. */
static ssize_t read_good(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	ssize_t good = -1;

	for (len /= 2; len >= 4096 && good == -1; len /= 2)
		good = optimfs_file_read(file, buf, len, off, err);
	return good;
}

/* Read, and answer unless somebody else has. */
static void read_pending(fuse_req_t req, struct ofs_handle *h,
    struct ofs_pending *pending, size_t size, uint64_t off, char *buf)
{
	struct ofs_session *s = session(req);
	struct optimfs_error err;
	ssize_t n;

	n = optimfs_file_read(h->file, buf, size, off, &err);
	if (n == -1 && s->direct)
		n = read_good(h->file, buf, size, off, &err);
	if (!ofs_pending_end(pending))
		return;
	if (n == -1) {
		fail(req, &err);
		return;
	}
	atomic_fetch_add_explicit(&h->served, (uint64_t)n,
	    memory_order_relaxed);
	atomic_fetch_add_explicit(&s->count.read_bytes, (uint64_t)n,
	    memory_order_relaxed);
	fuse_reply_buf(req, buf, (size_t)n);
}

static void op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
    struct fuse_file_info *fi)
{
	struct ofs_session *s = session(req);
	struct ofs_handle *h = handle_of(fi);
	char *buf = thread_buffer();
	struct ofs_pending pending;

	count(&s->count.read);
	if (buf == NULL) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	atomic_fetch_add(&h->users, 1);
	if (ofs_pending_begin(&pending, s->watch, req, node))
		read_pending(req, h, &pending,
		    size < OFS_MAX_READ ? size : OFS_MAX_READ, (uint64_t)off,
		    buf);
	else
		fuse_reply_err(req, EINTR);
	put_handle(h);
}

static void reply_xattr(fuse_req_t req, const char *value, size_t len,
    size_t size)
{
	if (len > XATTR_MAX)
		fuse_reply_err(req, E2BIG);
	else if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name,
    size_t size)
{
	struct ofs_session *s = session(req);
	struct ofs_pending pending;
	struct optimfs_error err;
	char *value = NULL;
	size_t len = 0;
	int ret;

	count(&s->count.getxattr);
	/* the kernel asks for security.capability and the like all the time */
	if (strncmp(name, "user.optimfs.", 13) != 0) {
		fuse_reply_err(req, ENODATA);
		return;
	}
	if (!ofs_pending_begin(&pending, s->watch, req, node)) {
		fuse_reply_err(req, EINTR);
		return;
	}
	ret = optimfs_getxattr(s->fs, node, name, &value, &len, &err);
	if (ofs_pending_end(&pending)) {
		if (ret == 0)
			reply_xattr(req, value, len, size);
		else
			fuse_reply_err(req, code_of(&err));
	}
	if (ret == 0)
		free(value);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	struct ofs_session *s = session(req);
	struct optimfs_error err;
	char *names;
	size_t len;

	if (optimfs_listxattr(s->fs, node, &names, &len, &err) == -1) {
		fuse_reply_err(req, code_of(&err));
		return;
	}
	reply_xattr(req, names, len, size);
	free(names);
}

static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct ofs_session *s = session(req);
	struct optimfs_error err;
	struct statvfs st;

	(void)node;
	if (optimfs_statvfs(s->fs, &st, &err) == -1)
		fuse_reply_err(req, code_of(&err));
	else
		fuse_reply_statfs(req, &st);
}

/* A read-only mount is EROFS before it comes to us; these are for one that
 * somebody has remounted rw. */

static void op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr,
    int to_set, struct fuse_file_info *fi)
{
	(void)node, (void)attr, (void)to_set, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent,
    const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
    fuse_ino_t newparent, const char *newname, unsigned flags)
{
	(void)parent, (void)name, (void)newparent, (void)newname, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t newparent,
    const char *newname)
{
	(void)node, (void)newparent, (void)newname;
	fuse_reply_err(req, EROFS);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name,
    const char *value, size_t size, int flags)
{
	(void)node, (void)name, (void)value, (void)size, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name)
{
	(void)node, (void)name;
	fuse_reply_err(req, EROFS);
}

/* Without lseek the kernel answers SEEK_DATA and SEEK_HOLE by itself, as for
 * a file without holes, which every file here is. Without forget it forgets
 * alone: nodes live as long as the mount. */
const struct fuse_lowlevel_ops ofs_fuse_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.access = op_access,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.statfs = op_statfs,
	.setattr = op_setattr,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_unlink,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.create = op_create,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
};
