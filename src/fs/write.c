/* write.c - the calls that change the contents of files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "base/error.h"
#include "fs/write_impl.h"
#include "fs/write_npy.h"

/* Each public call here enters as a writer (enter.h), so that no commit runs
 * beside it. What is written to a text is a draft, which close(2) accepts or
 * refuses (overlay/text.c). Bytes of a tensor are staged at once
 * (overlay/file.c); those of a new .npy file are kept aside until close(2)
 * (write_npy.c). A write that failed is reported once more by close(2). */

int ofs_may_write(const struct optimfs *fs, struct optimfs_error *err)
{
	if (fs->changes)
		return 0;
	return optimfs_fail(err, EROFS, "mounted read-only");
}

/* Fails if a commit was published but cannot be shown: new changes would belong
 * to an old state. */
static int check_shown(const struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	if (!snap->overlay->published)
		return 0;
	return ofs_not_shown(&snap->overlay->why, err);
}

int ofs_not_writable(const struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err)
{
	char path[256];

	ofs_at_path(snap, at, path, sizeof(path));
	return optimfs_fail(err, EPERM,
	    "OFS814 %s: nothing can be changed there", path);
}

int ofs_writable_at(struct ofs_snapshot *snap, uint64_t node, struct ofs_at *at,
    struct optimfs_error *err)
{
	if (ofs_may_write(snap->fs, err) == -1 ||
	    check_shown(snap, err) == -1 ||
	    ofs_node_at(snap, node, at, err) == -1)
		return -1;
	if (ofs_at_static(snap, *at) || !ofs_space_edited(at->space))
		return ofs_not_writable(snap, *at, err);
	return 0;
}

int ofs_writable_dir(struct ofs_snapshot *snap, uint64_t node,
    struct ofs_at *at, struct optimfs_error *err)
{
	if (ofs_writable_at(snap, node, at, err) == -1)
		return -1;
	if (!ofs_at_is_dir(snap, *at))
		return optimfs_fail(err, ENOTDIR, "not a directory");
	return 0;
}

static int open_control(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err)
{
	*file = ofs_file_new(snap, at, err);
	if (*file == NULL)
		return -1;
	(*file)->control = true;
	return 0;
}

/* A tensor with a missing shard can be written; one with inconsistent metadata
 * cannot. */
static int open_rw(struct ofs_snapshot *snap, struct ofs_at at, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f;
	int ret;

	if (ofs_file_open(snap, at, &f, err) == -1)
		return -1;
	ret = ofs_file_begin_write(f, truncate, err);
	if (ret == -1) {
		ofs_file_failed(snap, at, 0, 0, err);
		optimfs_file_close(f);
		return -1;
	}
	*file = f;
	return 0;
}

int ofs_file_open_write(struct ofs_snapshot *snap, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_at at;

	err = OFS_SOME_ERROR(err);
	if (ofs_may_write(snap->fs, err) == -1 ||
	    ofs_node_at(snap, node, &at, err) == -1)
		return -1;
	if (ofs_at_static(snap, at) &&
	    at.index - snap->tree.n == OFS_STATIC_CONTROL)
		return open_control(snap, at, file, err);
	if (ofs_at_is_dir(snap, at))
		return optimfs_fail(err, EISDIR, "is a directory");
	if (ofs_writable_at(snap, node, &at, err) == -1)
		return -1;
	return open_rw(snap, at, truncate, file, err);
}

int optimfs_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = ofs_file_open_write(snap, node, truncate, file, err);
	ofs_leave_write(snap);
	return ret;
}

static int past_end(const struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay_form form;
	char text[OFS_FORM_TEXT];

	ofs_overlay_form(file->snap->overlay, file->at.index, &form);
	return optimfs_fail(err, EFBIG,
	    "OFS813 past the end: this file is %s, and keeps its size of %llu "
	    "bytes",
	    ofs_overlay_form_text(&form, text),
	    (unsigned long long)file->limit);
}

static int write_any(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f = file->staged;
	int ret;

	if (file->at.space == OFS_SPACE_NPY)
		return ofs_file_npy_write(file, buf, len, off, err);
	if (f->text) {
		pthread_rwlock_wrlock(&f->lock);
		ret = ofs_overlay_text_write(o, f, buf, len, off, err);
		pthread_rwlock_unlock(&f->lock);
		return ret;
	}
	if (off > file->limit || len > file->limit - off)
		return past_end(file, err);
	return ofs_overlay_file_write(o, f, buf, len, off, err);
}

/* Remembers a failed write, which close reports again. */
static int remember(struct optimfs_file *file, uint64_t off, uint64_t len,
    struct optimfs_error *err)
{
	ofs_file_failed(file->snap, file->at, off, len, err);
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
	int ret;

	err = OFS_SOME_ERROR(err);
	if (!file->writes)
		return optimfs_fail(err, EBADF, "not open for writing");
	if (check_shown(file->snap, err) == -1)
		return -1;
	ret = write_any(file, buf, len, off, err);
	return ret == 0 ? 0 : remember(file, off, len, err);
}

