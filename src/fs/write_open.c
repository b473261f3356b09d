/* write_open.c - open files with staged bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/dtype.h"
#include "base/npy.h"
#include "catalog/shards.h"
#include "fs/view.h"
#include "fs/write_impl.h"
#include "fs/write_npy.h"

struct ofs_overlay_file *ofs_file_staged(const struct optimfs_file *file,
    uint32_t tensor)
{
	struct ofs_overlay *o = file->snap->overlay;
	bool named = file->view == NULL && ofs_space_edited(file->at.space);

	if (o == NULL || atomic_load(&o->changed) == 0)
		return NULL;
	if (tensor >= file->snap->cat->ntensors)
		return file->view == NULL ? NULL
					  : ofs_view_staged(file->view, tensor);
	return ofs_overlay_of_tensor(o, tensor,
	    named ? file->at.index : OFS_NONE);
}

/* Counts the open, so that a removed file stays until it is closed. */
static int attach(struct optimfs_file *file, bool writes,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_overlay_file *f;

	pthread_rwlock_wrlock(&o->names);
	f = ofs_overlay_file_touch(o, file->at.index, err);
	if (f != NULL) {
		f->opens++;
		f->writers += writes;
		file->staged = f;
		file->writes = writes;
		file->limit = ofs_overlay_limit(o, file->at.index);
	}
	pthread_rwlock_unlock(&o->names);
	return f == NULL ? -1 : 0;
}

static int made_header(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_overlay_form form;
	struct ofs_buf header = { 0 };

	ofs_overlay_form(file->snap->overlay, file->at.index, &form);
	if (ofs_dtype_npy(form.dtype) != NULL)
		ofs_npy_header(form.dtype, form.shape, form.ndim, &header);
	file->blob = ofs_blob_of(&header, err);
	return file->blob == NULL ? -1 : 0;
}

static int open_stat(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = file->snap;

	if (ofs_space_stat.open(snap, &snap->space[OFS_SPACE_STAT],
		file->at.index, file, err) == -1)
		return -1;
	file->size = file->blob->len;
	return 0;
}

int ofs_file_open_made(struct optimfs_file *file, struct optimfs_error *err)
{
	if (ofs_edited_is_dir(file->snap, file->at))
		return optimfs_fail(err, EISDIR, "is a directory");
	if (file->at.space == OFS_SPACE_STAT)
		return open_stat(file, err);
	if (file->at.space == OFS_SPACE_NPY && made_header(file, err) == -1)
		return -1;
	return attach(file, false, err);
}

static int check_stored(const struct optimfs_file *file,
    struct optimfs_error *err)
{
	const struct ofs_snapshot *snap = file->snap;
	const struct ofs_tensor *t = file->at.index < snap->tree.n
	    ? ofs_tree_tensor(&snap->tree, snap->cat, file->at.index)
	    : NULL;

	return t == NULL || ofs_overlay_hides(snap->overlay) ||
		!ofs_tensor_is_derived(snap->cat, t)
	    ? 0
	    : optimfs_fail(err, EOPNOTSUPP,
		  "OFS866 the tensor is computed from others, and cannot be "
		  "written");
}

int ofs_file_begin_write(struct optimfs_file *file, bool truncate,
    struct optimfs_error *err)
{
	int ret = 0;

	if (check_stored(file, err) == -1)
		return -1;
	if (file->staged == NULL) {
		if (attach(file, true, err) == -1)
			return -1;
	} else {
		pthread_rwlock_wrlock(&file->snap->overlay->names);
		file->staged->writers++;
		file->writes = true;
		file->limit =
		    ofs_overlay_limit(file->snap->overlay, file->at.index);
		pthread_rwlock_unlock(&file->snap->overlay->names);
	}
	if (file->at.space == OFS_SPACE_NPY)
		ret = ofs_file_npy_begin(file, truncate, err);
	else if (truncate)
		ret = ofs_file_resize(file, 0, err);
	return ret;
}

/* After the last close: drops text that was not accepted. */
static void drop_draft(struct ofs_overlay_file *f)
{
	pthread_rwlock_wrlock(&f->lock);
	f->draft.len = 0;
	f->has_draft = f->touched = false;
	pthread_rwlock_unlock(&f->lock);
}

