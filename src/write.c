/* write.c - the calls that change something */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "commit.h"
#include "direct.h"
#include "edit_impl.h"
#include "edit_npy.h"
#include "stage_lock.h"
#include "view.h"

#define PREFIX "user.optimfs."

static int read_only(const struct optimfs *fs, struct optimfs_error *err)
{
	if (fs->edit != NULL)
		return 0;
	return optimfs_fail(err, EROFS, "mounted read-only");
}

/* The skeleton has become a checkpoint under us. */
static int over(const struct optimfs *fs, struct optimfs_error *err)
{
	if (!fs->edit->published)
		return 0;
	return optimfs_fail(err, ESTALE,
	    "OFS835 it was committed: mount it again to change it");
}

static int not_here(const struct optimfs *fs, struct ofs_at at,
    struct optimfs_error *err)
{
	char path[256];

	ofs_at_path(fs, at, path, sizeof(path));
	return optimfs_fail(err, EPERM,
	    "OFS814 %s: nothing can be changed there", path);
}

/* A node that may be changed: of the tree, or npy. */
static int writable_at(struct optimfs *fs, uint64_t node, struct ofs_at *at,
    struct optimfs_error *err)
{
	if (read_only(fs, err) == -1 || over(fs, err) == -1 ||
	    ofs_node_at(fs, node, at, err) == -1)
		return -1;
	if (ofs_at_static(fs, *at) ||
	    (at->space != OFS_SPACE_TREE && at->space != OFS_SPACE_NPY))
		return not_here(fs, *at, err);
	return 0;
}

static int writable_dir(struct optimfs *fs, uint64_t node, struct ofs_at *at,
    struct optimfs_error *err)
{
	if (writable_at(fs, node, at, err) == -1)
		return -1;
	if (!ofs_at_is_dir(fs, *at))
		return optimfs_fail(err, ENOTDIR, "not a directory");
	return 0;
}

static int open_control(struct optimfs *fs, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err)
{
	*file = calloc(1, sizeof(**file));
	if (*file == NULL)
		return optimfs_fail(err, ENOMEM, "open file");
	(*file)->fs = fs;
	(*file)->at = at;
	(*file)->control = true;
	ofs_composition_init(&(*file)->comp);
	return 0;
}

/* A tensor that lost a shard can be written, one without sense cannot. */
static int open_rw(struct optimfs *fs, uint64_t node, struct ofs_at at,
    bool truncate, struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f;
	int ret;

	if (optimfs_file_open(fs, node, &f, err) == -1)
		return -1;
	ret = ofs_edit_open_write(f, truncate, err);
	if (ret == -1) {
		ofs_file_failed(fs, at, 0, 0, err);
		optimfs_file_close(f);
		return -1;
	}
	*file = f;
	return 0;
}

static int do_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_error own;
	struct ofs_at at;

	if (err == NULL)
		err = &own;
	if (read_only(fs, err) == -1 || ofs_node_at(fs, node, &at, err) == -1)
		return -1;
	if (ofs_at_static(fs, at) &&
	    at.index - fs->tree.n == OFS_STATIC_CONTROL)
		return open_control(fs, at, file, err);
	if (ofs_at_is_dir(fs, at))
		return optimfs_fail(err, EISDIR, "is a directory");
	if (writable_at(fs, node, &at, err) == -1)
		return -1;
	return open_rw(fs, node, at, truncate, file, err);
}

int optimfs_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_file_open_write(fs, node, truncate, file, err);
	ofs_leave(fs);
	return ret;
}

static int write_any(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_edit *e = file->fs->edit;
	struct ofs_edit_file *f = file->staged;
	int ret;

	if (file->at.space == OFS_SPACE_NPY)
		return ofs_edit_npy_write(file, buf, len, off, err);
	if (f->text) {
		pthread_rwlock_wrlock(&f->lock);
		ret = ofs_edit_text_write(e, f, buf, len, off, err);
		pthread_rwlock_unlock(&f->lock);
		return ret;
	}
	if (off > file->limit || len > file->limit - off)
		return optimfs_fail(err, EFBIG,
		    "OFS813 past the tensor's end (it has %llu bytes)",
		    (unsigned long long)file->limit);
	return ofs_edit_file_write(e, f, buf, len, off, err);
}

