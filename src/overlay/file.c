/* file.c - the bytes written to a file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"
#include "base/xxh3.h"
#include "overlay/overlay_impl.h"

static struct ofs_overlay_file *file_new(uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_alloc(1, sizeof(*f), err);

	if (f == NULL)
		return NULL;
	pthread_rwlock_init(&f->lock, NULL);
	f->index = index;
	f->entry = OFS_NONE;
	f->fd = -1;
	f->draft.limit = OFS_TEXT_MAX;
	return f;
}

struct ofs_overlay_file *ofs_overlay_element(const uint8_t element[16],
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = file_new(OFS_NONE, err);

	if (f == NULL)
		return NULL;
	f->text = true;
	memcpy(f->element, element, sizeof(f->element));
	f->accepted = ofs_blob_new(0, err);
	if (f->accepted != NULL)
		return f;
	ofs_overlay_file_free(f);
	return NULL;
}

/* Where the file of a node is noted, or will be. Tied names of a tensor share one
 * file. In a new checkpoint only those of a text do; others have a list. */
static struct ofs_overlay_file **slot_of(const struct ofs_overlay *o,
    uint32_t index)
{
	const struct ofs_overlay_node *v = ofs_overlay_node(o, index);
	struct ofs_overlay_file **at;
	const struct ofs_entry *entry;

	if (!ofs_overlay_is_made(o, index)) {
		entry = &o->cat->entries[o->tree->node[index].entry];
		if (entry->kind == OFS_ENTRY_TENSOR) {
			at = &o->tensor[entry->ref];
			while (o->hidden != NULL && *at != NULL &&
			    !(*at)->text && (*at)->index != index)
				at = &(*at)->tied;
			return at;
		}
	}
	return v == NULL ? NULL : (struct ofs_overlay_file **)&v->file;
}

struct ofs_overlay_file *ofs_overlay_of_tensor(struct ofs_overlay *o,
    uint32_t tensor, uint32_t node)
{
	struct ofs_overlay_file *f;

	pthread_rwlock_rdlock(&o->names);
	if (o->hidden != NULL && node < o->tree->n)
		f = ofs_overlay_file(o, node);
	else if (o->supply != NULL && o->supply[tensor] != NULL)
		f = o->supply[tensor];
	else
		f = o->tensor[tensor];
	pthread_rwlock_unlock(&o->names);
	return f;
}

struct ofs_overlay_file *ofs_overlay_file(const struct ofs_overlay *o,
    uint32_t index)
{
	struct ofs_overlay_file **slot;

	if (ofs_overlay_is_dir(o, index))
		return NULL;
	slot = slot_of(o, index);
	return slot == NULL ? NULL : *slot;
}

/* As the checkpoint has it. */
static void set_base(const struct ofs_overlay *o, struct ofs_overlay_file *f)
{
	f->size = f->base = f->full = ofs_tensor_bytes(o->cat,
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]));
}

struct ofs_overlay_file *ofs_overlay_file_touch(struct ofs_overlay *o,
    uint32_t index, struct optimfs_error *err)
{
	struct ofs_overlay_file *f, **slot;

	if (ofs_overlay_touch(o, index, err) == NULL)
		return NULL;
	f = ofs_overlay_file(o, index);
	if (f != NULL)
		return f;
	slot = slot_of(o, index);
	f = file_new(index, err);
	*slot = f;
	if (f == NULL)
		return NULL;
	f->overlay = o;
	f->next = o->files;
	o->files = f;
	if (ofs_overlay_is_made(o, index))
		return f;
	f->entry = o->tree->node[index].entry;
	f->text = ofs_entry_is_text(o->cat, f->entry);
	if (f->text)
		return f;
	if (o->hidden == NULL)
		set_base(o, f);
	return f;
}

static void keep_fd(struct ofs_overlay_file *f, int fd)
{
	f->fd = fd;
	if (fd != -1)
		atomic_fetch_add(&f->overlay->nopen, 1);
}

static void drop_fd(struct ofs_overlay_file *f)
{
	if (f->fd == -1)
		return;
	close(f->fd);
	f->fd = -1;
	atomic_fetch_sub(&f->overlay->nopen, 1);
}

