/* sys.c - the system calls by which a commit changes files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/sys.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

ofs_sys_fault_fn *ofs_sys_fault;

/* Does a test make this call fail? */
static bool fails(const char *call)
{
	int code = ofs_sys_fault == NULL ? 0 : ofs_sys_fault(call);

	if (code != 0)
		errno = code;
	return code != 0;
}

#define RETRY(ret, call) \
 do                      \
  (ret) = (call);        \
 while ((ret) == -1 && errno == EINTR)

int ofs_sys_create(int dir, const char *path)
{
	int fd;

	if (fails("open"))
		return -1;
	RETRY(fd,
	    openat(dir, path,
		O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
	return fd;
}

ssize_t ofs_sys_pwrite(int fd, const void *buf, size_t n, uint64_t off)
{
	ssize_t ret;

	if (fails("pwrite"))
		return -1;
	RETRY(ret, pwrite(fd, buf, n, (off_t)off));
	return ret;
}

int ofs_sys_truncate(int fd, uint64_t size)
{
	int ret;

	if (fails("ftruncate"))
		return -1;
	RETRY(ret, ftruncate(fd, (off_t)size));
	return ret;
}

ssize_t ofs_sys_copy(int in, uint64_t in_off, int out, uint64_t out_off,
    size_t n)
{
	off64_t from = (off64_t)in_off, to = (off64_t)out_off;
	ssize_t ret;

	if (fails("copy_file_range"))
		return -1;
	RETRY(ret, copy_file_range(in, &from, out, &to, n, 0));
	return ret;
}

int ofs_sys_clone(int in, int out)
{
	return fails("ficlone") ? -1 : ioctl(out, FICLONE, in);
}

int ofs_sys_fsync(int fd)
{
	return fails("fsync") ? -1 : fsync(fd);
}

int ofs_sys_mkdir(int dir, const char *path)
{
	return fails("mkdir") ? -1 : mkdirat(dir, path, 0700);
}

int ofs_sys_link(int from_dir, const char *from, int to_dir, const char *to)
{
	return fails("link") ? -1 : linkat(from_dir, from, to_dir, to, 0);
}

int ofs_sys_symlink(const char *target, int dir, const char *path)
{
	return fails("symlink") ? -1 : symlinkat(target, dir, path);
}

int ofs_sys_rename(int from_dir, const char *from, int to_dir, const char *to,
    unsigned flags)
{
	if (fails("rename"))
		return -1;
	if (flags == 0)
		return renameat(from_dir, from, to_dir, to);
	return renameat2(from_dir, from, to_dir, to, flags);
}

int ofs_sys_unlink(int dir, const char *path)
{
	return fails("unlink") ? -1 : unlinkat(dir, path, 0);
}

int ofs_sys_chmod(int fd, mode_t mode)
{
	return fails("fchmod") ? -1 : fchmod(fd, mode);
}

int ofs_sys_chown(int fd, uid_t uid, gid_t gid)
{
	return fails("fchown") ? -1 : fchown(fd, uid, gid);
}