int optimfs_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	int ret;

	/* a commit is not a change, and must not wait for itself */
	if (file->control)
		return optimfs_control(file->fs, buf, len, NULL, NULL, err);
	snap = ofs_enter_write(file->fs);
	ret = do_file_write(file, buf, len, off, err);
	ofs_leave_write(snap);
	return ret;
}

int ofs_file_resize(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = file->staged;
	int ret;

	if (file->at.space == OFS_SPACE_NPY)
		return ofs_file_npy_resize(file, size, err);
	if (f->text) {
		pthread_rwlock_wrlock(&f->lock);
		ret =
		    ofs_overlay_text_resize(file->snap->overlay, f, size, err);
		pthread_rwlock_unlock(&f->lock);
		return ret;
	}
	if (size > file->limit)
		return past_end(file, err);
	return ofs_overlay_file_resize(file->snap->overlay, f, false, size,
	    err);
}

int ofs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	int ret;

	err = OFS_SOME_ERROR(err);
	if (file->control)
		return 0;
	if (!file->writes)
		return optimfs_fail(err, EBADF, "not open for writing");
	if (check_shown(file->snap, err) == -1)
		return -1;
	ret = ofs_file_resize(file, size, err);
	return ret == 0 ? 0 : remember(file, 0, 0, err);
}

int optimfs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(file->fs);
	int ret = ofs_file_truncate(file, size, err);
	ofs_leave_write(snap);
	return ret;
}

/* A text must be valid when it is closed. An empty one that was not written is
 * left alone: shells truncate before they write. */
static int accept_text(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f = file->staged;
	int ret = 0;

	pthread_rwlock_rdlock(&o->names);
	pthread_rwlock_wrlock(&f->lock);
	if (f->has_draft && f->touched)
		ret = ofs_overlay_text_accept(o, f, file->at.index, err);
	pthread_rwlock_unlock(&f->lock);
	pthread_rwlock_unlock(&o->names);
	return ret;
}

/* Checks a new file that took the name of a text of the checkpoint. */
static int check_made(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f = file->staged;
	struct ofs_blob *now = NULL;
	uint32_t base;
	int ret = 0;

	pthread_rwlock_rdlock(&o->names);
	base = ofs_overlay_stands_for(o, file->at.index);
	if (base != OFS_NONE && f->dtype == OFS_DTYPE_NONE &&
	    ofs_entry_is_text(file->snap->cat,
		file->snap->tree.node[base].entry)) {
		pthread_rwlock_wrlock(&f->lock);
		if (f->size > 0)
			now = ofs_overlay_text_now(o, f, err);
		ret = now == NULL && f->size > 0 ? -1 : 0;
		pthread_rwlock_unlock(&f->lock);
	}
	if (now != NULL)
		ret = ofs_overlay_text_check(o, base, (const char *)now->bytes,
		    now->len, NULL, NULL, err);
	pthread_rwlock_unlock(&o->names);
	ofs_blob_unref(now);
	return ret;
}

static int accept_any(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = file->staged;

	if (file->npy != NULL)
		return ofs_file_npy_accept(file, err);
	if (f->text)
		return accept_text(file, err);
	return f->entry == OFS_NONE ? check_made(file, err) : 0;
}

/* The error of a write that was not repeated successfully. */
static int what_failed(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = file->staged;
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

int ofs_file_flush(struct optimfs_file *file, struct optimfs_error *err)
{
	int ret;

	err = OFS_SOME_ERROR(err);
	if (what_failed(file, err) == -1)
		return -1;
	ret = accept_any(file, err);
	return ret == 0 ? 0 : ofs_file_failed(file->snap, file->at, 0, 0, err);
}

int optimfs_file_flush(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	int ret;

	/* closing a file that was only read does not wait for a commit */
	if (!file->writes)
		return 0;
	snap = ofs_enter_write(file->fs);
	ret = ofs_file_flush(file, err);
	ofs_leave_write(snap);
	return ret;
}

/* snap is the current snapshot; a file that is only read may not have moved to
 * it yet. */
static int do_file_sync(struct optimfs_file *file,
    const struct ofs_snapshot *snap, struct optimfs_error *err)
{
	int ret;

	err = OFS_SOME_ERROR(err);
	if (!file->writes)
		return snap->overlay == NULL
		    ? 0
		    : ofs_stage_sync(snap->overlay->stage, err);
	if (ofs_file_flush(file, err) == -1)
		return -1;
	ret = ofs_overlay_file_sync(file->snap->overlay, file->staged, err);
	return ret == 0 ? 0 : ofs_file_failed(file->snap, file->at, 0, 0, err);
}

int optimfs_file_sync(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(file->fs);
	int ret = do_file_sync(file, snap, err);
	ofs_leave_write(snap);
	return ret;
}