void ofs_overlay_file_free(struct ofs_overlay_file *f)
{
	drop_fd(f);
	ofs_ranges_fini(&f->written);
	ofs_ranges_fini(&f->lost);
	ofs_blob_unref(f->accepted);
	ofs_buf_fini(&f->draft);
	free(f->shape);
	pthread_rwlock_destroy(&f->lock);
	free(f);
}

/* f->lock is held for writing, and the bytes have not changed yet. */
static void new_version(struct ofs_overlay_file *f)
{
	f->version = atomic_fetch_add(&f->overlay->last_version, 1) + 1;
}

uint64_t ofs_overlay_file_version(struct ofs_overlay_file *f)
{
	uint64_t version;

	pthread_rwlock_rdlock(&f->lock);
	version = f->version;
	pthread_rwlock_unlock(&f->lock);
	return version;
}

bool ofs_overlay_file_differs(const struct ofs_overlay_file *f)
{
	if (f->entry == OFS_NONE)
		return true;
	if (f->text)
		return f->accepted != NULL;
	return f->written.n > 0 || f->lost.n > 0 || f->size != f->full ||
	    f->shape != NULL || f->dtype != OFS_DTYPE_NONE;
}

void ofs_overlay_file_revert(struct ofs_overlay *o, struct ofs_overlay_file *f)
{
	pthread_rwlock_wrlock(&f->lock);
	drop_fd(f);
	if (f->id != 0)
		ofs_stage_data_remove(o->stage, f->id);
	f->id = f->version = 0;
	ofs_ranges_cut(&f->written, 0);
	ofs_ranges_cut(&f->lost, 0);
	ofs_blob_unref(f->accepted);
	f->accepted = NULL;
	f->draft.len = 0;
	f->has_draft = f->touched = f->unwritten = false;
	free(f->shape);
	f->shape = NULL;
	f->dtype = OFS_DTYPE_NONE;
	f->size = f->base = f->full = 0;
	f->mtime_ns = 0;
	if (f->entry != OFS_NONE && !f->text && o->hidden == NULL)
		set_base(o, f);
	f->dead = f->entry == OFS_NONE;
	pthread_rwlock_unlock(&f->lock);
}

/* Creates the data file and its record in the journal. */
static int make_data(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct ofs_record r = { .type = OFS_REC_DATA };
	uint64_t id = o->last_id + 1;
	char *path;
	int fd, ret;

	/* a file that was removed while open has no path and needs none */
	path = ofs_overlay_path(o, f->index, NULL, err);
	fd = ofs_stage_data(o->stage, id, true, err);
	r.num[0] = id;
	r.a = path == NULL ? "" : path;
	ret = fd == -1 ? -1 : ofs_overlay_record(o, &r, err);
	free(path);
	if (ret == -1) {
		if (fd != -1)
			close(fd);
		return -1;
	}
	o->last_id = id;
	f->id = id;
	keep_fd(f, fd);
	return 0;
}

int ofs_overlay_file_adopt(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t id, struct optimfs_error *err)
{
	drop_fd(f);
	keep_fd(f, ofs_stage_data(o->stage, id, false, err));
	if (f->fd == -1)
		return -1;
	f->id = id;
	new_version(f);
	f->unsynced = true; /* as far as we know */
	if (id > o->last_id)
		o->last_id = id;
	return 0;
}

int ofs_overlay_file_fd(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	if (f->fd == -1 && f->id != 0)
		keep_fd(f, ofs_stage_data(o->stage, f->id, false, err));
	return f->fd;
}

/* Is there storage to write to? 1, 0, or -1 (failed). */
static int has_data(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&f->lock);
	ret = f->id != 0;
	if (ret == 1 && ofs_overlay_file_fd(o, f, err) == -1)
		ret = -1;
	pthread_rwlock_unlock(&f->lock);
	return ret;
}

/* Prepares storage for a write. A new file needs the lock of names for its
 * path; named: the caller has it. */
