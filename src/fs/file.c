/* file.c - open files, from open to close */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "fs/view.h"
#include "fs/write_open.h"

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
	if (!ofs_is_passing(snap)) /* otherwise the call is repeated */
		ofs_failures_add(&snap->fs->failures,
		    ofs_node_of(at.space, at.index), path, off, len, err);
	return -1;
}

uint64_t ofs_file_size(const struct optimfs_file *file)
{
	uint64_t size;

	if (file->snap->overlay != NULL && ofs_file_staged_size(file, &size))
		return size;
	return file->size;
}

static int open_static(struct optimfs_file *file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = file->snap;
	uint32_t i = file->at.index - snap->tree.n;
	const struct ofs_static_node *s = ofs_static_node(snap, i);
	struct ofs_buf text = { 0 };

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
		return ofs_file_open_made(file, err);
	return ofs_at_static(file->snap, file->at) ? open_static(file, err)
						   : open_mirrored(file, err);
}

/* Releases what the file reads from. */
static void empty_file(struct optimfs_file *file)
{
	ofs_file_close_staged(file);
	ofs_composition_fini(&file->comp);
	ofs_blob_unref(file->blob);
	ofs_view_close(file->view);
	ofs_snapshot_unref(file->snap);
}

struct optimfs_file *ofs_file_new(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_error *err)
{
	struct optimfs_file *file = ofs_alloc(1, sizeof(*file), err);

	if (file == NULL)
		return NULL;
	pthread_rwlock_init(&file->lock, NULL);
	ofs_file_ahead_init(file);
	file->fs = snap->fs;
	file->snap = ofs_snapshot_ref(snap);
	file->at = at;
	return file;
}

int ofs_file_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct optimfs_file *f = ofs_file_new(snap, at, err);

	err = OFS_SOME_ERROR(err);
	if (f == NULL)
		return -1;
	if (open_any(f, err) == -1) {
		optimfs_file_close(f);
		return -1;
	}
	atomic_fetch_add_explicit(&snap->fs->opens, 1, memory_order_relaxed);
	*file = f;
	return 0;
}

int ofs_node_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	struct ofs_at at;
	int ret;

	do {
		snap = ofs_enter(fs);
		ret = ofs_node_at(snap, node, &at, err);
		if (ret == 0)
			ret = ofs_file_open(snap, at, file, err);
	} while (ofs_leave_again(snap, ret == -1));
	return ret;
}

void optimfs_file_close(struct optimfs_file *file)
{
	struct optimfs *held;

	if (file == NULL)
		return;
	held = file->holds ? file->fs : NULL;
	ofs_file_ahead_fini(file);
	empty_file(file);
	ofs_file_drop_plans(file);
	pthread_rwlock_destroy(&file->lock);
	free(file);
	optimfs_close(held);
}

static void take_contents(struct optimfs_file *file, struct optimfs_file *from)
{
	empty_file(file);
	file->snap = from->snap;
	file->at = from->at;
	file->size = from->size;
	file->blob = from->blob;
	file->lines = from->lines;
	file->comp = from->comp;
	file->view = from->view;
	file->staged = from->staged;
}

/* Opens the file again, by its name, in snap, the snapshot after a commit. If
 * there is no such file, or it cannot be read, the file is lost, unless the
 * next commit is the cause. */
static void move_file(struct optimfs_file *file, struct ofs_snapshot *snap)
{
	struct optimfs_file from = { .fs = file->fs };
	struct optimfs_error err;
	char path[65536];

	ofs_at_path(file->snap, file->at, path, sizeof(path));
	if (ofs_resolve(snap, path, &from.at, &err) == 0) {
		from.snap = ofs_snapshot_ref(snap);
		if (open_any(&from, &err) == 0) {
			take_contents(file, &from);
			file->lost = false;
			return;
		}
		empty_file(&from);
	}
	if (!ofs_is_passing(snap))
		file->lost = true;
}

struct ofs_snapshot *ofs_file_enter(struct optimfs_file *file)
{
	struct ofs_snapshot *now;

	if (!file->fs->changes)
		return file->snap;
	now = ofs_enter(file->fs);
	pthread_rwlock_rdlock(&file->lock);
	if (!file->writes && file->snap->serial < now->serial) {
		pthread_rwlock_unlock(&file->lock);
		pthread_rwlock_wrlock(&file->lock);
		if (file->snap->serial < now->serial)
			move_file(file, now);
		pthread_rwlock_unlock(&file->lock);
		pthread_rwlock_rdlock(&file->lock);
	}
	return now;
}

bool ofs_file_leave(struct optimfs_file *file, struct ofs_snapshot *now,
    bool failed)
{
	if (!file->fs->changes)
		return false;
	pthread_rwlock_unlock(&file->lock);
	return ofs_leave_again(now, failed);
}

uint64_t optimfs_file_size(const struct optimfs_file *file)
{
	struct optimfs_file *f = (struct optimfs_file *)file;
	struct ofs_snapshot *snap = ofs_file_enter(f);
	uint64_t size = ofs_file_size(f);

	(void)ofs_file_leave(f, snap, false);
	return size;
}
