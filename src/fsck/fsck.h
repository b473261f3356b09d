/* fsck.h - the state of fsck */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FSCK_FSCK_H
#define OFS_FSCK_FSCK_H

#include <xxhash.h>

#include "base/arena.h"
#include "base/buf.h"
#include "cluster/task.h"
#include "fs/fs.h"

/* Ranks that check together take the same steps in the order of the tree. Each
 * step is done by one rank that has the file in question. Findings carry the
 * number of their step, so that rank 0 can report them in order. A single
 * process does all steps and reports after each entry. */
struct ofs_fsck {
	struct ofs_snapshot *snap;
	optimfs_report_fn *report;
	void *ctx;
	uint64_t problems;
	uint8_t *object;             /* of each: enum ofs_fsck_done, or'ed */
	uint8_t *buf;                /* OFS_FSCK_CHUNK bytes */
	struct optimfs_group *group; /* NULL: a single process */
	int *who; /* for each object, the rank that checks it */
	uint64_t step;
	struct ofs_buf notes; /* fsck_notes.c: findings not handed over yet */
	struct optimfs_error failed; /* error of handing over; code 0: none */
	struct ofs_fsck_notes {      /* findings of other ranks */
		struct ofs_arena bytes; /* of the findings */
		struct ofs_fsck_note *v;
		size_t n, cap;
	} taken;
	char path[4096];
};
#define OFS_FSCK_CHUNK (1u << 20)
enum ofs_fsck_done {
	OFS_FSCK_TOUCHED = 1,
	OFS_FSCK_VERIFIED = 2, /* its archive was verified */
	OFS_FSCK_OPENED = 4,   /* it can be opened */
	OFS_FSCK_SAMPLED = 8,  /* one of its items was compared */
};

/* Begins the next step, which concerns object (OFS_NONE: none). All ranks call
 * it alike. Returns true on the rank that does the step. */
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
/* Hands the findings over to rank 0, or keeps them on rank 0. Errors go to
 * c->failed. */
void ofs_fsck_hand_over(struct ofs_fsck *c);
ofs_task_take_fn ofs_fsck_take; /* ctx: struct ofs_fsck */
/* Reports the findings in the order of steps, and frees them. */
void ofs_fsck_tell(struct ofs_fsck *c);
void ofs_fsck_forget(struct ofs_fsck *c);

#endif