static int need_data(struct ofs_overlay *o, struct ofs_overlay_file *f,
    bool named, struct optimfs_error *err)
{
	int ret = has_data(o, f, err);

	if (ret != 0)
		return ret == 1 ? 0 : -1;
	if (!named)
		pthread_rwlock_wrlock(&o->names);
	pthread_rwlock_wrlock(&f->lock);
	if (f->id == 0)
		ret = make_data(o, f, err);
	pthread_rwlock_unlock(&f->lock);
	if (!named)
		pthread_rwlock_unlock(&o->names);
	return ret;
}

/* After need_data: meanwhile the file may have been closed to make room, or
 * removed. f->lock is held for writing. */
static int open_data(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	if (f->id == 0)
		return optimfs_fail(err, ESTALE, "it was removed");
	return ofs_overlay_file_fd(o, f, err) == -1 ? -1 : 0;
}

int ofs_overlay_file_lose(struct ofs_overlay_file *f, uint64_t off,
    uint64_t end, const struct optimfs_error *err)
{
	struct optimfs_error own;

	if (ofs_ranges_add(&f->lost, off, end, &own) == 0 && err != NULL)
		f->why = *err;
	return -1;
}

static int record_size(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	struct ofs_record r = { .type = OFS_REC_SIZE, .num = { f->id, size } };

	return ofs_overlay_record(o, &r, err);
}

static int set_length(const struct ofs_overlay_file *f, uint64_t size,
    struct optimfs_error *err)
{
	if (ftruncate(f->fd, (off_t)size) == 0)
		return 0;
	return optimfs_fail(err, errno, "OFS801 staged file: %m");
}

/* Extends the file to size with zeros. */
static int extend(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	if (size <= f->size)
		return 0;
	/* if the record comes first and this fails, a replay makes zeros */
	if (set_length(f, size, err) == -1 ||
	    record_size(o, f, size, err) == -1 ||
	    ofs_ranges_add(&f->written, f->size, size, err) == -1)
		return -1;
	f->size = size;
	return 0;
}

static int write_locked(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	struct ofs_record r = { .type = OFS_REC_WRITE };

	if (open_data(o, f, err) == -1)
		return -1;
	new_version(f);
	if (extend(o, f, off, err) == -1)
		return -1;
	f->unsynced = true;
	if (ofs_stage_write(f->fd, buf, n, off, err) == -1)
		return ofs_overlay_file_lose(f, off, off + n, err);
	r.num[0] = f->id;
	r.num[1] = off;
	r.num[2] = n;
	r.num[3] = XXH3_64bits(buf, n);
	if (ofs_overlay_record(o, &r, err) == -1 ||
	    ofs_ranges_add(&f->written, off, off + n, err) == -1)
		return ofs_overlay_file_lose(f, off, off + n, err);
	ofs_ranges_remove(&f->lost, off, off + n, NULL);
	if (off + n > f->size)
		f->size = off + n;
	f->mtime_ns = ofs_now_ns();
	return 0;
}

/* May an added file be a text? Then views use its value. */
static bool may_be_text(const struct ofs_overlay_file *f)
{
	return f->entry == OFS_NONE &&
	    (f->dtype == OFS_DTYPE_NONE || f->shape == NULL || f->ndim == 0);
}

int ofs_overlay_file_write(struct ofs_overlay *o, struct ofs_overlay_file *f,
    const void *buf, uint64_t n, uint64_t off, struct optimfs_error *err)
{
	bool text;
	int ret;

	if (n == 0)
		return 0;
	if (need_data(o, f, false, err) == -1)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	ret = write_locked(o, f, buf, n, off, err);
	text = may_be_text(f);
	pthread_rwlock_unlock(&f->lock);
	ofs_overlay_changed(o, text);
	return ret;
}

/* Bytes beyond the end must read as zeros when the file grows again. */
static int resize_locked(struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint64_t size, struct optimfs_error *err)
{
	if (open_data(o, f, err) == -1)
		return -1;
	new_version(f);
	if (size > f->size)
		return extend(o, f, size, err);
	if (size == f->size)
		return 0;
	if (record_size(o, f, size, err) == -1)
		return -1;
	f->unsynced = true;
	if (set_length(f, size, err) == -1)
		return -1;
	ofs_ranges_cut(&f->written, size);
	ofs_ranges_cut(&f->lost, size);
	f->size = size;
	if (f->base > size)
		f->base = size;
	return 0;
}

