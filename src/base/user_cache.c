/* user_cache.c - files that save work when a checkpoint is opened again */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/user_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/copy.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/search.h"

/* A file ends with a checksum, so that it needs no other name while it is
 * written: a confined thread may not rename files. */
#define SUM 8

/* Reads all of an open file, and checks its sum. */
static int load(int fd, uint64_t max, uint8_t **data, uint64_t *n,
    struct optimfs_error *err)
{
	struct stat st;
	uint8_t *p;

	if (!ofs_user_cache_own(fd, S_IFREG) || fstat(fd, &st) == -1 || st.st_size < SUM ||
	    (uint64_t)st.st_size - SUM > max)
		return 0;
	*n = (uint64_t)st.st_size - SUM;
	p = malloc(*n + SUM);
	if (p == NULL)
		return ofs_no_memory(err);
	if (ofs_pread_all(fd, p, *n + SUM, 0, NULL) == 0 &&
	    ofs_le64(p + *n) == XXH3_64bits(p, *n)) {
		*data = p;
		return 1;
	}
	free(p);
	return 0;
}

int ofs_user_cache_load(const char *name, uint64_t max, uint8_t **data,
    uint64_t *n, struct optimfs_error *err)
{
	int dir = ofs_user_cache_open(), fd, ret = 0;

	if (dir == -1)
		return 0;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	close(dir);
	if (fd == -1)
		return 0;
	ret = load(fd, max, data, n, err);
	close(fd);
	return ret;
}

void ofs_user_cache_save(const char *name, const void *data, uint64_t n)
{
	int dir, fd;
	uint8_t sum[SUM];

	free(ofs_user_cache_make()); /* where no thread is confined */
	dir = ofs_user_cache_open();
	if (dir == -1)
		return;
	/* of a process that was killed, or damaged */
	(void)unlinkat(dir, name, 0);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd != -1) {
		ofs_put_le(sum, XXH3_64bits(data, n), SUM);
		if (ofs_write_all(fd, data, n, 0, NULL) == -1 ||
		    ofs_write_all(fd, sum, SUM, n, NULL) == -1)
			(void)unlinkat(dir, name, 0);
		close(fd);
	}
	close(dir);
}

struct cached {
	char name[64]; /* longer ones are not ours */
	int64_t mtime_ns;
	uint64_t size;
};

static int by_age(const void *a, const void *b)
{
	const struct cached *x = a, *y = b;

	return OFS_ORDER(x->mtime_ns, y->mtime_ns);
}

/* The files with a prefix, malloc'ed. */
static struct cached *list(DIR *dir, const char *prefix, size_t *n)
{
	struct cached *v = NULL;
	struct dirent *e;
	struct stat st;
	size_t cap = 0;

	for (*n = 0; (e = readdir(dir)) != NULL;) {
		size_t len = strlen(e->d_name);

		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
		    len >= sizeof(v->name) ||
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ==
			-1 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (ofs_grow(v, *n, cap, NULL) == -1)
			break;
		memcpy(v[*n].name, e->d_name, len + 1);
		v[*n].mtime_ns = ofs_time_ns(&st.st_mtim);
		v[(*n)++].size = (uint64_t)st.st_size;
	}
	return v;
}

void ofs_user_cache_trim(const char *prefix, uint64_t max)
{
	int fd = ofs_user_cache_open();
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	struct cached *v;
	uint64_t total = 0;
	size_t n;

	if (dir == NULL) {
		if (fd != -1)
			close(fd);
		return;
	}
	v = list(dir, prefix, &n);
	if (n > 1)
		qsort(v, n, sizeof(*v), by_age);
	for (size_t i = 0; i < n; i++)
		total += v[i].size;
	for (size_t i = 0; i < n && total > max; i++) {
		(void)unlinkat(dirfd(dir), v[i].name, 0);
		total -= v[i].size;
	}
	free(v);
	closedir(dir);
}