/* What failed once is told again when the file is closed. */
static int remember(struct optimfs_file *file, uint64_t off, uint64_t len,
    struct optimfs_error *err)
{
	ofs_file_failed(file->fs, file->at, off, len, err);
	if (file->staged != NULL) {
		pthread_rwlock_wrlock(&file->staged->lock);
		if (file->failed.code == 0)
			file->failed = *err;
		pthread_rwlock_unlock(&file->staged->lock);
	}
	return -1;
}

static int do_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct optimfs_error own;
	int ret;

	if (err == NULL)
		err = &own;
	if (!file->writes)
		return optimfs_fail(err, EBADF, "not open for writing");
	if (over(file->fs, err) == -1)
		return -1;
	ret = write_any(file, buf, len, off, err);
	return ret == 0 ? 0 : remember(file, off, len, err);
}

int optimfs_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	int ret;

	/* a commit is no change, and must not wait for itself */
	if (file->control)
		return optimfs_control(file->fs, buf, len, NULL, NULL, err);
	ofs_enter_write(file->fs);
	ret = do_file_write(file, buf, len, off, err);
	ofs_leave(file->fs);
	return ret;
}

/* With the gate passed. */
int ofs_edit_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	struct ofs_edit_file *f = file->staged;
	int ret;

	if (file->at.space == OFS_SPACE_NPY)
		return ofs_edit_npy_resize(file, size, err);
	if (f->text) {
		pthread_rwlock_wrlock(&f->lock);
		ret = ofs_edit_text_resize(file->fs->edit, f, size, err);
		pthread_rwlock_unlock(&f->lock);
		return ret;
	}
	if (size > file->limit)
		return optimfs_fail(err, EFBIG,
		    "OFS813 past the tensor's end (it has %llu bytes)",
		    (unsigned long long)file->limit);
	return ofs_edit_file_resize(file->fs->edit, f, size, err);
}

static int do_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	struct optimfs_error own;
	int ret;

	if (err == NULL)
		err = &own;
	if (file->control)
		return 0;
	if (!file->writes)
		return optimfs_fail(err, EBADF, "not open for writing");
	if (over(file->fs, err) == -1)
		return -1;
	ret = ofs_edit_truncate(file, size, err);
	return ret == 0 ? 0 : remember(file, 0, 0, err);
}

int optimfs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(file->fs);
	ret = do_file_truncate(file, size, err);
	ofs_leave(file->fs);
	return ret;
}

/* A text that was written must make sense when it is closed. One that was cut
 * to nothing and not written is what a shell has in its hands on the way. */
static int accept_text(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_edit *e = file->fs->edit;
	struct ofs_edit_file *f = file->staged;
	int ret = 0;

	pthread_rwlock_rdlock(&e->names);
	pthread_rwlock_wrlock(&f->lock);
	if (f->drafting && f->touched)
		ret = ofs_edit_text_accept(e, f, file->at.index, err);
	pthread_rwlock_unlock(&f->lock);
	pthread_rwlock_unlock(&e->names);
	return ret;
}

/* A new file in the place of a text of the checkpoint. */
static int check_made(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_edit *e = file->fs->edit;
	struct ofs_edit_file *f = file->staged;
	struct ofs_blob *now = NULL;
	uint32_t base;
	int ret = 0;

	pthread_rwlock_rdlock(&e->names);
	base = ofs_edit_stands_for(e, file->at.index);
	if (base != OFS_NONE && f->dtype == OFS_DTYPE_NONE &&
	    ofs_entry_is_text(file->fs, file->fs->tree.node[base].entry)) {
		pthread_rwlock_wrlock(&f->lock);
		if (f->size > 0)
			now = ofs_edit_text_now(e, f, err);
		ret = now == NULL && f->size > 0 ? -1 : 0;
		pthread_rwlock_unlock(&f->lock);
	}
	if (now != NULL)
		ret = ofs_edit_text_check(e, base, (const char *)now->bytes,
		    now->len, NULL, NULL, err);
	pthread_rwlock_unlock(&e->names);
	ofs_blob_unref(now);
	return ret;
}

static int accept_any(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_edit_file *f = file->staged;

	if (file->npy != NULL)
		return ofs_edit_npy_accept(file, err);
	if (f->text)
		return accept_text(file, err);
	return f->entry == OFS_NONE ? check_made(file, err) : 0;
}