int ofs_overlay_file_resize(struct ofs_overlay *o, struct ofs_overlay_file *f,
    bool named, uint64_t size, struct optimfs_error *err)
{
	bool text;
	int ret;

	if (need_data(o, f, named, err) == -1)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	ret = resize_locked(o, f, size, err);
	if (ret == 0)
		f->mtime_ns = ofs_now_ns();
	text = may_be_text(f);
	pthread_rwlock_unlock(&f->lock);
	ofs_overlay_changed(o, text);
	return ret;
}

/* A file that was closed meanwhile is opened for this. f->lock is held for
 * writing. */
static int sync_bytes(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct ofs_record r = { .type = OFS_REC_SYNC, .num = { f->id } };

	if (f->unsynced && f->id != 0 && ofs_overlay_file_fd(o, f, err) == -1)
		return -1;
	if (f->fd != -1 && !o->scratch && ofs_sys_fdatasync(f->fd) == -1) {
		optimfs_fail(err, errno, "OFS809 staged file: %m");
		/* the kernel drops what it could not write, so remember it */
		return ofs_overlay_file_lose(f, 0, f->size == 0 ? 1 : f->size,
		    err);
	}
	if (f->id != 0 && ofs_overlay_record(o, &r, err) == -1)
		return -1;
	f->unsynced = false;
	return 0;
}

int ofs_overlay_file_sync(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	int ret;

	pthread_rwlock_wrlock(&f->lock);
	ret = sync_bytes(o, f, err);
	pthread_rwlock_unlock(&f->lock);
	return ret == -1 ? -1 : ofs_stage_sync(o->stage, err);
}

/* Bytes that could not be written before are an error, too. The lock of names is
 * held. */
static int keep_bytes(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	bool idle;
	int ret = 0;

	pthread_rwlock_wrlock(&f->lock);
	idle = f->fd == -1;
	if (!f->dead && f->lost.n > 0)
		ret = optimfs_fail_with(err, &f->why);
	else if (!f->dead && f->unsynced)
		ret = sync_bytes(o, f, err);
	if (idle)
		drop_fd(f);
	pthread_rwlock_unlock(&f->lock);
	return ret;
}

int ofs_overlay_sync(struct ofs_overlay *o, struct optimfs_error *err)
{
	int ret = 0;

	if (o->scratch)
		return 0;
	pthread_rwlock_rdlock(&o->names);
	for (struct ofs_overlay_file *f = o->files; f != NULL && ret == 0;
	     f = f->next) {
		char *path;

		ret = keep_bytes(o, f, err);
		if (ret == 0)
			continue;
		path = ofs_overlay_path(o, f->index, NULL, NULL);
		optimfs_fail_in(err, "%s", path == NULL ? "a file" : path);
		free(path);
	}
	pthread_rwlock_unlock(&o->names);
	return ret == -1 ? -1 : ofs_stage_sync(o->stage, err);
}

/* A scratch file has no name and cannot be opened again. */
void ofs_overlay_file_idle(struct ofs_overlay *o, struct ofs_overlay_file *f)
{
	if (o->scratch)
		return;
	pthread_rwlock_wrlock(&f->lock);
	drop_fd(f);
	pthread_rwlock_unlock(&f->lock);
}

static int apply_ranges(struct ofs_overlay_file *f, uint8_t *buf, uint64_t off,
    uint64_t end, struct optimfs_error *err)
{
	for (size_t i = ofs_ranges_find(&f->written, off); i < f->written.n;
	     i++) {
		const struct ofs_range *r = &f->written.v[i];
		uint64_t lo = r->off > off ? r->off : off;
		uint64_t hi = r->end < end ? r->end : end;

		if (lo >= end)
			break;
		if (ofs_pread_all(f->fd, buf + (lo - off), hi - lo, lo, err) ==
		    -1)
			return optimfs_fail_in(err, "staged bytes");
	}
	return 0;
}

