/* gate.h - who is inside a file system that may become another one */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_GATE_H
#define OFS_FS_GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A commit makes another checkpoint of the one that a file system shows. While
 * it runs nobody may change anything (the gate is held); from where it replaces
 * files until what it made is shown, nobody may look (it is closed). Of a file system that never changes
 * nobody is counted. */
struct ofs_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned readers, writers;
	bool held, commits, closed;
};

struct optimfs;
struct ofs_snapshot;

void ofs_gate_init(struct ofs_gate *g);
void ofs_gate_fini(struct ofs_gate *g);

/* Every public function passes on its way in and out. A thread may enter again
 * while it is inside; as a writer only if it came as one. */
struct ofs_snapshot *ofs_enter(struct optimfs *fs);
struct ofs_snapshot *ofs_enter_write(struct optimfs *fs);
void ofs_leave(struct ofs_snapshot *snap);

/* Wait until no writer is inside, and let none in. EBUSY (OFS815): a commit
 * holds it. For a commit: not from inside; else from inside, not as a writer. */
int ofs_gate_hold(struct optimfs *fs, bool commits, struct optimfs_error *err);
void ofs_gate_let(struct optimfs *fs);
/* The same for everybody, while a commit holds it. False: this thread has
 * closed it already. */
bool ofs_gate_close(struct optimfs *fs);
void ofs_gate_open(struct optimfs *fs);

#endif
