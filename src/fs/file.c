/* file.c - open files: what each holds, from its opening to its end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/view.h"
#include "fs/write_open.h"

int ofs_entry_sound(const struct ofs_snapshot *snap, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	uint32_t error = OFS_NONE;

	if (e->kind == OFS_ENTRY_TENSOR)
		error = snap->cat->tensors[e->ref].error;
	else if (e->kind == OFS_ENTRY_ITEM)
		error = snap->cat->items[e->ref].error;
	return error == OFS_NONE ? 0 : ofs_catalog_fail(snap->cat, error, err);
}

int ofs_file_failed(struct ofs_snapshot *snap, struct ofs_at at, uint64_t off,
    uint64_t len, struct optimfs_error *err)
{
	char path[256];

	ofs_at_path(snap, at, path, sizeof(path));
	if (len == 0)
		optimfs_fail_in(err, "%s", path);
	else
		optimfs_fail_in(err, "%s bytes %" PRIu64 "-%" PRIu64, path, off,
		    off + len - 1);
	ofs_failures_add(&snap->fs->failures, ofs_node_of(at.space, at.index),
	    path, off, len, err);
	return -1;
}

uint64_t ofs_file_size(const struct optimfs_file *file)
{
	uint64_t size;

	if (file->snap->edit != NULL && ofs_overlay_size(file, &size))
		return size;
	return file->size;
}

uint64_t optimfs_file_size(const struct optimfs_file *file)
{
	struct ofs_snapshot *snap = ofs_enter(file->fs);
	uint64_t size = ofs_file_size(file);

	ofs_leave(snap);
	return size;
}

static int open_static(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = file->snap;
	uint32_t i = file->at.index - snap->tree.n;
	const struct ofs_static_node *s = &ofs_static_nodes[i];
	struct ofs_buf text = { 0 };

	if (i == OFS_STATIC_MISSING && snap->edit != NULL &&
	    ofs_overlay_is_template(snap->edit)) {
		snap->write->missing(snap, &text);
		file->blob = ofs_blob_of(&text, err);
		if (file->blob == NULL)
			return -1;
		file->size = file->blob->len;
		return 0;
	}
	if (s->lines != NULL) {
		if (ofs_lines_index(&snap->lines[i], snap, err) == -1)
			return -1;
		file->lines = &snap->lines[i];
		file->size = file->lines->size;
		return 0;
	}
	if (s->text == NULL)
		return optimfs_fail(err, EISDIR, "%s is a directory", s->name);
	s->text(snap, &text);
	file->blob = ofs_blob_of(&text, err);
	if (file->blob == NULL)
		return -1;
	file->size = file->blob->len;
	return 0;
}

static int open_mirrored(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = file->snap;
	struct ofs_space *s = &snap->space[file->at.space];

	if (snap->tree.node[file->at.index].entry == OFS_NONE)
		return optimfs_fail(err, EISDIR, "is a directory");
	if (ofs_indexes_same(snap, err) == -1 ||
	    s->ops->open(snap, s, file->at.index, file, err) == -1)
		return ofs_file_failed(snap, file->at, 0, 0, err);
	if (file->blob != NULL)
		file->size = file->blob->len;
	else
		file->size = file->comp.size;
	return 0;
}

static int open_view(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = file->snap;

	if (file->at.index == 0)
		return optimfs_fail(err, EISDIR, "is a directory");
	if (ofs_indexes_same(snap, err) == -1 ||
	    ofs_view_open(snap, file->at, &file->view, &file->size, err) == -1)
		return ofs_file_failed(snap, file->at, 0, 0, err);
	return 0;
}

static int open_any(struct optimfs_file *file, struct optimfs_error *err)
{
	if (ofs_at_is_view(file->at))
		return open_view(file, err);
	if (ofs_at_made(file->snap, file->at))
		return ofs_overlay_open_made(file, err);
	return ofs_at_static(file->snap, file->at) ? open_static(file, err)
						   : open_mirrored(file, err);
}

/* Those that are open when a commit makes another checkpoint of fs are found
 * there again. */
static void link_file(struct optimfs_file *file)
{
	struct ofs_snapshot *snap = file->snap;

	pthread_mutex_lock(&snap->fs->lock);
	file->next = snap->fs->files;
	file->back = &snap->fs->files;
	if (file->next != NULL)
		file->next->back = &file->next;
	snap->fs->files = file;
	pthread_mutex_unlock(&snap->fs->lock);
}

static void unlink_file(struct optimfs_file *file)
{
	if (!ofs_fs_changes(file->snap->fs))
		return;
	pthread_mutex_lock(&file->snap->fs->lock);
	if (file->back != NULL)
		*file->back = file->next;
	if (file->next != NULL)
		file->next->back = file->back;
	pthread_mutex_unlock(&file->snap->fs->lock);
}

int ofs_file_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f;
	struct optimfs_error own;
	int ret;

	if (err == NULL)
		err = &own;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return optimfs_fail(err, ENOMEM, "open file");
	f->fs = snap->fs;
	f->snap = snap;
	f->at = at;
	ofs_composition_init(&f->comp);
	ofs_file_ahead_init(f);
	ret = open_any(f, err);
	if (ret == -1) {
		optimfs_file_close(f);
		return -1;
	}
	if (ofs_fs_changes(snap->fs))
		link_file(f);
	atomic_fetch_add_explicit(&snap->fs->opens, 1, memory_order_relaxed);
	*file = f;
	return 0;
}

int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	struct ofs_at at;
	int ret = ofs_node_at(snap, node, &at, err);

	if (ret == 0)
		ret = ofs_file_open(snap, at, file, err);
	ofs_leave(snap);
	return ret;
}

/* What a file holds, but for its name. */
static void empty_file(struct optimfs_file *file)
{
	ofs_overlay_close(file);
	ofs_composition_fini(&file->comp);
	ofs_blob_unref(file->blob);
	ofs_view_close(file->view);
	file->staged = NULL;
	file->blob = NULL;
	file->view = NULL;
	file->lines = NULL;
}

void optimfs_file_close(struct optimfs_file *file)
{
	struct ofs_snapshot *snap;

	if (file == NULL)
		return;
	ofs_file_ahead_fini(file);
	snap = ofs_enter(file->fs);
	unlink_file(file);
	empty_file(file);
	ofs_leave(snap);
	ofs_file_drop_plans(file);
	free(file);
}

void ofs_file_leave(struct optimfs_file *file)
{
	empty_file(file);
	ofs_composition_init(&file->comp);
	file->size = 0;
}

int ofs_file_return(struct optimfs_file *file, struct ofs_snapshot *snap,
    struct ofs_at at, struct optimfs_error *err)
{
	file->snap = snap;
	file->at = at;
	if (open_any(file, err) == 0)
		return 0;
	ofs_file_leave(file);
	return -1;
}
