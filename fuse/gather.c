/* gather.c - copy a whole file into memory that the kernel can map */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/gather.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/newmount.h"

/* Unit of work: a huge page. */
#define PIECE (UINT64_C(2) << 20)
enum { MAX_THREADS = 16 };

int ofs_gather_dir(uint64_t limit, struct optimfs_error *err)
{
	char size[32];
	int fs, dir = -1;

	fs = ofs_fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs == -1)
		return optimfs_fail(err, errno, "tmpfs: %m");
	snprintf(size, sizeof(size), "%" PRIu64, limit);
	/* works without huge pages too, but slower */
	(void)ofs_fsconfig(fs, FSCONFIG_SET_STRING, "huge", "within_size", 0);
	if (ofs_fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) == -1 ||
	    ofs_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) == -1 ||
	    ofs_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == -1)
		optimfs_fail(err, errno, "tmpfs: %m");
	else if ((dir = ofs_fsmount(fs, FSMOUNT_CLOEXEC,
		      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			  MOUNT_ATTR_NOEXEC)) == -1)
		optimfs_fail(err, errno, "tmpfs: %m");
	close(fs);
	return dir;
}

struct job {
	const struct ofs_gather *g;
	int fd;
	uint8_t *map;
	atomic_uint_least64_t next;
	atomic_bool failed;
	pthread_mutex_t lock; /* protects err */
	struct optimfs_error *err;
};

static void fail(struct job *j, const struct optimfs_error *why)
{
	pthread_mutex_lock(&j->lock);
	if (!atomic_exchange(&j->failed, true) && j->err != NULL)
		*j->err = *why;
	pthread_mutex_unlock(&j->lock);
}

/* Reads len bytes at off; a file shorter than its size is an error. */
static int read_piece(const struct ofs_gather *g, void *to, uint64_t off,
    uint64_t len, struct optimfs_error *err)
{
	ssize_t n;

	if (g->cancelled != NULL && g->cancelled(g->ctx))
		return optimfs_fail(err, ECANCELED,
		    "nobody is waiting any longer");
	n = optimfs_file_read(g->file, to, (size_t)len, off, err);
	if (n == -1)
		return -1;
	if ((uint64_t)n != len)
		return optimfs_fail(err, EIO,
		    "read %zd of %" PRIu64 " bytes at %" PRIu64, n, len, off);
	return 0;
}

/* Allocates the pages of a piece before they are written: running out of them
 * in a mapping raises SIGBUS. The kernel clears them meanwhile, so each thread
 * allocates its own. */
static int do_piece(const struct job *j, uint64_t off, uint64_t len,
    struct optimfs_error *err)
{
	if (fallocate(j->fd, 0, (off_t)off, (off_t)len) == -1)
		return optimfs_fail(err, ENOMEM, "tmpfs: %m");
	return read_piece(j->g, j->map + off, off, len, err);
}

static void *work(void *arg)
{
	struct job *j = arg;

	while (!atomic_load(&j->failed)) {
		uint64_t off = atomic_fetch_add(&j->next, PIECE);
		uint64_t len;
		struct optimfs_error err;

		if (off >= j->g->size)
			break;
		len = j->g->size - off < PIECE ? j->g->size - off : PIECE;
		if (do_piece(j, off, len, &err) == -1)
			fail(j, &err);
	}
	return NULL;
}

static int large(int fd, const struct ofs_gather *g, struct optimfs_error *err)
{
	struct job j = {
		.g = g, .fd = fd, .lock = PTHREAD_MUTEX_INITIALIZER, .err = err
	};
	uint64_t pieces = (g->size + PIECE - 1) / PIECE;
	unsigned n = 0, want = g->threads;
	pthread_t helper[MAX_THREADS];

	if (want > pieces)
		want = (unsigned)pieces;
	/* first, because the size decides which pages may be huge */
	if (ftruncate(fd, (off_t)g->size) == -1)
		return optimfs_fail(err, ENOMEM, "tmpfs: %m");
	j.map = mmap(NULL, g->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (j.map == MAP_FAILED)
		return optimfs_fail(err, errno, "mapping memory: %m");
	while (n + 1 < want && n < MAX_THREADS &&
	    pthread_create(&helper[n], NULL, work, &j) == 0)
		n++;
	work(&j);
	while (n > 0)
		pthread_join(helper[--n], NULL);
	munmap(j.map, g->size);
	return atomic_load(&j.failed) ? -1 : 0;
}

/* For a small file a copy is cheaper than page faults in a mapping. */
static int small(int fd, const struct ofs_gather *g, struct optimfs_error *err)
{
	if (read_piece(g, g->scratch, 0, g->size, err) == -1)
		return -1;
	if (pwrite(fd, g->scratch, g->size, 0) != (ssize_t)g->size)
		return optimfs_fail(err, ENOMEM, "tmpfs: %m");
	return 0;
}

int ofs_gather_file(int dir, const struct ofs_gather *g,
    struct optimfs_error *err)
{
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	int ret;

	if (fd == -1)
		return optimfs_fail(err, errno, "tmpfs: %m");
	if (g->size <= OFS_GATHER_SCRATCH)
		ret = small(fd, g, err);
	else
		ret = large(fd, g, err);
	if (ret == 0)
		return fd;
	close(fd);
	return -1;
}
