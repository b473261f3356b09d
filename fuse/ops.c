/* ops.c - the FUSE operations */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse/ops_internal.h"

/* Nothing changes in a read-only mount unless another rank writes, so the
 * kernel may cache without a limit. */
#define FOREVER 1e9
/* The st_blksize of stat(2): Python reads text in such units, cp at least as
 * much. Large files, and files that may grow large, use requests of maximal
 * size, because a request costs as much as copying 100 KiB. */
#define BLOCK_SIZE (128 * 1024)
#define LARGE_FILE (8u << 20)
/* The kernel's limit, XATTR_SIZE_MAX. */
#define XATTR_MAX 65536
/* Directory offsets: "." and ".." precede the entries. */
#define FIRST_ENTRY 2
#define UNKNOWN_INO 0xffffffffu

static blksize_t block_size(const struct optimfs_attr *a)
{
	return a->exact && S_ISREG(a->mode) &&
		(a->changes || a->size >= LARGE_FILE)
	    ? OFS_MAX_READ
	    : BLOCK_SIZE;
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
	st->st_blksize = block_size(a);
	st->st_mtim.tv_sec = a->mtime_ns / 1000000000;
	st->st_mtim.tv_nsec = a->mtime_ns % 1000000000;
	if (st->st_mtim.tv_nsec < 0) {
		st->st_mtim.tv_sec--;
		st->st_mtim.tv_nsec += 1000000000;
	}
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* An estimated size, or one that a writer may change, is not cached. */
static double attr_timeout(const struct optimfs_attr *a)
{
	return a->exact && !a->changes ? FOREVER : 0;
}

void ofs_op_entry(const struct optimfs_attr *a, struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
		.ino = a->node,
		.attr_timeout = attr_timeout(a),
		.entry_timeout = a->moves ? 0 : FOREVER,
	};
	to_stat(a, &e->attr);
}

void ofs_op_reply_attr(fuse_req_t req, const struct optimfs_attr *a,
    const struct ofs_handle *h)
{
	struct stat st;

	to_stat(a, &st);
	if (h != NULL && S_ISREG(a->mode))
		st.st_size = (off_t)optimfs_file_size(h->file);
	fuse_reply_attr(req, &st, attr_timeout(a));
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	struct ofs_session *s = userdata;

	ofs_passthrough_negotiate(&s->pt, conn);
	conn->max_read = OFS_MAX_READ; /* as in the mount options */
	/* unanswered read-ahead would block all other reads */
	conn->max_background = OFS_MAX_THREADS;
	/* splicing is slower here, and truncates reads of shrinking files */
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
	    FUSE_CAP_SPLICE_MOVE);
	/* Always names with their attributes: find, du and cp read all names
	 * first, and the kernel would then look up each on its own. */
	if (!s->changes)
		conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS_AUTO;
}

/* May names appear in a directory? */
static bool names_change(const struct ofs_session *s, fuse_ino_t dir)
{
	struct optimfs_attr attr;

	return s->changes || optimfs_getattr(s->fs, dir, &attr, NULL) == -1 ||
	    attr.changes;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct ofs_session *s = ofs_op_session(req);
	struct fuse_entry_param e = { .entry_timeout = FOREVER };
	struct optimfs_attr attr;
	struct optimfs_error err;

	ofs_op_count(&s->count.lookup);
	if (optimfs_lookup(s->fs, parent, name, &attr, &err) == 0)
		ofs_op_entry(&attr, &e);
	else if (err.code != ENOENT) {
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	} else if (names_change(s, parent)) {
		e.entry_timeout = 0;
	}
	/* a negative entry, which the kernel caches */
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_attr attr;
	struct optimfs_error err;

	ofs_op_count(&s->count.getattr);
	(void)ofs_op_look(req, node);
	if (optimfs_getattr(s->fs, node, &attr, &err) == -1) {
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	}
	ofs_op_reply_attr(req, &attr, fi != NULL ? ofs_op_handle(fi) : NULL);
}

