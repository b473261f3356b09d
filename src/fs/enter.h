/* enter.h - how calls enter and leave the current snapshot */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_ENTER_H
#define OFS_FS_ENTER_H

#include <pthread.h>
#include <stdbool.h>

#include "optimfs/error.h"

struct optimfs;
struct ofs_snapshot;

/* A call reads the snapshot that was current when it began, and never waits for
 * a commit. A commit replaces files that this snapshot needs, then installs the
 * next snapshot. A call that fails in between waits for the new snapshot and
 * starts again.
 *
 * Writers are kept out while a commit runs: what they staged would belong to
 * neither snapshot. */
struct ofs_entrance {
	pthread_mutex_t lock; /* protects fs->now too */
	pthread_cond_t changed;
	bool replacing; /* a commit replaces files of fs->now */
	unsigned writers;
	bool held;    /* no writer may enter */
	bool commits; /* because of a commit */
};

void ofs_entrance_init(struct ofs_entrance *e);
void ofs_entrance_fini(struct ofs_entrance *e);

/* ofs_enter takes a reference to the current snapshot, ofs_leave drops it. For
 * a read-only file system nothing is counted. */
struct ofs_snapshot *ofs_enter(struct optimfs *fs);
void ofs_leave(struct ofs_snapshot *snap);
/* As ofs_leave. failed: the call failed. Returns true when a commit may have
 * caused the failure: then the call has to be made again. */
bool ofs_leave_again(struct ofs_snapshot *snap, bool failed);
/* For a call that changes something: waits while a commit runs. */
struct ofs_snapshot *ofs_enter_write(struct optimfs *fs);
void ofs_leave_write(struct ofs_snapshot *snap);

/* Waits for writers to leave, and blocks new ones. EBUSY (OFS815): a commit is
 * already in progress. */
int ofs_hold_writers(struct optimfs *fs, bool commits,
    struct optimfs_error *err);
void ofs_let_writers(struct optimfs *fs);

/* For a commit, while it holds the writers: files are about to be replaced; or
 * all are. ofs_install makes snap the current snapshot and takes over the
 * caller's reference. */
void ofs_set_replacing(struct optimfs *fs, bool replacing);
void ofs_install(struct optimfs *fs, struct ofs_snapshot *snap);
/* Is a commit about to replace this snapshot, or has it done so? */
bool ofs_is_passing(const struct ofs_snapshot *snap);

#endif
