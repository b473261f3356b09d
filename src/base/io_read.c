/* io_read.c - reading whole files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/sys.h"

#define READ_STEP (UINT64_C(32) << 20)

int ofs_pread_all(int fd, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	uint64_t done = 0;
	ssize_t got;

	if (off > INT64_MAX || n > INT64_MAX - off)
		return optimfs_fail(err, EIO,
		    "OFS603 %" PRIu64 " bytes at %" PRIu64
		    ": no file is that long",
		    n, off);
	while (done < n) {
		got = pread(fd, (char *)buf + done, n - done,
		    (off_t)(off + done));
		ofs_sys_moved();
		if (got == -1 && errno == EINTR)
			continue;
		if (got == -1)
			return optimfs_fail(err, EIO,
			    "OFS755 %" PRIu64 " bytes at %" PRIu64 ": %m",
			    n - done, off + done);
		if (got == 0)
			return optimfs_fail(err, EIO,
			    "OFS603 %" PRIu64 " of %" PRIu64
			    " bytes at %" PRIu64 ", then the file ends",
			    done, n, off);
		done += (uint64_t)got;
	}
	return 0;
}

static int read_file(const struct ofs_input *in, uint64_t size,
    const struct optimfs_watch *watch, uint8_t **bytes,
    struct optimfs_error *err)
{
	uint8_t *buf;

	if (size >= SIZE_MAX)
		return ofs_no_memory(err);
	buf = ofs_alloc_huge((size_t)size + 1);
	if (buf == NULL)
		return ofs_no_memory(err);
	for (uint64_t n, off = 0; off < size; off += n) {
		n = size - off < READ_STEP ? size - off : READ_STEP;
		if (ofs_step(watch, "reading the index", off, size, err) ==
			-1 ||
		    ofs_input_read(in, buf + off, n, off, err) == -1) {
			free(buf);
			return -1;
		}
	}
	buf[size] = '\0';
	*bytes = buf;
	return 0;
}

static int read_all(int fd, struct ofs_buf *out)
{
	uint8_t chunk[65536];
	ssize_t n;

	while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return errno;
		ofs_buf_put(out, chunk, (size_t)n);
		if (out->bad)
			return out->len + (size_t)n > out->limit ? EFBIG
								 : ENOMEM;
	}
	return 0;
}

int ofs_read_named(const char *option, const char *path, struct ofs_buf *out,
    struct optimfs_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int code = fd == -1 ? errno : read_all(fd, out);

	if (fd != -1)
		close(fd);
	if (code == 0)
		return 0;
	if (code == ENOMEM)
		return ofs_no_memory(err);
	errno = code;
	return optimfs_fail_as(err, code == ENOENT ? ENOENT : EINVAL,
	    "%s=%s: %m", option, path);
}

int ofs_dir_read_file(const struct ofs_dir *dir, const char *rel, uint64_t max,
    uint8_t **bytes, uint64_t *len, struct optimfs_error *err)
{
	struct ofs_input in;
	uint64_t size;
	struct stat st;
	int ret;

	if (ofs_dir_open_input(dir, rel, &in, &st, err) == -1)
		return -1;
	size = (uint64_t)st.st_size;
	if (size > max)
		ret = optimfs_fail(err, E2BIG,
		    "OFS440 %.300s: %" PRIu64 " bytes, limit %" PRIu64, rel,
		    size, max);
	else if ((ret = read_file(&in, size, dir->watch, bytes, err)) == -1) {
		if (err != NULL && strstr(err->text, rel) == NULL)
			optimfs_fail_in(err, "%.300s", rel);
	}
	else
		*len = size;
	ofs_input_close(&in);
	return ret;
}

bool ofs_is_lfs_pointer(const uint8_t *p, size_t n)
{
	static const char text[] = "version https://git-lfs.github.com/spec/";

	return n >= sizeof(text) && memcmp(p, text, sizeof(text) - 1) == 0;
}