static void op_readlink(fuse_req_t req, fuse_ino_t node)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	char *target;

	if (optimfs_readlink(s->fs, node, &target, &err) == -1) {
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	}
	fuse_reply_readlink(req, target);
	free(target);
}

static void op_access(fuse_req_t req, fuse_ino_t node, int mask)
{
	(void)node;
	fuse_reply_err(req,
	    (mask & 2) != 0 && !ofs_op_session(req)->rw ? EROFS : 0);
}

static void op_opendir(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	if (!ofs_op_may_open(req, node)) {
		fuse_reply_err(req, EACCES);
		return;
	}
	fi->cache_readdir = !names_change(ofs_op_session(req), node);
	fi->keep_cache = fi->cache_readdir;
	fuse_reply_open(req, fi);
}

/* The state of a readdir reply. */
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
		ofs_op_entry(d->attr, &e);
	e.attr.st_ino = d->ino;
	e.attr.st_mode = d->mode;
	if (d->attr != NULL)
		e.attr.st_mode = d->attr->mode;
	return list(ctx, d->name, &e, (off_t)(d->position + 1 + FIRST_ENTRY));
}

/* The kernel wants only name and inode number of these. */
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
	struct ofs_session *s = ofs_op_session(req);
	struct listing l = { .req = req, .plus = plus };
	uint64_t start = off > FIRST_ENTRY ? (uint64_t)off - FIRST_ENTRY : 0;
	struct optimfs_attr attr;
	struct optimfs_error err;
	int ret;

	ofs_op_count(&s->count.readdir);
	l.buf = ofs_op_buffer();
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
		ofs_op_fail(req, &err);
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
	struct ofs_session *s = ofs_op_session(req);
	struct ofs_pending pending;
	struct optimfs_error err;
	char *value = NULL;
	size_t len = 0;
	int ret;

	ofs_op_count(&s->count.getxattr);
	/* ls(1) asks for security.selinux and ACLs of every file, until one
	 * reply says that they are not supported */
	if (strncmp(name, "user.optimfs.", 13) != 0) {
		fuse_reply_err(req,
		    strncmp(name, "user.", 5) == 0 ? ENODATA : EOPNOTSUPP);
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
			fuse_reply_err(req, ofs_op_code(&err));
	}
	if (ret == 0)
		free(value);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	char *names;
	size_t len;

	if (optimfs_listxattr(s->fs, node, &names, &len, &err) == -1) {
		fuse_reply_err(req, ofs_op_code(&err));
		return;
	}
	reply_xattr(req, names, len, size);
	free(names);
}

static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct ofs_session *s = ofs_op_session(req);
	struct optimfs_error err;
	struct statvfs st;

	(void)node;
	if (optimfs_statvfs(s->fs, &st, &err) == -1)
		fuse_reply_err(req, ofs_op_code(&err));
	else
		fuse_reply_statfs(req, &st);
}

/* Without lseek the kernel handles SEEK_DATA and SEEK_HOLE for files without
 * holes, as all files here are. Without forget it does not report forgotten
 * nodes: nodes live as long as the mount. */
const struct fuse_lowlevel_ops ofs_fuse_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.access = op_access,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.open = ofs_op_open,
	.release = ofs_op_release,
	.read = ofs_op_read,
	.write = ofs_op_write,
	.flush = ofs_op_flush,
	.fsync = ofs_op_fsync,
	.fsyncdir = ofs_op_fsyncdir,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.statfs = op_statfs,
	.setattr = ofs_op_setattr,
	.mknod = ofs_op_mknod,
	.mkdir = ofs_op_mkdir,
	.unlink = ofs_op_unlink,
	.rmdir = ofs_op_rmdir,
	.symlink = ofs_op_symlink,
	.rename = ofs_op_rename,
	.link = ofs_op_link,
	.create = ofs_op_create,
	.setxattr = ofs_op_setxattr,
	.removexattr = ofs_op_removexattr,
};
