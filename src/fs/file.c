/* file.c - open files: what each holds, from its opening to its end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/view.h"
#include "fs/write_open.h"

int ofs_entry_sound(const struct optimfs *fs, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	uint32_t error = OFS_NONE;

	if (e->kind == OFS_ENTRY_TENSOR)
		error = fs->cat->tensors[e->ref].error;
	else if (e->kind == OFS_ENTRY_ITEM)
		error = fs->cat->items[e->ref].error;
	return error == OFS_NONE ? 0 : ofs_catalog_fail(fs->cat, error, err);
}

int ofs_file_failed(struct optimfs *fs, struct ofs_at at, uint64_t off,
    uint64_t len, struct optimfs_error *err)
{
	char path[256];

	ofs_at_path(fs, at, path, sizeof(path));
	if (len == 0)
		optimfs_fail_in(err, "%s", path);
	else
		optimfs_fail_in(err, "%s bytes %" PRIu64 "-%" PRIu64, path, off,
		    off + len - 1);
	ofs_failures_add(&fs->failures, ofs_node_of(at.space, at.index), path,
	    off, len, err);
	return -1;
}

uint64_t optimfs_file_size(const struct optimfs_file *file)
{
	uint64_t size, now;

	ofs_enter(file->fs);
	size = file->size;
	if (file->fs->edit != NULL && ofs_overlay_size(file, &now))
		size = now;
	ofs_leave(file->fs);
	return size;
}

static int open_static(struct optimfs_file *file, struct optimfs_error *err)
{
	struct optimfs *fs = file->fs;
	uint32_t i = file->at.index - fs->tree.n;
	const struct ofs_static_node *s = &ofs_static_nodes[i];
	struct ofs_buf text = { 0 };

	if (i == OFS_STATIC_MISSING && fs->edit != NULL &&
	    ofs_overlay_is_template(fs->edit)) {
		fs->write->missing(fs, &text);
		file->blob = ofs_blob_of(&text, err);
		if (file->blob == NULL)
			return -1;
		file->size = file->blob->len;
		return 0;
	}
	if (s->lines != NULL) {
		if (ofs_lines_index(&fs->lines[i], fs, err) == -1)
			return -1;
		file->lines = &fs->lines[i];
		file->size = file->lines->size;
		return 0;
	}
	if (s->text == NULL)
		return optimfs_fail(err, EISDIR, "%s is a directory", s->name);
	s->text(fs, &text);
	file->blob = ofs_blob_of(&text, err);
	if (file->blob == NULL)
		return -1;
	file->size = file->blob->len;
	return 0;
}

static int open_mirrored(struct optimfs_file *file, struct optimfs_error *err)
{
	struct optimfs *fs = file->fs;
	struct ofs_space *s = &fs->space[file->at.space];

	if (fs->tree.node[file->at.index].entry == OFS_NONE)
		return optimfs_fail(err, EISDIR, "is a directory");
	if (ofs_indexes_same(fs, err) == -1 ||
	    s->ops->open(fs, s, file->at.index, file, err) == -1)
		return ofs_file_failed(fs, file->at, 0, 0, err);
	if (file->blob != NULL)
		file->size = file->blob->len;
	else
		file->size = file->comp.size;
	return 0;
}

static int open_view(struct optimfs_file *file, struct optimfs_error *err)
{
	struct optimfs *fs = file->fs;

	if (file->at.index == 0)
		return optimfs_fail(err, EISDIR, "is a directory");
	if (ofs_indexes_same(fs, err) == -1 ||
	    ofs_view_open(fs, file->at, &file->view, &file->size, err) == -1)
		return ofs_file_failed(fs, file->at, 0, 0, err);
	return 0;
}

static int open_any(struct optimfs_file *file, struct optimfs_error *err)
{
	if (ofs_at_is_view(file->at))
		return open_view(file, err);
	if (ofs_at_made(file->fs, file->at))
		return ofs_overlay_open_made(file, err);
	return ofs_at_static(file->fs, file->at) ? open_static(file, err)
						 : open_mirrored(file, err);
}

/* Those that are open when a commit makes another checkpoint of fs are found
 * there again. */
static void link_file(struct optimfs_file *file)
{
	struct optimfs *fs = file->fs;

	pthread_mutex_lock(&fs->lock);
	file->next = fs->files;
	file->back = &fs->files;
	if (file->next != NULL)
		file->next->back = &file->next;
	fs->files = file;
	pthread_mutex_unlock(&fs->lock);
}

static void unlink_file(struct optimfs_file *file)
{
	if (!ofs_fs_changes(file->fs))
		return;
	pthread_mutex_lock(&file->fs->lock);
	if (file->back != NULL)
		*file->back = file->next;
	if (file->next != NULL)
		file->next->back = file->back;
	pthread_mutex_unlock(&file->fs->lock);
}

static int do_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f;
	struct optimfs_error own;
	struct ofs_at at;
	int ret;

	if (err == NULL)
		err = &own;
	if (ofs_node_at(fs, node, &at, err) == -1)
		return -1;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return optimfs_fail(err, ENOMEM, "open file");
	f->fs = fs;
	f->at = at;
	ofs_composition_init(&f->comp);
	ofs_file_ahead_init(f);
	ret = open_any(f, err);
	if (ret == -1) {
		optimfs_file_close(f);
		return -1;
	}
	if (ofs_fs_changes(fs))
		link_file(f);
	atomic_fetch_add_explicit(&fs->opens, 1, memory_order_relaxed);
	*file = f;
	return 0;
}

int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	int ret;

	ofs_enter(fs);
	ret = do_file_open(fs, node, file, err);
	ofs_leave(fs);
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
	struct optimfs *fs;

	if (file == NULL)
		return;
	fs = file->fs;
	ofs_file_ahead_fini(file);
	ofs_enter(fs);
	unlink_file(file);
	empty_file(file);
	ofs_leave(fs);
	ofs_file_drop_plans(file);
	free(file);
}

void ofs_file_leave(struct optimfs_file *file)
{
	empty_file(file);
	ofs_composition_init(&file->comp);
	file->size = 0;
}

int ofs_file_return(struct optimfs_file *file, struct ofs_at at,
    struct optimfs_error *err)
{
	file->at = at;
	if (open_any(file, err) == 0)
		return 0;
	ofs_file_leave(file);
	return -1;
}