static bool is_removed(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	return f->entry == OFS_NONE &&
	    ofs_overlay_node(o, f->index)->parent == OFS_NONE;
}

void ofs_tell_whole(struct ofs_snapshot *snap, uint32_t node)
{
	uint32_t tensor = ofs_overlay_whole(snap->overlay, node);

	if (tensor != OFS_NONE)
		snap->fs->fill->whole(snap->fs, tensor);
}

void ofs_file_close_staged(struct optimfs_file *file)
{
	struct ofs_overlay_file *f = file->staged;
	struct ofs_overlay *o = file->snap->overlay;
	bool last;

	if (f == NULL)
		return;
	ofs_file_npy_end(file);
	pthread_rwlock_wrlock(&o->names);
	f->opens--;
	if (file->writes)
		f->writers--;
	last = f->opens == 0 && is_removed(o, f);
	if (file->writes && f->writers == 0 && f->text)
		drop_draft(f);
	if (last)
		ofs_overlay_file_revert(o, f);
	else if (f->opens == 0)
		ofs_overlay_file_idle(o, f);
	pthread_rwlock_unlock(&o->names);
	if (file->writes)
		ofs_tell_whole(file->snap, file->at.index);
}

/* The number of bytes before the tensor. */
static uint64_t head_of(const struct optimfs_file *file)
{
	if (file->at.space != OFS_SPACE_NPY)
		return 0;
	if (ofs_at_made(file->snap, file->at))
		return file->blob->len;
	return file->comp.n == 0 ? 0 : file->comp.piece[0].len;
}

/* The staged bytes of the file. */
static struct ofs_overlay_file *staged_of(const struct optimfs_file *file)
{
	const struct ofs_tensor *t;

	if (file->staged != NULL || file->comp.n == 0 ||
	    !ofs_space_edited(file->at.space))
		return file->staged;
	t = ofs_entry_tensor(file->snap->cat,
	    ofs_at_entry(file->snap, file->at));
	return ofs_file_staged(file, (uint32_t)(t - file->snap->cat->tensors));
}

int ofs_file_read_behind(const struct optimfs_file *file, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = staged_of(file);
	uint64_t head = head_of(file);

	if (f == NULL)
		return optimfs_fail(err, EIO, "shorter than it was");
	return ofs_overlay_file_apply(file->snap->overlay, f, buf, off - head,
	    off + len - head, 0, err);
}

bool ofs_file_staged_size(const struct optimfs_file *file, uint64_t *size)
{
	struct ofs_overlay_file *f = staged_of(file);

	if (file->npy != NULL) {
		*size = ofs_file_npy_size(file);
		return true;
	}
	if (f == NULL)
		return false;
	pthread_rwlock_rdlock(&f->lock);
	if (!f->text)
		*size = head_of(file) + f->size;
	else if (f->has_draft)
		*size = f->draft.len;
	else if (f->accepted != NULL)
		*size = f->accepted->len;
	else
		*size = file->size;
	pthread_rwlock_unlock(&f->lock);
	return true;
}

static ssize_t read_text(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_overlay *o = file->snap->overlay;
	struct ofs_blob *now;
	size_t n;

	pthread_rwlock_wrlock(&file->staged->lock);
	now = ofs_overlay_text_now(o, file->staged, err);
	pthread_rwlock_unlock(&file->staged->lock);
	if (now == NULL)
		return -1;
	n = off < now->len ? now->len - off : 0;
	n = n < len ? n : len;
	if (n > 0)
		memcpy(buf, now->bytes + off, n);
	ofs_blob_unref(now);
	return (ssize_t)n;
}

ssize_t ofs_file_read_staged(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	uint64_t head = head_of(file), n = 0;

	if (file->npy != NULL)
		return ofs_file_npy_read(file, buf, len, off, err);
	if (file->staged->text)
		return read_text(file, buf, len, off, err);
	if (file->at.space == OFS_SPACE_NPY && head == 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS816 no shape or dtype that NumPy has");
	if (off < head) {
		n = head - off < len ? head - off : len;
		memcpy(buf, file->blob->bytes + off, n);
	}
	if (n < len &&
	    ofs_overlay_file_apply(file->snap->overlay, file->staged,
		(uint8_t *)buf + n, off + n - head, off + len - head, 0,
		err) == -1)
		return -1;
	return (ssize_t)len;
}
