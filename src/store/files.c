/* files.c - the checkpoint's open files, checked to be the mounted ones */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/fds.h"
#include "base/memory.h"
#include "store/badspots.h"

/* The interval and number of waits for other processes to close descriptors,
 * when this one has none left to close. */
#define NOFILE_WAIT_NS  (10 * 1000 * 1000)
#define NOFILE_WAIT_MAX 3000

struct ofs_file {
	TAILQ_ENTRY(ofs_file) lru; /* linked while refs is 0 */
	uint32_t object, refs;
	bool opening;
	int fd;
	struct ofs_stamp stamp; /* as last checked */
};

struct ofs_open_files {
	const struct ofs_catalog *cat;
	struct ofs_counters *counters;
	struct ofs_badspots bad;
	pthread_mutex_t lock; /* guards all below, and list entries of files */
	pthread_cond_t changed;
	struct ofs_file **of;        /* of each object; NULL: not open */
	TAILQ_HEAD(, ofs_file) idle; /* oldest first */
	size_t nopen, limit;
};

struct ofs_open_files *ofs_open_files_new(const struct ofs_catalog *cat,
    struct ofs_counters *counters, struct optimfs_error *err)
{
	struct ofs_open_files *files = calloc(1, sizeof(*files));

	if (files != NULL)
		files->of =
		    calloc((size_t)cat->nobjects + 1, sizeof(*files->of));
	if (files == NULL || files->of == NULL) {
		free(files);
		ofs_no_memory(err);
		return NULL;
	}
	files->cat = cat;
	files->counters = counters;
	/* the other half is for writers: src/push/writethrough.c, commits */
	files->limit = (ofs_fds_limit() + 1) / 2;
	TAILQ_INIT(&files->idle);
	pthread_mutex_init(&files->lock, NULL);
	pthread_cond_init(&files->changed, NULL);
	ofs_badspots_init(&files->bad);
	return files;
}

void ofs_open_files_free(struct ofs_open_files *files)
{
	struct ofs_file *file;

	if (files == NULL)
		return;
	while ((file = TAILQ_FIRST(&files->idle)) != NULL) {
		TAILQ_REMOVE(&files->idle, file, lru);
		close(file->fd);
		free(file);
	}
	ofs_badspots_fini(&files->bad);
	pthread_cond_destroy(&files->changed);
	pthread_mutex_destroy(&files->lock);
	free(files->of);
	free(files);
}

/* Close the least recently used descriptor; false when all are in use. The lock
 * is held. */
static bool close_idle(struct ofs_open_files *files)
{
	struct ofs_file *file = TAILQ_FIRST(&files->idle);

	if (file == NULL)
		return false;
	TAILQ_REMOVE(&files->idle, file, lru);
	files->of[file->object] = NULL;
	files->nopen--;
	close(file->fd);
	free(file);
	return true;
}

static int stale(const struct ofs_object *o, const struct stat *st,
    struct optimfs_error *err)
{
	if ((uint64_t)st->st_size != o->size)
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s was %" PRIu64 " bytes at mount, is %jd: the "
		    "checkpoint changed; mount it again",
		    o->path, o->size, (intmax_t)st->st_size);
	return optimfs_fail(err, ESTALE,
	    "OFS751 %s (%" PRIu64 " bytes at mount, %jd now) was %s since; "
	    "mount the checkpoint again",
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

/* A file that is being filled has the right size, but any mtime. */
static bool same_size(const struct ofs_open_files *files,
    const struct ofs_object *o, const struct stat *st)
{
	return (uint64_t)st->st_size == o->size &&
	    (files->cat->filling || ofs_time_ns(&st->st_mtim) == o->mtime_ns);
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
			    "mount it again",
			    o->path);
		return optimfs_fail(err, EIO,
		    "OFS754 %s was there at mount and has been removed",
		    o->path);
	case ESTALE:
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s (%" PRIu64 " bytes at mount): stale handle; "
		    "mount the checkpoint again",
		    o->path, o->size);
	case EACCES: /* another file may have other permissions */
		if (ofs_dir_stat(dir, o->path, &st) && st.st_ino != o->ino)
			return stale(o, &st, err);
		return -1;
	default:
		return -1;
	}
}

/* Open an object. The lock is not held. */
static int open_object(struct ofs_open_files *files, struct ofs_file *file,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &files->cat->objects[file->object];
	struct stat st;
	int fd = ofs_dir_open_file(&files->cat->dir, o->path, &st, err);

	if (fd == -1)
		return open_failed(&files->cat->dir, o, err);
	file->stamp = ofs_stamp_of(&st);
	if (st.st_ino != o->ino || !same_size(files, o, &st) ||
	    (!files->cat->filling && !same_bytes(&o->stamp, &file->stamp))) {
		close(fd);
		return stale(o, &st, err);
	}
	/* after each write, the next read would update the atime */
	if (files->cat->filling)
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NOATIME);
	file->fd = fd;
	return 0;
}

/* Wait for a descriptor of the process or the machine to be closed. The lock is
 * held. */
static void wait_a_little(struct ofs_open_files *files)
{
	struct timespec until = ofs_clock_after(CLOCK_REALTIME, NOFILE_WAIT_NS);

	pthread_cond_timedwait(&files->changed, &files->lock, &until);
}

/* Open file; when descriptors run out, close others. Called with the lock,
 * which is released during the system call. */
static int open_waiting(struct ofs_open_files *files, struct ofs_file *file,
    struct optimfs_error *err)
{
	int waited = 0, ret;