/* What a write failed with, and has not been written since. */
static int what_failed(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_edit_file *f = file->staged;
	struct optimfs_error why = { 0 };

	pthread_rwlock_rdlock(&f->lock);
	if (file->failed.code != 0)
		why = file->failed;
	else if (f->lost.n > 0)
		why = f->why;
	pthread_rwlock_unlock(&f->lock);
	if (why.code == 0)
		return 0;
	*err = why;
	return -1;
}

static int do_file_flush(struct optimfs_file *file, struct optimfs_error *err)
{
	struct optimfs_error own;
	int ret;

	if (err == NULL)
		err = &own;
	if (!file->writes)
		return 0;
	if (what_failed(file, err) == -1)
		return -1;
	ret = accept_any(file, err);
	return ret == 0 ? 0 : ofs_file_failed(file->fs, file->at, 0, 0, err);
}

int optimfs_file_flush(struct optimfs_file *file, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(file->fs);
	ret = do_file_flush(file, err);
	ofs_leave(file->fs);
	return ret;
}

static int do_file_sync(struct optimfs_file *file, struct optimfs_error *err)
{
	struct optimfs_error own;
	int ret;

	if (err == NULL)
		err = &own;
	if (optimfs_file_flush(file, err) == -1)
		return -1;
	if (!file->writes)
		return file->fs->edit == NULL
		    ? 0
		    : ofs_stage_sync(file->fs->edit->stage, err);
	ret = ofs_edit_file_sync(file->fs->edit, file->staged, err);
	return ret == 0 ? 0 : ofs_file_failed(file->fs, file->at, 0, 0, err);
}

int optimfs_file_sync(struct optimfs_file *file, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(file->fs);
	ret = do_file_sync(file, err);
	ofs_leave(file->fs);
	return ret;
}

static bool is_section(const char *name)
{
	return strcmp(name, "optim") == 0 || strcmp(name, "model") == 0 ||
	    strcmp(name, "extra") == 0;
}

/* May a name be given in a directory? The root has its three. */
static int may_name(const struct optimfs *fs, struct ofs_at dir,
    const char *name, bool is_dir, struct optimfs_error *err)
{
	if (strlen(name) > OFS_NAME_MAX)
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    name);
	if (name[0] == '\0' || strchr(name, '/') != NULL ||
	    strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return optimfs_fail(err, EINVAL, "'%s' is no name", name);
	if (dir.index == 0 && (!is_dir || !is_section(name)))
		return optimfs_fail(err, EPERM,
		    "OFS814 %s: a checkpoint has optim, model and extra; give "
		    "it a place below these",
		    name);
	(void)fs;
	return 0;
}

/* Below npy files are called NAME.npy, as if they were NAME in the tree. */
static int tree_name(struct ofs_at dir, const char *name, bool is_dir,
    char out[OFS_NAME_MAX + 1], struct optimfs_error *err)
{
	size_t n = strlen(name), k = strlen(ofs_space_npy.suffix);

	if (dir.space == OFS_SPACE_NPY && !is_dir) {
		if (n <= k || strcmp(name + n - k, ofs_space_npy.suffix) != 0)
			return optimfs_fail(err, EPERM,
			    "OFS814 %s: files of npy are called NAME.npy",
			    name);
		n -= k;
	}
	memcpy(out, name, n);
	out[n] = '\0';
	return 0;
}

static int do_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err)
{
	char plain[OFS_NAME_MAX + 1];
	struct ofs_at at, made;
	int ret;

	if (writable_dir(fs, dir, &at, err) == -1 ||
	    may_name(fs, at, name, is_dir, err) == -1 ||
	    tree_name(at, name, is_dir, plain, err) == -1)
		return -1;
	made.space = at.space;
	pthread_rwlock_wrlock(&fs->edit->names);
	ret =
	    ofs_edit_make(fs->edit, at.index, plain, is_dir, &made.index, err);
	if (ret == 0 && !is_dir &&
	    ofs_edit_file_touch(fs->edit, made.index, err) == NULL)
		ret = -1;
	pthread_rwlock_unlock(&fs->edit->names);
	return ret == 0 ? ofs_at_attr(fs, made, attr, err) : -1;
}

int optimfs_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_create(fs, dir, name, is_dir, attr, err);
	ofs_leave(fs);
	return ret;
}

