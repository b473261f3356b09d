/* lock.h - one writer */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_LOCK_H
#define OFS_JOURNAL_LOCK_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"

/* A file called "lock" that names its holder. Who holds it also has a lock of
 * the open file on it, where the file system has those: on one machine that
 * alone decides, and it goes with the process. */
#define OFS_LOCK_ID 33
struct ofs_lock {
	int fd, dir;          /* dir is borrowed */
	char id[OFS_LOCK_ID]; /* random: ours */
};

#define OFS_BOOT_ID 40
/* This boot of this machine; "-" where it is not known. */
void ofs_boot_id(char id[OFS_BOOT_ID]);

/* Take the lock in directory dir. EBUSY (OFS259) when a living process has it,
 * or one of another host may. A stale one is taken over: note says whose it
 * was, or is "". place is dir's path, for messages. */
int ofs_lock_take(struct ofs_lock *lock, int dir, const char *place, char *note,
    size_t size, struct optimfs_error *err);
/* A descriptor of the one in place, to be asked whether anybody on this machine
 * has it, even when it is not at its name any more; -1: there is none. */
int ofs_lock_watch(const char *place);
bool ofs_lock_busy(int fd);
/* Is it still ours? EIO (OFS807), ESTALE (OFS812). */
int ofs_lock_held(const struct ofs_lock *lock, const char *place,
    struct optimfs_error *err);
/* Another one may take it; and who watches it is told. */
void ofs_lock_remove(struct ofs_lock *lock);
void ofs_lock_close(struct ofs_lock *lock);
/* The id in the lock of directory dir; "": there is none. */
void ofs_lock_peek(int dir, char id[OFS_LOCK_ID]);

#endif
