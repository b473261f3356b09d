/* fsck.h - a check under way */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FS_FSCK_H
#define OFS_FS_FSCK_H

#include <xxhash.h>

#include "base/buf.h"
#include "cluster/task.h"
#include "fs/fs.h"

/* Ranks that check together go through the same steps, in the order of the
 * tree; a step is one rank's, that has the file it is about. What is found is
 * noted with its step, so that rank 0 can say it in that order. A check that is
 * alone does all steps, and says what it noted after each entry. */
struct ofs_check {
	struct ofs_snapshot *snap;
	optimfs_report_fn *report;
	void *ctx;
	uint64_t problems;
	uint8_t *object;             /* of each: enum ofs_checked, or'ed */
	uint8_t *buf;                /* OFS_CHECK_CHUNK bytes */
	struct optimfs_group *world; /* NULL: alone */
	int *who;                    /* of each object: the rank */
	uint64_t step;
	struct ofs_buf notes; /* fsck_notes.c: made, and not handed over */
	struct optimfs_error failed; /* handing over; code 0: not */
	struct ofs_check_notes {     /* taken */
		uint8_t **block;     /* that they lie in */
		size_t nblocks, block_cap;
		struct ofs_check_note *v;
		size_t n, cap;
	} taken;
	char path[4096];
};
#define OFS_CHECK_CHUNK (1u << 20)
enum ofs_checked {
	OFS_CHECK_TOUCHED = 1,
	OFS_CHECK_VERIFIED = 2, /* its archive has been gone through */
	OFS_CHECK_OPENED = 4,   /* it can be */
};

/* Begin the next step, which is about object (OFS_NONE: none); all ranks do so
 * alike. Is it to be done here? */
bool ofs_check_turn(struct ofs_check *c, uint32_t object);

/* Can an extent not be read for want of its file, or of the file's end? Then
 * why, which may be NULL, says so. */
bool ofs_check_lost(const struct ofs_snapshot *snap,
    const struct ofs_extent *at, struct optimfs_error *why);
/* The same of any extent of an entry. */
bool ofs_entry_lost(const struct ofs_snapshot *snap, const struct ofs_entry *e,
    struct optimfs_error *why);

/* fsck_data.c: every stored byte of the entry at node index, reported under
 * c->path. -1 only when there is no memory. */
int ofs_check_data(struct ofs_check *c, uint32_t index,
    struct optimfs_error *err);

/* fsck_notes.c */
void ofs_check_found(struct ofs_check *c, bool error, const char *path,
    int code, const char *text);
/* What a shard's elements are, and then those of its copies, each of which is
 * at some place (NULL: the shard itself): n hashes of each elements, which
 * follow those of the call before. A copy that says something else is found. */
void ofs_check_hashes(struct ofs_check *c, uint32_t shard, const char *place,
    const XXH128_hash_t *h, uint32_t n, uint64_t each);
/* They end here, for this reason. */
void ofs_check_unread(struct ofs_check *c, uint32_t shard, bool copy,
    const struct optimfs_error *why);
/* Hand over what was noted, to rank 0 or to ourselves. Fails in c->failed. */
void ofs_check_hand_over(struct ofs_check *c);
ofs_task_take_fn ofs_check_take; /* ctx is the check */
/* Report what was taken, in the order of steps, and forget it. */
void ofs_check_tell(struct ofs_check *c);
void ofs_check_forget(struct ofs_check *c);

#endif