/* Is every byte staged or stored? EIO otherwise. */
static int check_whole(const struct ofs_overlay_file *f, uint64_t off,
    uint64_t end, struct optimfs_error *err)
{
	uint64_t from = off > f->base ? off : f->base;

	if (from < end && !ofs_ranges_cover(&f->written, from, end))
		return optimfs_fail(err, EIO,
		    "OFS301 only %" PRIu64 " bytes have been written", f->size);
	return 0;
}

static int apply_locked(const struct ofs_overlay *o, struct ofs_overlay_file *f,
    uint8_t *buf, uint64_t off, uint64_t end, uint64_t slack,
    struct optimfs_error *err)
{
	if (f->text) {
		if (f->unwritten || (f->accepted == NULL && o->hidden != NULL))
			return optimfs_fail(err, EIO,
			    "OFS301 nothing was written");
		if (f->accepted != NULL)
			memcpy(buf, f->element + off, end - off);
		return 0;
	}
	if (end > f->size && end - f->size <= slack && off < f->size)
		end = f->size;
	if (ofs_ranges_meet(&f->lost, off, end))
		return optimfs_fail_as(err, EIO, "%s", f->why.text);
	if (check_whole(f, off, end, err) == -1)
		return -1;
	return apply_ranges(f, buf, off, end, err);
}

/* Closes files of the list from i to end that nobody has open. */
static void close_idle(struct ofs_overlay *o, struct ofs_overlay_file *i,
    const struct ofs_overlay_file *end, size_t leave)
{
	for (; i != end && atomic_load(&o->nopen) > leave; i = i->next)
		if (i->opens == 0 && pthread_rwlock_trywrlock(&i->lock) == 0) {
			drop_fd(i);
			pthread_rwlock_unlock(&i->lock);
		}
}

/* A file that nobody has open stays open for readers of views, but there may be
 * more of them than descriptors. f is locked; the list of files only grows at its
 * head. */
static void make_room(struct ofs_overlay *o, const struct ofs_overlay_file *f)
{
	size_t most = ofs_fds_limit() / 4;

	if (o->scratch || atomic_load(&o->nopen) < most)
		return;
	close_idle(o, f->next, NULL, most / 2);
	close_idle(o, o->files, f, most / 2);
}

/* Locks the file to read its bytes, for pthread_rwlock_unlock in any case. */
static int lock_data(struct ofs_overlay *o, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	pthread_rwlock_rdlock(&f->lock);
	if (f->fd != -1 || f->id == 0)
		return 0;
	pthread_rwlock_unlock(&f->lock);
	pthread_rwlock_wrlock(&f->lock);
	make_room(o, f);
	return ofs_overlay_file_fd(o, f, err) == -1 && f->id != 0 ? -1 : 0;
}

int ofs_overlay_file_apply(struct ofs_overlay *o, struct ofs_overlay_file *f,
    void *buf, uint64_t off, uint64_t end, uint64_t slack,
    struct optimfs_error *err)
{
	int ret = lock_data(o, f, err);

	if (ret == 0)
		ret = apply_locked(o, f, buf, off, end, slack, err);
	pthread_rwlock_unlock(&f->lock);
	return ret;
}

/* The bytes of a file that is closed meanwhile stay where they are. */
int ofs_overlay_file_read(void *file, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = file;
	int ret = lock_data(f->overlay, f, err);

	if (ret == 0 && !ofs_ranges_cover(&f->written, off, off + n))
		ret = optimfs_fail(err, ESTALE,
		    "OFS776 the change was discarded: look it up again");
	if (ret == 0)
		ret = ofs_pread_all(f->fd, buf, n, off, err);
	pthread_rwlock_unlock(&f->lock);
	return ret;
}

struct ofs_overlay_file *ofs_overlay_of_node(struct ofs_overlay *o,
    uint32_t node)
{
	struct ofs_overlay_file *f;

	pthread_rwlock_rdlock(&o->names);
	f = ofs_overlay_file(o, node);
	pthread_rwlock_unlock(&o->names);
	return f;
}