static int do_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	struct ofs_at at;
	int ret;

	if (writable_dir(fs, dir, &at, err) == -1)
		return -1;
	if (at.space != OFS_SPACE_TREE ||
	    (at.index == 0 && strcmp(name, ".optimfs") == 0))
		return not_here(fs, at, err);
	pthread_rwlock_wrlock(&fs->edit->names);
	ret = ofs_edit_remove(fs->edit, at.index, name, is_dir, err);
	pthread_rwlock_unlock(&fs->edit->names);
	return ret;
}

int optimfs_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_remove(fs, dir, name, is_dir, err);
	ofs_leave(fs);
	return ret;
}

static int do_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err)
{
	struct ofs_at at, to, child;
	struct optimfs_attr attr;
	int ret;

	if (writable_dir(fs, dir, &at, err) == -1 ||
	    writable_dir(fs, newdir, &to, err) == -1)
		return -1;
	if (at.space != OFS_SPACE_TREE || to.space != OFS_SPACE_TREE)
		return not_here(fs, to, err);
	if (optimfs_lookup(fs, dir, name, &attr, err) == -1 ||
	    ofs_node_at(fs, attr.node, &child, err) == -1 ||
	    may_name(fs, to, newname, ofs_at_is_dir(fs, child), err) == -1)
		return -1;
	if (ofs_at_static(fs, child))
		return not_here(fs, child, err);
	pthread_rwlock_wrlock(&fs->edit->names);
	ret = ofs_edit_rename(fs->edit, at.index, name, to.index, newname,
	    replace, err);
	pthread_rwlock_unlock(&fs->edit->names);
	if (ret == -1)
		optimfs_log_error(fs, err);
	return ret;
}

int optimfs_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_rename(fs, dir, name, newdir, newname, replace, err);
	ofs_leave(fs);
	return ret;
}

static int do_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	int ret;

	if (optimfs_file_open_write(fs, node, false, &file, err) == -1)
		return -1;
	ret = optimfs_file_truncate(file, size, err);
	if (ret == 0)
		ret = optimfs_file_flush(file, err);
	optimfs_file_close(file);
	return ret;
}

int optimfs_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_truncate(fs, node, size, err);
	ofs_leave(fs);
	return ret;
}

static int do_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err)
{
	struct ofs_at at;
	int ret;

	if (writable_at(fs, node, &at, err) == -1)
		return -1;
	pthread_rwlock_wrlock(&fs->edit->names);
	ret = ofs_edit_set_mtime(fs->edit, at.index, mtime_ns, err);
	pthread_rwlock_unlock(&fs->edit->names);
	return ret;
}

int optimfs_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_set_mtime(fs, node, mtime_ns, err);
	ofs_leave(fs);
	return ret;
}

static bool is_listed(const char *name)
{
	static const char *const names[] = { "fqn", "kind", "raw_fqn", "shape",
		"dtype" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int do_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err)
{
	struct ofs_at at;
	int ret;

	if (writable_at(fs, node, &at, err) == -1)
		return -1;
	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 ||
	    !is_listed(name + strlen(PREFIX)))
		return optimfs_fail(err, EOPNOTSUPP,
		    "attribute %s has no place in a checkpoint", name);
	if (ofs_at_is_dir(fs, at))
		return 0;
	pthread_rwlock_wrlock(&fs->edit->names);
	ret = ofs_edit_set_attr(fs->edit, at.index, name + strlen(PREFIX),
	    value, len, err);
	pthread_rwlock_unlock(&fs->edit->names);
	return ret == 0 ? 0 : ofs_file_failed(fs, at, 0, 0, err);
}

int optimfs_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err)
{
	int ret;

	ofs_enter_write(fs);
	ret = do_setxattr(fs, node, name, value, len, err);
	ofs_leave(fs);
	return ret;
}

/* Who is still writing would see the file that he writes taken from him. */
static int check_writers(const struct ofs_edit *e, struct optimfs_error *err)
{
	for (const struct ofs_edit_file *f = e->files; f != NULL; f = f->next)
		if (f->writers > 0) {
			char *path = ofs_edit_path(e, f->index, NULL, NULL);

			optimfs_fail(err, EBUSY,
			    "OFS815 %s is open for writing: close it, then "
			    "commit",
			    path == NULL ? "a removed file" : path);
			free(path);
			return -1;
		}
	return 0;
}