	for (;;) {
		pthread_mutex_unlock(&files->lock);
		ret = open_object(files, file, err);
		pthread_mutex_lock(&files->lock);
		if (ret == 0 || (err->code != EMFILE && err->code != ENFILE))
			return ret;
		if (close_idle(files))
			continue;
		if (waited++ == NOFILE_WAIT_MAX)
			return ret;
		wait_a_little(files);
	}
}

/* A file that this thread must open, when there is room. NULL with *err clear:
 * the state has changed, look it up again. The lock is held. */
static struct ofs_file *begin_open(struct ofs_open_files *files,
    uint32_t object, struct optimfs_error *err)
{
	struct ofs_file *file;

	if (files->nopen >= files->limit && !close_idle(files)) {
		pthread_cond_wait(&files->changed, &files->lock);
		return NULL;
	}
	file = ofs_alloc(1, sizeof(*file), err);
	if (file == NULL)
		return NULL;
	file->object = object;
	file->refs = 1;
	file->opening = true;
	file->fd = -1;
	files->of[object] = file;
	files->nopen++;
	return file;
}

static struct ofs_file *get_locked(struct ofs_open_files *files,
    uint32_t object, struct optimfs_error *err)
{
	struct ofs_file *file;
	int ret;

	err->code = 0;
	do {
		while ((file = files->of[object]) != NULL && file->opening)
			pthread_cond_wait(&files->changed, &files->lock);
		if (file != NULL) {
			if (file->refs++ == 0)
				TAILQ_REMOVE(&files->idle, file, lru);
			return file;
		}
		file = begin_open(files, object, err);
	} while (file == NULL && err->code == 0);
	if (file == NULL)
		return NULL;
	ret = open_waiting(files, file, err);
	file->opening = false;
	if (ret == -1) {
		files->of[object] = NULL;
		files->nopen--;
		free(file);
		file = NULL;
	}
	pthread_cond_broadcast(&files->changed);
	return file;
}

struct ofs_file *ofs_open_files_get(struct ofs_open_files *files,
    uint32_t object, struct optimfs_error *err)
{
	struct optimfs_error local;
	struct ofs_file *file;

	if (files->cat->objects[object].missing) {
		optimfs_fail(err, EIO, "OFS140 %s is missing",
		    files->cat->objects[object].path);
		return NULL;
	}
	if (err == NULL)
		err = &local;
	pthread_mutex_lock(&files->lock);
	file = get_locked(files, object, err);
	pthread_mutex_unlock(&files->lock);
	return file;
}

void ofs_open_files_put(struct ofs_open_files *files, struct ofs_file *file)
{
	pthread_mutex_lock(&files->lock);
	if (--file->refs == 0) {
		TAILQ_INSERT_TAIL(&files->idle, file, lru);
		pthread_cond_broadcast(&files->changed);
	}
	pthread_mutex_unlock(&files->lock);
}

int ofs_open_files_check(struct ofs_open_files *files, struct ofs_file *file,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &files->cat->objects[file->object];
	struct ofs_stamp now;
	struct stat st;
	bool same;

	if (fstat(file->fd, &st) == -1)
		return optimfs_fail(err, errno == ESTALE ? ESTALE : EIO,
		    "OFS755 %s: fstat: %m", o->path);
	if (!same_size(files, o, &st))
		return stale(o, &st, err);
	if (files->cat->filling)
		return 0;
	now = ofs_stamp_of(&st);
	pthread_mutex_lock(&files->lock);
	same = same_bytes(&file->stamp, &now);
	if (same)
		file->stamp = now;
	pthread_mutex_unlock(&files->lock);
	return same ? 0 : stale(o, &st, err);
}

/* The attempt to read a byte lets the kernel see how the file is read. It then
 * reads ahead further, and in larger pages, than it does when it is told; and
 * bytes that it has already need not be announced. */
void ofs_open_files_willneed(struct ofs_file *file, uint64_t off, uint64_t len)
{
	char byte;
	struct iovec iov = { &byte, 1 };

	if (preadv2(file->fd, &iov, 1, (off_t)off, RWF_NOWAIT) == -1)
		(void)posix_fadvise(file->fd, (off_t)off, (off_t)len,
		    POSIX_FADV_WILLNEED);
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
	if (ofs_open_files_check(files, file, err) == -1)
		return -1;
	return optimfs_fail(err, EIO,
	    "OFS603 %s is short: nothing at offset %" PRIu64,
	    files->cat->objects[file->object].path, off);
}

static int unreadable(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, int code, struct optimfs_error *err)
{
	const char *path = files->cat->objects[file->object].path;

	if (code == ESTALE)
		return optimfs_fail(err, ESTALE,
		    "OFS751 %s: stale handle at offset %" PRIu64, path, off);
	if (code == EIO)
		ofs_badspots_add(&files->bad, file->object, off);
	errno = code;
	return optimfs_fail(err, code == ETIMEDOUT ? code : EIO,
	    "OFS755 %s cannot be read at offset %" PRIu64 ": %m", path, off);
}

static int known_bad(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, uint64_t len, struct optimfs_error *err)
{
	uint64_t at;

	if (!ofs_badspots_hit(&files->bad, file->object, off, len, &at))
		return 0;
	return optimfs_fail(err, EIO,
	    "OFS755 %s could not be read at offset %" PRIu64
	    " a moment ago: input/output error",
	    files->cat->objects[file->object].path, at);
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

struct ofs_source ofs_open_files_source(struct ofs_open_files *files,
    struct ofs_file *file)
{
	return (struct ofs_source){ file_readv, files, file,
		files->cat->objects[file->object].size };
}
