/* lock.h - the lock of the single writer */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_LOCK_H
#define OFS_JOURNAL_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "optimfs/error.h"

/* A file called "lock" that names its holder. The holder also has a lock on the
 * open file (OFD lock) if the file system supports it: on one machine this lock
 * alone decides, and it is released when the process dies. */
#define OFS_LOCK_ID 33
struct ofs_lock {
	int fd, mounted;      /* mounted: -1: not mounted */
	int dir;              /* borrowed */
	char id[OFS_LOCK_ID]; /* our random id */
};

#define OFS_BOOT_ID 40
/* The boot id of this machine; "-" if unknown. */
void ofs_boot_id(char id[OFS_BOOT_ID]);

/* Takes the lock in directory dir. EBUSY (OFS259) if a living process, or
 * possibly one on another host, has it. A stale lock is taken over: note names
 * its former holder, otherwise it is "". place is the path of dir, for
 * messages. */
int ofs_lock_take(struct ofs_lock *lock, int dir, const char *place, char *note,
    size_t size, struct optimfs_error *err);
/* A descriptor of the lock file in dir, for ofs_lock_busy: does a process of
 * this machine hold it, even after the file was removed? -1: there is none. */
int ofs_lock_watch(int dir);
bool ofs_lock_busy(int fd);
/* Tells every user of this machine that this process serves the mount of device
 * dev: in a second file, "mounted". Nobody else may open the lock itself, because
 * who can lock it for reading keeps the writer out. */
int ofs_lock_mounted(struct ofs_lock *lock, dev_t dev,
    struct optimfs_error *err);
/* Tells them that it is unmounted. Until then they ask the kernel, which may have
 * given the device to a mount that they do not see. */
void ofs_lock_unmounted(struct ofs_lock *lock);
/* If the holder of the lock in dir will release it soon, because its mount is
 * gone, a descriptor for ofs_lock_busy, and its process: umount(2) does not wait
 * for that. -1: not so, or unknown. */
int ofs_lock_leaving(int dir, long *pid);
/* Do we still hold it? EIO (OFS807), ESTALE (OFS812). */
int ofs_lock_held(const struct ofs_lock *lock, const char *place,
    struct optimfs_error *err);
/* Releases the lock; watchers see that. */
void ofs_lock_remove(struct ofs_lock *lock);
void ofs_lock_close(struct ofs_lock *lock);
/* The id in the lock of directory dir; "": no lock. */
void ofs_lock_peek(int dir, char id[OFS_LOCK_ID]);

#endif
