/* copy.c - copies of file ranges, shared where the file system can */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/copy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"

#define BUFFER    (1u << 20)
#define STEP_MAX  (1u << 30)
#define STEP_TOLD ((off_t)64 << 20)

int ofs_write_all(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	const uint8_t *p = buf;

	while (n > 0) {
		ssize_t k = ofs_sys_pwrite(fd, p,
		    n > STEP_MAX ? STEP_MAX : (size_t)n, off);

		if (k == -1)
			return optimfs_fail(err, errno,
			    "OFS821 cannot be written: %m");
		p += k;
		off += (uint64_t)k;
		n -= (uint64_t)k;
	}
	return 0;
}

static int copy_buffered(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err)
{
	uint8_t *buf = malloc(BUFFER);
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	while (n > 0 && ret == 0) {
		uint64_t k = n < BUFFER ? n : BUFFER;

		ret = ofs_pread_all(in, buf, k, in_off, err);
		if (ret == 0)
			ret = ofs_write_all(out, buf, k, out_off, err);
		in_off += k;
		out_off += k;
		n -= k;
	}
	free(buf);
	return ret;
}

/* Does the error mean only that the kernel does not support the call here? */
static bool unable(int code)
{
	return code == EXDEV || code == EINVAL || code == ENOSYS ||
	    code == EOPNOTSUPP || code == ENOTTY || code == EPERM ||
	    code == ETXTBSY || code == EBADF;
}

int ofs_copy_range(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err)
{
	while (n > 0) {
		ssize_t k = ofs_sys_copy(in, in_off, out, out_off,
		    n > STEP_MAX ? STEP_MAX : (size_t)n);

		if (k == 0 || (k == -1 && unable(errno)))
			return copy_buffered(in, in_off, out, out_off, n, err);
		if (k == -1)
			return optimfs_fail(err, errno,
			    "OFS821 cannot be copied: %m");
		in_off += (uint64_t)k;
		out_off += (uint64_t)k;
		n -= (uint64_t)k;
	}
	return 0;
}

/* As ofs_copy_sparse, with steps. */
static int copy_data(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, const struct ofs_copy_step *step, struct optimfs_error *err)
{
	uint64_t at = in_off, end = in_off + n;
	struct stat st;

	while (at < end) {
		off_t from = lseek(in, (off_t)at, SEEK_DATA), to;

		if ((from == -1 && errno == ENXIO) || from >= (off_t)end)
			break; /* a hole to the end; or in has grown */
		to = from == -1 ? -1 : lseek(in, from, SEEK_HOLE);
		if (to <= from || (uint64_t)to > end)
			to = (off_t)end;
		if (from < (off_t)at)
			from = (off_t)at; /* no support for holes */
		if (to - from > STEP_TOLD)
			to = from + STEP_TOLD;
		if (ofs_copy_range(in, (uint64_t)from, out,
			(uint64_t)from - in_off + out_off,
			(uint64_t)(to - from), err) == -1)
			return -1;
		if (step != NULL &&
		    step->step(step->ctx, (uint64_t)to - at, err) == -1)
			return -1;
		at = (uint64_t)to;
	}
	if (fstat(in, &st) == 0 && (uint64_t)st.st_size >= end)
		return 0;
	return optimfs_fail(err, ESTALE,
	    "OFS751 it changed while it was copied");
}

int ofs_copy_sparse(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err)
{
	return copy_data(in, in_off, out, out_off, n, NULL, err);
}

int ofs_copy_file(int in, uint64_t size, int out,
    const struct ofs_copy_step *step, struct optimfs_error *err)
{
	struct stat st;

	if (ofs_sys_clone(in, out) == 0) {
		if (fstat(out, &st) == 0 && (uint64_t)st.st_size == size)
			return 0;
		return optimfs_fail(err, ESTALE,
		    "OFS751 it changed while it was copied");
	}
	if (!unable(errno))
		return optimfs_fail(err, errno, "OFS821 cannot be copied: %m");
	if (ofs_sys_truncate(out, size) == -1)
		return optimfs_fail(err, errno, "OFS821 cannot be copied: %m");
	return copy_data(in, 0, out, 0, size, step, err);
}

static int copy_xattr(int in, int out, const char *name)
{
	ssize_t n = fgetxattr(in, name, NULL, 0);
	char *value;
	int ret = 0;

	if (n < 0)
		return 0; /* it has gone, or we may not read it */
	value = malloc((size_t)n + 1);
	if (value == NULL)
		return -1;
	n = fgetxattr(in, name, value, (size_t)n);
	/* We may not be allowed to set what another user's program set. */
	if (n >= 0 && fsetxattr(out, name, value, (size_t)n, 0) == -1 &&
	    errno != EPERM && errno != EOPNOTSUPP && errno != EACCES &&
	    errno != EINVAL)
		ret = -1;
	free(value);
	return ret;
}

static int copy_xattrs(int in, int out, struct optimfs_error *err)
{
	ssize_t n = flistxattr(in, NULL, 0);
	char *names;
	int ret = 0;

	if (n <= 0)
		return 0;
	names = malloc((size_t)n);
	if (names == NULL)
		return ofs_no_memory(err);
	n = flistxattr(in, names, (size_t)n);
	for (ssize_t i = 0; i < n && ret == 0;
	     i += (ssize_t)strlen(names + i) + 1)
		if (copy_xattr(in, out, names + i) == -1)
			ret = optimfs_fail(err, errno,
			    "OFS821 attribute %.80s cannot be copied: %m",
			    names + i);
	free(names);
	return ret;
}

int ofs_copy_attributes(int in, int out, struct optimfs_error *err)
{
	struct stat st, now;
	mode_t mode;

	if (fstat(in, &st) == -1 || fstat(out, &now) == -1)
		return optimfs_fail(err, errno, "OFS821 attributes: %m");
	mode = st.st_mode & 07777;
	if ((st.st_uid != now.st_uid || st.st_gid != now.st_gid) &&
	    ofs_sys_chown(out, st.st_uid, st.st_gid) == -1) {
		if (errno != EPERM)
			return optimfs_fail(err, errno,
			    "OFS821 owner cannot be kept: %m");
		/* keep at least the group, or else grant it nothing */
		if (st.st_gid != now.st_gid &&
		    ofs_sys_chown(out, (uid_t)-1, st.st_gid) == -1)
			mode &= (mode & 07) << 3 | 07707;
		mode &= 0777;
	}
	if (copy_xattrs(in, out, err) == -1)
		return -1;
	if (ofs_sys_chmod(out, mode) == -1)
		return optimfs_fail(err, errno,
		    "OFS821 mode cannot be kept: %m");
	return 0;
}
