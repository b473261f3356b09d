/* extent_cache.c - the bytes of a decoded extent, in memory or in a file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/extent_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/temp.h"

/* A temporary file stops growing when less than this share of its file system
 * is free, so that others have room. */
#define KEEP_FREE_SHARE 32
#define CHECK_FREE      (UINT64_C(64) << 20)

static const char *tmp_dir(void)
{
	const char *dir = getenv("TMPDIR");

	return dir == NULL || dir[0] == '\0' ? "/var/tmp" : dir;
}

/* The error code for a reader when a temporary file fails. */
static int code_of(int error)
{
	switch (error) {
	case EDQUOT:
		return ENOSPC;
	case ENOSPC:
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return error;
	default:
		return EIO;
	}
}

void ofs_store_fini(struct ofs_store *s)
{
	for (size_t i = 0; i < s->nblocks; i++)
		free(s->block[i]);
	free(s->block);
	if (s->fd != -1)
		close(s->fd);
	*s = (struct ofs_store){ .fd = -1 };
}

uint64_t ofs_store_memory(const struct ofs_store *s)
{
	return s->fd == -1 ? s->len : 0;
}

/* Has the temporary directory room for more? */
static int check_free(const struct ofs_store *s, struct optimfs_error *err)
{
	struct statvfs st;

	if (s->len % CHECK_FREE != 0 || fstatvfs(s->fd, &st) == -1)
		return 0;
	if (st.f_bavail > st.f_blocks / KEEP_FREE_SHARE &&
	    st.f_bavail * st.f_frsize > CHECK_FREE)
		return 0;
	return optimfs_fail(err, ENOSPC,
	    "OFS709 no room in %s for decoded data (set TMPDIR, or a larger "
	    "cache=)",
	    tmp_dir());
}

static int append_file(struct ofs_store *s, const uint8_t *p, size_t n,
    struct optimfs_error *err)
{
	ssize_t put;

	if (check_free(s, err) == -1)
		return -1;
	for (size_t done = 0; done < n; done += (size_t)put) {
		put = pwrite(s->fd, p + done, n - done, (off_t)(s->len + done));
		if (put == -1 && errno == EINTR)
			put = 0;
		if (put == -1)
			return optimfs_fail(err, code_of(errno),
			    "OFS709 decoded data cannot go to %s: %m",
			    tmp_dir());
	}
	s->len += n;
	return 0;
}

static int append_memory(struct ofs_store *s, uint8_t **block, size_t n,
    struct optimfs_error *err)
{
	uint8_t *shorter;

	if (ofs_grow(s->block, s->nblocks, s->cap, err) == -1)
		return -1;
	shorter = n < OFS_BLOCK ? realloc(*block, n) : NULL;
	s->block[s->nblocks++] = shorter == NULL ? *block : shorter;
	*block = NULL;
	s->len += n;
	return 0;
}

int ofs_store_append(struct ofs_store *s, uint8_t **block, size_t n,
    struct optimfs_error *err)
{
	if (n == 0)
		return 0;
	return s->fd == -1 ? append_memory(s, block, n, err)
			   : append_file(s, *block, n, err);
}

int ofs_store_spill(struct ofs_store *s, struct optimfs_error *err)
{
	struct ofs_store file = { .fd = ofs_temp_open(AT_FDCWD, tmp_dir()) };

	if (file.fd == -1)
		return optimfs_fail(err, code_of(errno),
		    "OFS709 no temporary file in %s for decoded data: %m",
		    tmp_dir());
	for (size_t i = 0; i < s->nblocks; i++) {
		uint64_t left = s->len - file.len;

		if (append_file(&file, s->block[i],
			left < OFS_BLOCK ? left : OFS_BLOCK, err) == -1) {
			ofs_store_fini(&file);
			return -1;
		}
	}
	ofs_store_fini(s);
	*s = file;
	return 0;
}

static int read_memory(const struct ofs_source *src, struct iovec *iov, int n,
    uint64_t off, struct optimfs_error *err)
{
	const struct ofs_store *s = src->ctx;

	(void)err;
	for (int i = 0; i < n; i++) {
		uint8_t *to = iov[i].iov_base;
		size_t left = iov[i].iov_len, part;

		for (; left > 0; left -= part, to += part, off += part) {
			part = OFS_BLOCK - off % OFS_BLOCK;
			if (part > left)
				part = left;
			memcpy(to, s->block[off / OFS_BLOCK] + off % OFS_BLOCK,
			    part);
		}
	}
	return 0;
}

static int read_file(const struct ofs_source *src, struct iovec *iov, int n,
    uint64_t off, struct optimfs_error *err)
{
	const struct ofs_store *s = src->ctx;

	for (int i = 0; i < n; i++) {
		uint8_t *to = iov[i].iov_base;
		size_t left = iov[i].iov_len;
		ssize_t got;

		for (; left > 0;
		     left -= (size_t)got, to += got, off += (uint64_t)got) {
			got = pread(s->fd, to, left, (off_t)off);
			if (got == -1 && errno == EINTR)
				got = 0;
			else if (got <= 0)
				return optimfs_fail(err, EIO,
				    "OFS709 decoded data in %s cannot be read "
				    "back: %s",
				    tmp_dir(),
				    got == 0 ? "it is short" : strerror(errno));
		}
	}
	return 0;
}

struct ofs_source ofs_store_source(struct ofs_store *s)
{
	return (struct ofs_source){
		.readv = s->fd == -1 ? read_memory : read_file,
		.ctx = s,
		.size = s->len,
	};
}
