/* sys.h - the system calls by which a commit changes files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_SYS_H
#define OFS_BASE_SYS_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/types.h>

/* A commit changes the disk through these calls only. Each is the system call
 * of its name, repeated when a signal interrupts it. A test sets ofs_sys_fault,
 * which is called before each, also when it is repeated: it returns 0 or the
 * errno value to fail with, or does not return. */
typedef int ofs_sys_fault_fn(const char *call);
extern ofs_sys_fault_fn *ofs_sys_fault;

int ofs_sys_create(int dir, const char *path); /* O_EXCL, rw, 0600 */
ssize_t ofs_sys_pwrite(int fd, const void *buf, size_t n, uint64_t off);
int ofs_sys_truncate(int fd, uint64_t size);
/* The number of bytes copied; 0 at the end of in. */
ssize_t ofs_sys_copy(int in, uint64_t in_off, int out, uint64_t out_off,
    size_t n);
int ofs_sys_clone(int in, int out); /* FICLONE */
/* Both write the bytes back in parts first, so that each wait is short. */
int ofs_sys_fsync(int fd);
int ofs_sys_fdatasync(int fd);
int ofs_sys_mkdir(int dir, const char *path); /* 0700 */
int ofs_sys_link(int from_dir, const char *from, int to_dir, const char *to);
int ofs_sys_symlink(const char *target, int dir, const char *path);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE or 0. */
int ofs_sys_rename(int from_dir, const char *from, int to_dir, const char *to,
    unsigned flags);
int ofs_sys_unlink(int dir, const char *path);
int ofs_sys_rmdir(int dir, const char *path);
int ofs_sys_chmod(int fd, mode_t mode);
int ofs_sys_chown(int fd, uid_t uid, gid_t gid);

/* Signs of life of this process: how many of these calls have returned, and how
 * often something else was read or heard of. Whoever waits for a commit sees in it
 * whether it moves. */
uint64_t ofs_sys_moves(void);
void ofs_sys_moved(void);

#endif
