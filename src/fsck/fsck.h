/* fsck.h - the state of fsck */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FSCK_FSCK_H
#define OFS_FSCK_FSCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/buf.h"
#include "cluster/task.h"
#include "fs/fs.h"

/* Ranks that check together, and the threads of each, take the same steps in the
 * order of the tree. Each step is done by one thread of one rank that has the file
 * in question: files are divided by size. Findings carry the
 * number of their step, so that they can be reported in order: by rank 0 at the end,
 * or in a single process as soon as all threads have passed the entry. */

/* What all threads share. */
struct ofs_fsck_all {
	struct ofs_snapshot *snap;
	optimfs_report_fn *report;
	void *ctx;
	bool data;
	struct optimfs_group *group; /* NULL: a single process */
	int *who;            /* for each object, the rank that checks it */
	int *thread;         /* and the thread, if it is this rank */
	struct ofs_fsck *of; /* of each thread */
	unsigned nthreads;
	uint64_t problems, total; /* total: bytes of all threads */
	atomic_bool stop;         /* failed is set */

	pthread_mutex_t lock;        /* protects the members below */
	struct optimfs_error failed; /* code 0: nothing has */
	/* Findings that are not reported yet: on rank 0 those of all ranks. */
	struct ofs_fsck_notes {
		struct ofs_arena bytes; /* of the findings */
		struct ofs_fsck_note *v;
		size_t n, cap, order;
	} taken;
};

/* A thread. */
struct ofs_fsck {
	struct ofs_fsck_all *all;
	struct ofs_snapshot *snap; /* the same for all */
	unsigned me;
	uint8_t *object; /* of each: enum ofs_fsck_done, or'ed */
	uint8_t *buf;    /* OFS_FSCK_CHUNK bytes */
	uint64_t step;
	/* The last step of the entry that it has finished, and bytes so far. */
	_Atomic uint64_t passed, done;
	_Atomic uint32_t at;  /* node of the entry */
	struct ofs_buf notes; /* findings not handed over yet */
	char path[4096];
};
#define OFS_FSCK_CHUNK (1u << 20)
enum ofs_fsck_done {
	OFS_FSCK_TOUCHED = 1,
	OFS_FSCK_VERIFIED = 2, /* its archive was verified */
	OFS_FSCK_OPENED = 4,   /* it can be opened */
	OFS_FSCK_SAMPLED = 8,  /* one of its items was compared */
};

/* Begins the next step, which concerns object (OFS_NONE: none). All threads of all
 * ranks call it alike. Returns true in the one that does the step. */
bool ofs_fsck_begin_step(struct ofs_fsck *c, uint32_t object);

/* Can a file be opened? Asked once. */
bool ofs_fsck_opens(struct ofs_fsck *c, uint32_t object,
    struct optimfs_error *why);

/* fsck_data.c: for each data file that the entry is the first to have an item
 * in: does that item say of itself what the index says? Reads no elements. A file
 * of another save rarely has the same items in the same places. */
void ofs_fsck_heads(struct ofs_fsck *c, const struct ofs_entry *e);
/* Reads every stored byte of the entry at node index; findings go to c->path.
 * -1: ENOMEM. */
int ofs_fsck_data(struct ofs_fsck *c, uint32_t index,
    struct optimfs_error *err);

/* fsck_notes.c */
void ofs_fsck_found(struct ofs_fsck *c, bool error, const char *path,
    const struct optimfs_error *what);
/* Hashes of the elements of a shard (place NULL) or of a copy at place: n
 * hashes of each elements, continuing the call before. A copy that differs
 * becomes a finding. */
void ofs_fsck_hashes(struct ofs_fsck *c, uint32_t shard, const char *place,
    const XXH128_hash_t *h, uint32_t n, uint64_t each);
/* The shard or copy cannot be read any further, because of why. */
void ofs_fsck_unread(struct ofs_fsck *c, uint32_t shard, bool copy,
    const struct optimfs_error *why);
/* Hands the findings of a thread over to rank 0, or keeps them on rank 0. What fails
 * ends the check. */
void ofs_fsck_hand_over(struct ofs_fsck *c);
/* Ends the check because of why, if nothing has failed yet. */
void ofs_fsck_fail(struct ofs_fsck_all *all, const struct optimfs_error *why);
ofs_task_take_fn ofs_fsck_take; /* ctx: struct ofs_fsck_all */
/* Reports the findings up to a step, in order, and frees them. last is the end of an
 * entry, because what one step finds may be compared with another of the same. */
void ofs_fsck_tell(struct ofs_fsck_all *all, uint64_t last);
void ofs_fsck_forget(struct ofs_fsck_all *all);

#endif
