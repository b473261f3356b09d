/* enter.h - what a call sees of a file system that may become another one */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_ENTER_H
#define OFS_FS_ENTER_H

#include <pthread.h>
#include <stdbool.h>

#include "optimfs/error.h"

struct optimfs;
struct ofs_snapshot;

/* A call reads the snapshot that was current when it began, whatever a commit
 * does meanwhile: nobody waits. A commit replaces files under that snapshot,
 * then installs the next one. Who fails in between waits for that, and begins
 * again.
 *
 * Changes are kept out while a commit runs: what is staged then would belong to
 * neither snapshot. */
struct ofs_entrance {
	pthread_mutex_t lock; /* and of fs->now */
	pthread_cond_t changed;
	bool replacing; /* files that fs->now needs */
	unsigned writers;
	bool held, commits; /* no writer may enter; for a commit */
};

void ofs_entrance_init(struct ofs_entrance *e);
void ofs_entrance_fini(struct ofs_entrance *e);

/* One reference to the current snapshot, until _leave. Of a file system that
 * never changes nothing is counted. */
struct ofs_snapshot *ofs_enter(struct optimfs *fs);
void ofs_leave(struct ofs_snapshot *snap);
/* The same. True: what the call failed with may be the doing of a commit, so
 * that it has to be made again. */
bool ofs_leave_again(struct ofs_snapshot *snap, bool failed);
/* For a call that changes something: waits for a commit. */
struct ofs_snapshot *ofs_enter_write(struct optimfs *fs);
void ofs_leave_write(struct ofs_snapshot *snap);

/* Wait until no writer is inside, and let none in. EBUSY (OFS815): a commit
 * does that already. */
int ofs_hold_writers(struct optimfs *fs, bool commits,
    struct optimfs_error *err);
void ofs_let_writers(struct optimfs *fs);

/* By a commit, with writers held: files are about to be replaced; that is over;
 * snap, whose reference is given away, is the current one from now on. */
void ofs_begin_replacing(struct optimfs *fs);
void ofs_end_replacing(struct optimfs *fs);
void ofs_install(struct optimfs *fs, struct ofs_snapshot *snap);
/* Is a commit about to do so, or has it? */
bool ofs_is_passing(const struct ofs_snapshot *snap);

#endif
