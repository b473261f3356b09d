/* sys.c - the system calls by which a commit changes files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/sys.h"

#include <errno.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

ofs_sys_fault_fn *ofs_sys_fault;

static atomic_uint_fast64_t moves;

uint64_t ofs_sys_moves(void)
{
	return atomic_load_explicit(&moves, memory_order_relaxed);
}

void ofs_sys_moved(void)
{
	atomic_fetch_add_explicit(&moves, 1, memory_order_relaxed);
}

/* Does a test make this call fail? */
static bool fails(const char *call)
{
	int code = ofs_sys_fault == NULL ? 0 : ofs_sys_fault(call);

	if (code != 0)
		errno = code;
	return code != 0;
}

static ssize_t returned(ssize_t ret)
{
	ofs_sys_moved();
	return ret;
}

#define CALL(name, call) returned(TEMP_FAILURE_RETRY(fails(name) ? -1 : (call)))

int ofs_sys_create(int dir, const char *path)
{
	return (int)CALL("open",
	    openat(dir, path,
		O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
}

ssize_t ofs_sys_pwrite(int fd, const void *buf, size_t n, uint64_t off)
{
	return CALL("pwrite", pwrite(fd, buf, n, (off_t)off));
}

int ofs_sys_truncate(int fd, uint64_t size)
{
	return (int)CALL("ftruncate", ftruncate(fd, (off_t)size));
}

ssize_t ofs_sys_copy(int in, uint64_t in_off, int out, uint64_t out_off,
    size_t n)
{
	off64_t from = (off64_t)in_off, to = (off64_t)out_off;

	return CALL("copy_file_range",
	    copy_file_range(in, &from, out, &to, n, 0));
}

int ofs_sys_clone(int in, int out)
{
	return (int)CALL("ficlone", ioctl(out, FICLONE, in));
}

/* What one call writes back. */
#define PART (UINT64_C(64) << 20)

static int write_part(int fd, uint64_t off, unsigned flags)
{
	int ret = sync_file_range(fd, (off_t)off, (off_t)PART, flags);

	ofs_sys_moved();
	return ret == 0 || errno == EINVAL || errno == ENOSYS ||
		errno == ESPIPE || errno == EOPNOTSUPP
	    ? 0
	    : -1;
}

/* The next part is on its way while one is waited for. An error is told once for
 * a descriptor, here or by the fsync that follows. */
static int write_back(int fd)
{
	const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE |
	    SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	struct stat st;

	if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode))
		return 0;
	for (uint64_t off = 0; off + PART < (uint64_t)st.st_size; off += PART)
		if (write_part(fd, off + PART, SYNC_FILE_RANGE_WRITE) == -1 ||
		    write_part(fd, off, wait) == -1)
			return -1;
	return 0;
}

int ofs_sys_fsync(int fd)
{
	return write_back(fd) == -1 ? -1 : (int)CALL("fsync", fsync(fd));
}

int ofs_sys_fdatasync(int fd)
{
	return write_back(fd) == -1 ? -1
				    : (int)CALL("fdatasync", fdatasync(fd));
}

int ofs_sys_mkdir(int dir, const char *path)
{
	return (int)CALL("mkdir", mkdirat(dir, path, 0700));
}

int ofs_sys_link(int from_dir, const char *from, int to_dir, const char *to)
{
	return (int)CALL("link", linkat(from_dir, from, to_dir, to, 0));
}

int ofs_sys_symlink(const char *target, int dir, const char *path)
{
	return (int)CALL("symlink", symlinkat(target, dir, path));
}

int ofs_sys_rename(int from_dir, const char *from, int to_dir, const char *to,
    unsigned flags)
{
	if (flags == 0)
		return (int)CALL("rename",
		    renameat(from_dir, from, to_dir, to));
	return (int)CALL("rename",
	    renameat2(from_dir, from, to_dir, to, flags));
}

int ofs_sys_unlink(int dir, const char *path)
{
	return (int)CALL("unlink", unlinkat(dir, path, 0));
}

int ofs_sys_rmdir(int dir, const char *path)
{
	return (int)CALL("rmdir", unlinkat(dir, path, AT_REMOVEDIR));
}

int ofs_sys_chmod(int fd, mode_t mode)
{
	return (int)CALL("fchmod", fchmod(fd, mode));
}

int ofs_sys_chown(int fd, uid_t uid, gid_t gid)
{
	return (int)CALL("fchown", fchown(fd, uid, gid));
}
