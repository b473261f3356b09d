/* handmade.c - a directory of files and a catalog of them, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "handmade.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "random.h"
#include "store/local.h"
#include "tap.h"

void handmade_init(struct handmade *h)
{
	struct optimfs_error err;
	struct ofs_dir dir;

	/* in a directory of its own, in which the stage can be beside it */
	snprintf(h->dir, sizeof(h->dir), "%s/optimfs.XXXXXX", tap_tmpdir());
	if (mkdtemp(h->dir) == NULL)
		bail_out("%s: %s", h->dir, strerror(errno));
	strcat(h->dir, "/ck");
	if (mkdir(h->dir, 0755) == -1)
		bail_out("%s: %s", h->dir, strerror(errno));
	if (ofs_dir_open(h->dir, &dir, &err) == -1)
		bail_out("%s", err.text);
	h->cat = ofs_catalog_new(&dir, &err);
	if (h->cat == NULL)
		bail_out("%s", err.text);
}

static int remove_one(const char *path, const struct stat *st, int type,
    struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void handmade_fini(struct handmade *h)
{
	ofs_catalog_free(h->cat);
	*strrchr(h->dir, '/') = '\0';
	nftw(h->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *handmade_path(struct handmade *h, const char *name)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%s", h->dir, name);
	return path;
}

static void write_file(const char *path, int flags, size_t off,
    const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0644);

	if (fd == -1 || pwrite(fd, bytes, n, (off_t)off) != (ssize_t)n ||
	    close(fd) == -1)
		bail_out("%s: %s", path, strerror(errno));
}

uint32_t handmade_file(struct handmade *h, const char *name, const void *bytes,
    size_t n)
{
	struct optimfs_error err;
	uint32_t object;

	if (bytes != NULL)
		write_file(handmade_path(h, name), O_CREAT | O_EXCL, 0, bytes,
		    n);
	object = ofs_catalog_object(h->cat, name, -1, &err);
	if (object == OFS_NONE)
		bail_out("%s", err.text);
	return object;
}

void handmade_write(struct handmade *h, const char *name, size_t off,
    const void *bytes, size_t n)
{
	/* Longer than a tick of the clock that stamps files. */
	usleep(20000);
	write_file(handmade_path(h, name), 0, off, bytes, n);
}

void handmade_replace(struct handmade *h, const char *name, const void *bytes,
    size_t n)
{
	char new[4096];

	usleep(20000);
	snprintf(new, sizeof(new), "%s/%s.new", h->dir, name);
	write_file(new, O_CREAT | O_EXCL, 0, bytes, n);
	if (rename(new, handmade_path(h, name)) == -1)
		bail_out("%s: %s", new, strerror(errno));
}

struct ofs_transport *handmade_transport(struct handmade *h, uint64_t cache)
{
	struct optimfs_error err;
	struct ofs_transport *t = ofs_transport_local(h->cat, cache, &err);

	if (t == NULL)
		bail_out("%s", err.text);
	return t;
}

void handmade_fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(tap_random(&seed) >> 56);
}
