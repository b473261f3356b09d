/* files.c - the checkpoint's open files, checked to be the mounted ones */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fds.h"
#include "base/memory.h"
#include "base/sys.h"
#include "store/badspots.h"

struct ofs_file {
	int fd;
	struct ofs_stamp stamp; /* as last checked */
};

struct ofs_open_files {
	const struct ofs_catalog *cat;
	struct ofs_counters *counters;
	struct ofs_badspots bad;
	struct ofs_fds *fds;
	pthread_mutex_t lock;   /* guards stamps */
	struct ofs_file file[]; /* of each object, valid while it is open */
};

static ofs_fds_open_fn open_object;

static void *files_new(void *ctx, const struct ofs_catalog *cat,
    struct ofs_counters *counters, struct optimfs_error *err)
{
	struct ofs_open_files *files = ofs_alloc(1,
	    sizeof(*files) + cat->nobjects * sizeof(files->file[0]), err);

	(void)ctx;
	if (files == NULL)
		return NULL;
	files->cat = cat;
	files->counters = counters;
	/* the other half is for writers: commits */
	files->fds = ofs_fds_new(cat->nobjects, (ofs_fds_limit() + 1) / 2,
	    open_object, files, err);
	if (files->fds == NULL) {
		free(files);
		return NULL;
	}
	pthread_mutex_init(&files->lock, NULL);
	ofs_badspots_init(&files->bad);
	return files;
}

static void files_free(void *ctx)
{
	struct ofs_open_files *files = ctx;

	ofs_fds_free(files->fds);
	ofs_badspots_fini(&files->bad);
	pthread_mutex_destroy(&files->lock);
	free(files);
}

static const struct ofs_object *object_of(const struct ofs_open_files *files,
    const struct ofs_file *file)
{
	return &files->cat->objects[file - files->file];
}

static int stale(const struct ofs_object *o, const struct stat *st,
    struct optimfs_error *err)
{
	if ((uint64_t)st->st_size != o->size)
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s was %" PRIu64 " bytes when it was opened, is "
		    "%jd: the checkpoint changed; open or mount it again",
		    o->path, o->size, (intmax_t)st->st_size);
	return optimfs_fail(err, ESTALE,
	    "OFS751 %s (%" PRIu64 " bytes when opened, %jd now) was %s since; "
	    "open or mount the checkpoint again",
	    o->path, o->size, (intmax_t)st->st_size,
	    st->st_ino != o->ino ? "replaced" : "written");
}

/* Hard-linking, replacing by rename, unlinking, chmod and chown change the
 * ctime of a file whose data stay the same. A ctime that changed together with
 * the link count, mode or owner is therefore accepted; any other change may be
 * a write after which the mtime was reset. */
static bool same_bytes(const struct ofs_stamp *was, const struct ofs_stamp *is)
{
	return was->ctime_ns == is->ctime_ns || was->nlink != is->nlink ||
	    was->mode != is->mode || was->uid != is->uid || was->gid != is->gid;
}

static bool same_size(const struct ofs_object *o, const struct stat *st)
{
	return (uint64_t)st->st_size == o->size &&
	    ofs_time_ns(&st->st_mtim) == o->mtime_ns;
}

/* Translate a failure to open o into an error for the reader. */
static int open_failed(const struct ofs_dir *dir, const struct ofs_object *o,
    struct optimfs_error *err)
{
	struct stat st;

	switch (err->code) {
	case ENOENT:
		/* a commit may have replaced the whole directory */
		if (fstat(dir->fd, &st) == 0 && st.st_nlink == 0)
			return optimfs_fail(err, ESTALE,
			    "OFS751 %s: the checkpoint was replaced since; "
			    "open or mount it again",
			    o->path);
		return optimfs_fail(err, EIO,
		    "OFS754 %s was there when opened and has been removed",
		    o->path);
	case ESTALE:
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s (%" PRIu64 " bytes when opened): stale handle; "
		    "open or mount the checkpoint again",
		    o->path, o->size);
	case EACCES: /* another file may have other permissions */
		if (ofs_dir_stat(dir, o->path, &st) && st.st_ino != o->ino)
			return stale(o, &st, err);
		return -1;
	default:
		return -1;
	}
}

static int open_object(void *ctx, uint32_t object, struct optimfs_error *err)
{
	struct ofs_open_files *files = ctx;
	struct ofs_file *file = &files->file[object];
	const struct ofs_object *o = &files->cat->objects[object];
	struct stat st;
	int fd = ofs_dir_open_file(&files->cat->dir, o->path, &st, err);

	if (fd == -1)
		return open_failed(&files->cat->dir, o, err);
	file->stamp = ofs_stamp_of(&st);
	if (st.st_ino != o->ino || !same_size(o, &st) ||
	    !same_bytes(&o->stamp, &file->stamp)) {
		close(fd);
		return stale(o, &st, err);
	}
	file->fd = fd;
	return fd;
}

static void *files_get(void *ctx, uint32_t object, struct optimfs_error *err)
{
	struct ofs_open_files *files = ctx;

	if (files->cat->objects[object].missing) {
		ofs_fail_lost(err, EIO, OPTIMFS_LOST_MISSING, "OFS140",
		    files->cat->objects[object].path, " is missing");
		return NULL;
	}
	return ofs_fds_get(files->fds, object, err) == -1
	    ? NULL
	    : &files->file[object];
}

