/* stage.h - the directory that what is not committed lies in */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_STAGE_H
#define OFS_JOURNAL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "journal/lock.h"

/* Beside the checkpoint PARENT/NAME lies PARENT/.NAME.optimfs/:
 *
 *     lock         who may write the checkpoint: host, boot, pid, random id, time
 *     journal      what was done, in order: see below
 *     data/<id>    bytes of one file each, sparse, at the places they have in it
 *     new/         what a commit prepares
 *     template/    what mkfs made (push/template.h)
 *
 * With upper=DIR journal, data and new lie in DIR/.NAME.optimfs/ instead; the
 * lock is always beside the checkpoint.
 *
 * A stage knows no tensors. The journal is a log of records whose meaning is
 * the caller's: replaying them in order makes again what was there. Each has a
 * length and a checksum that includes the one before, so that a torn end is
 * found and nothing behind it is believed. A stage may be used from any thread;
 * records are written in the order of the calls. */
struct ofs_stage;

struct ofs_stage_config {
	/* the checkpoint's directory or file, which may be yet to come */
	const char *source;
	const char *upper; /* NULL: beside it */
	/* What is there of a mount that died: refuse to open (EBUSY, OFS811),
	 * give it to replay, or throw it away. */
	enum ofs_recover {
		OFS_RECOVER_NO,
		OFS_RECOVER_YES,
		OFS_RECOVER_DISCARD,
	} recover;
	/* Nothing will be committed, nobody else is kept out and nothing is
	 * left behind: a directory of its own that goes when it is closed. */
	bool scratch;
	/* Called with the lock held, before the journal is looked at, with the
	 * directory beside the checkpoint: 1: what was staged has been
	 * published, and is dropped. May be NULL. */
	int (*published)(void *ctx, int beside, struct optimfs_error *err);
	void *ctx;
};

/* Where the one beside source is, or would be: malloc'ed. NULL: it cannot be
 * told (OFS809). */
char *ofs_stage_place(const char *source, struct optimfs_error *err);
/* Take the lock, make what is missing. EBUSY (OFS259: another writer, by host
 * and pid; OFS811), EACCES, EROFS, ENOSPC and other errors of the file system
 * (OFS809). */
struct ofs_stage *ofs_stage_open(const struct ofs_stage_config *config,
    struct optimfs_error *err);
/* A descriptor that ofs_lock_busy (lock.h) tells by whether a process of
 * this machine is not done with source yet; -1: none has its lock. */
int ofs_stage_watch(const char *source);
/* Words for the user, of a stale lock that was taken over (OFS804); or "". */
const char *ofs_stage_note(const struct ofs_stage *st);
/* Let the lock go. With keep all that is in it stays for the next one to
 * recover, if there is anything; else the directory is removed. */
void ofs_stage_close(struct ofs_stage *st, bool keep);
/* Is the directory still there, and the lock still ours? EIO (OFS807), ESTALE
 * (OFS812: taken by another). */
int ofs_stage_held(struct ofs_stage *st, struct optimfs_error *err);
/* Where it is, for messages; good until it is closed. */
const char *ofs_stage_path(const struct ofs_stage *st);
/* The directory that data lie in, and the one beside the checkpoint, which
 * is another with upper=. The stage's own. */
int ofs_stage_dir(const struct ofs_stage *st);
int ofs_stage_beside(const struct ofs_stage *st);

/* A record: a type of the caller's, numbers and two strings, the second of
 * any bytes. */
#define OFS_RECORD_BOOT 0 /* the stage's own: which boot follows */
struct ofs_record {
	uint8_t type; /* any other */
	uint64_t num[4];
	const char *a;
	const void *b;
	size_t nb;
};

/* Append; it is safe from the death of this process when this returns, and
 * from that of the machine after ofs_stage_sync. A failed one leaves the
 * journal as it was: ENOSPC, EDQUOT, EIO. */
int ofs_stage_append(struct ofs_stage *st, const struct ofs_record *r,
    struct optimfs_error *err);
/* fsync of the journal. Once it failed it fails for ever. */
int ofs_stage_sync(struct ofs_stage *st, struct optimfs_error *err);

/* What replay found. */
struct ofs_replay {
	uint64_t records;
	uint64_t dropped; /* bytes behind the last good record, now cut off */
	bool rebooted;    /* written under another boot: what was not synced may
			* be lost */
};
/* Call each for the records that were there when the stage was opened, in
 * order; what they point to is good during the call. A failure of each ends it,
 * and is returned. */
typedef int ofs_replay_fn(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err);
int ofs_stage_replay(struct ofs_stage *st, ofs_replay_fn *each, void *ctx,
    struct ofs_replay *found, struct optimfs_error *err);
/* Forget all records and files of data: what the stage is after a commit that
 * was published, or an abort. new/ is left alone. Open descriptors stay good.
 */
int ofs_stage_reset(struct ofs_stage *st, struct optimfs_error *err);

/* A file of data, an empty one with make: a descriptor for reading and writing
 * that is the caller's. Ids are the caller's choice. EIO (OFS807): there is
 * none. In a scratch stage files have no names: each is made once. */
int ofs_stage_data(struct ofs_stage *st, uint64_t id, bool make,
    struct optimfs_error *err);
/* One without a name, that is gone when it is closed. */
int ofs_stage_temp(struct ofs_stage *st, struct optimfs_error *err);
void ofs_stage_data_remove(struct ofs_stage *st, uint64_t id);

/* The directory beside source, and its lock, for one who stages nothing there:
 * a part of a checkpoint whose changes are somewhere else (cluster/commit/participant.h). */
struct ofs_beside {
	char *path;
	int dir; /* -1: not taken */
	struct ofs_lock lock;
};
/* EBUSY (OFS259): somebody has it. */
int ofs_beside_take(const char *source, struct ofs_beside *b,
    struct optimfs_error *err);
/* Let the lock go; the directory goes where nothing is in it. */
void ofs_beside_drop(struct ofs_beside *b);
/* The random id of who holds the lock beside source, or "". */
void ofs_beside_holder(const char *source, char id[OFS_LOCK_ID]);
/* The one of st's own lock. */
const char *ofs_stage_lock_id(const struct ofs_stage *st);

/* Write n bytes at off, all of them. */
int ofs_pwrite_all(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);

#endif