/* With the gate held. */
static int commit_held(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct optimfs_error later;
	int ret;

	pthread_rwlock_rdlock(&fs->edit->names);
	ret = check_writers(fs->edit, err);
	pthread_rwlock_unlock(&fs->edit->names);
	if (ret == -1)
		return -1;
	ret = fs->edit->direct != NULL ? ofs_direct_commit(fs, stop, ctx, err)
				       : ofs_commit(fs, stop, ctx, err);
	if (ret != -1 && ofs_edit_sites(fs->edit) != NULL)
		fs->edit->published = true; /* what others have was not read */
	else if (ret != -1 && ofs_fs_reopen(fs, &later) == -1)
		optimfs_log_error(fs, &later);
	return ret;
}

static int commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	int ret;

	if (fs->edit->scratch)
		return optimfs_fail(err, EROFS,
		    "OFS819 mounted with scratch: nothing can be committed");
	if (fs->edit->unsafe) {
		*err = fs->edit->stuck;
		return 1;
	}
	if (fs->edit->direct == NULL && !ofs_edit_dirty(fs->edit))
		return 0;
	if (ofs_gate_hold(fs, true, err) == -1)
		return -1;
	atomic_store(&fs->edit->percent, 1);
	ret = commit_held(fs, stop, ctx, err);
	atomic_store(&fs->edit->percent, 0);
	ofs_gate_let(fs);
	return ret;
}

int optimfs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	int ret;

	if (read_only(fs, err) == -1)
		return -1;
	ret = commit(fs, stop, ctx, &own);
	pthread_mutex_lock(&fs->lock);
	fs->edit->said = own;
	fs->edit->unsynced = ret == 1;
	pthread_mutex_unlock(&fs->lock);
	if (ret != 0)
		optimfs_log_error(fs, &own);
	if (err != NULL)
		*err = own;
	return ret;
}

void ofs_control_said(struct optimfs *fs, struct ofs_buf *out)
{
	if (fs->edit == NULL)
		return;
	pthread_mutex_lock(&fs->lock);
	if (fs->edit->said.code != 0)
		ofs_buf_printf(out, "%s %s\n",
		    fs->edit->unsynced ? "unsynced" : "failed",
		    fs->edit->said.text);
	pthread_mutex_unlock(&fs->lock);
}

int optimfs_abort(struct optimfs *fs, struct optimfs_error *err)
{
	return read_only(fs, err) == -1 ? -1 : ofs_edit_abort(fs->edit, err);
}

int optimfs_lock_watch(const char *path)
{
	return ofs_stage_watch(path);
}

bool optimfs_lock_busy(int fd)
{
	return ofs_lock_busy(fd);
}

static bool is_order(const char *text, size_t len, const char *order)
{
	return len == strlen(order) && memcmp(text, order, len) == 0;
}

int optimfs_control(struct optimfs *fs, const char *text, size_t len,
    bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err)
{
	if (read_only(fs, err) == -1)
		return -1;
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' '))
		len--;
	if (is_order(text, len, "commit"))
		return optimfs_commit(fs, stop, ctx, err) == 0 ? 0 : -1;
	if (is_order(text, len, "abort"))
		return optimfs_abort(fs, err);
	if (!is_order(text, len, "keep"))
		return optimfs_fail(err, EINVAL,
		    "OFS818 control takes commit, abort and keep");
	atomic_store(&fs->edit->explicit_commit, true);
	return 0;
}

bool optimfs_file_is_control(const struct optimfs_file *file)
{
	return file->control;
}

void optimfs_status(struct optimfs *fs, struct optimfs_status *status)
{
	struct ofs_edit_status s;

	*status = (struct optimfs_status){ .percent = -1 };
	if (fs->edit == NULL)
		return;
	ofs_edit_status(fs->edit, &s);
	*status = (struct optimfs_status){
		.writable = true,
		.explicit_commit = atomic_load(&fs->edit->explicit_commit),
		.scratch = fs->edit->scratch,
		.files = s.files,
		.bytes = s.bytes,
		.percent = s.percent,
	};
}

int optimfs_sync(struct optimfs *fs, struct optimfs_error *err)
{
	return fs->edit == NULL ? 0 : ofs_stage_sync(fs->edit->stage, err);
}

uint64_t optimfs_changes(struct optimfs *fs)
{
	return fs->edit == NULL ? 0 : ofs_edit_generation(fs->edit);
}