static void files_put(void *ctx, void *file)
{
	struct ofs_open_files *files = ctx;

	ofs_fds_put(files->fds,
	    (uint32_t)((struct ofs_file *)file - files->file));
}

static int files_check(void *ctx, void *pin, struct optimfs_error *err)
{
	struct ofs_open_files *files = ctx;
	struct ofs_file *file = pin;
	const struct ofs_object *o = object_of(files, file);
	struct ofs_stamp now;
	struct stat st;
	bool same;

	if (fstat(file->fd, &st) == -1)
		return optimfs_fail(err, errno == ESTALE ? ESTALE : EIO,
		    "OFS755 %s: fstat: %m", o->path);
	if (!same_size(o, &st))
		return stale(o, &st, err);
	now = ofs_stamp_of(&st);
	pthread_mutex_lock(&files->lock);
	same = same_bytes(&file->stamp, &now);
	if (same)
		file->stamp = now;
	pthread_mutex_unlock(&files->lock);
	return same ? 0 : stale(o, &st, err);
}

/* The attempt to read a byte shows the kernel how the file is read. Then it
 * reads ahead further, and in larger pages, than after fadvise; and bytes in
 * the cache need not be announced. */
static void files_willneed(void *pin, uint64_t off, uint64_t len)
{
	const struct ofs_file *file = pin;
	char byte;
	struct iovec iov = { &byte, 1 };

	if (preadv2(file->fd, &iov, 1, (off_t)off, RWF_NOWAIT) == -1)
		(void)posix_fadvise(file->fd, (off_t)off, (off_t)len,
		    POSIX_FADV_WILLNEED);
}

/* Most files have no holes, which costs no system call. */
static bool files_hole(void *ctx, void *pin, uint64_t off, uint64_t len)
{
	struct ofs_open_files *files = ctx;
	struct ofs_file *file = pin;
	const struct ofs_object *o = object_of(files, file);
	struct optimfs_error changed;
	off_t data;

	if (o->blocks >= o->size)
		return false;
	data = lseek(file->fd, (off_t)off, SEEK_DATA);
	if (data == -1 ? errno != ENXIO : (uint64_t)data - off < len)
		return false;
	return files_check(files, file, &changed) == 0;
}

/* Advance by got bytes. */
static void advance(struct iovec **iov, int *n, size_t got)
{
	while (*n > 0 && got >= (*iov)->iov_len) {
		got -= (*iov)->iov_len;
		(*iov)++;
		(*n)--;
	}
	if (*n > 0) {
		(*iov)->iov_base = (uint8_t *)(*iov)->iov_base + got;
		(*iov)->iov_len -= got;
	}
}

static int at_end(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, struct optimfs_error *err)
{
	if (files_check(files, file, err) == -1)
		return -1;
	return ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603",
	    object_of(files, file)->path,
	    " is short: nothing at offset %" PRIu64, off);
}

static int unreadable(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, int code, struct optimfs_error *err)
{
	const char *path = object_of(files, file)->path;

	if (code == ESTALE)
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s: stale handle at offset %" PRIu64, path, off);
	if (code == EIO)
		ofs_badspots_add(&files->bad, (uint32_t)(file - files->file),
		    off);
	errno = code;
	return optimfs_fail(err, code == ETIMEDOUT ? code : EIO,
	    "OFS755 %s cannot be read at offset %" PRIu64 ": %m", path, off);
}

static int known_bad(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, uint64_t len, struct optimfs_error *err)
{
	uint64_t at;

	if (!ofs_badspots_hit(&files->bad, (uint32_t)(file - files->file), off,
		len, &at))
		return 0;
	return optimfs_fail(err, EIO,
	    "OFS755 %s could not be read at offset %" PRIu64
	    " a moment ago: input/output error",
	    object_of(files, file)->path, at);
}

static uint64_t total(const struct iovec *iov, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

static int file_readv(const struct ofs_source *s, struct iovec *iov, int n,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_open_files *files = s->ctx;
	struct ofs_file *file = s->item;
	bool retried = false;
	ssize_t got;

	if (known_bad(files, file, off, total(iov, n), err) == -1)
		return -1;
	advance(&iov, &n, 0);
	while (n > 0) {
		got = n == 1
		    ? pread(file->fd, iov->iov_base, iov->iov_len, (off_t)off)
		    : preadv(file->fd, iov, n, (off_t)off);
		ofs_sys_moved();
		atomic_fetch_add_explicit(&files->counters->reads, 1,
		    memory_order_relaxed);
		if (got == -1 && errno == EINTR)
			continue;
		if (got == -1 && errno == EIO && !retried) {
			retried = true;
			continue;
		}
		if (got == -1)
			return unreadable(files, file, off, errno, err);
		if (got == 0)
			return at_end(files, file, off, err);
		atomic_fetch_add_explicit(&files->counters->read_bytes,
		    (uint64_t)got, memory_order_relaxed);
		off += (uint64_t)got;
		advance(&iov, &n, (size_t)got);
	}
	return 0;
}

static struct ofs_source files_source(void *files, void *file)
{
	return (struct ofs_source){ file_readv, files, file,
		object_of(files, file)->size };
}

const struct ofs_pins_ops ofs_open_files_pins = {
	.new = files_new,
	.free = files_free,
	.get = files_get,
	.put = files_put,
	.source = files_source,
	.check = files_check,
	.willneed = files_willneed,
	.hole = files_hole,
};
