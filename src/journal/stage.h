/* stage.h - the staging directory for uncommitted changes */
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
 *     lock         the writer: host, boot, pid, random id, time
 *     journal      the changes in order, see below
 *     data/<id>    the written bytes of a file, sparse, at their offsets
 *     new/, finished/   preparations of a commit
 *     template.info, filled/   of a new checkpoint (push/template.h)
 *
 * With upper=DIR, journal, data and new lie in DIR/.NAME.optimfs/ instead; the
 * lock is always beside the checkpoint.
 *
 * A stage knows nothing of tensors. The journal is a log of records with a
 * meaning of the caller's; replaying them in order restores the changes. Each
 * record has a length and a checksum that includes the previous one, so that a
 * torn end is detected and nothing after it is used. Thread-safe; records are
 * written in the order of the calls. */
struct ofs_stage;

struct ofs_stage_config {
	/* path of the checkpoint, a directory or file that may not exist yet */
	const char *source;
	const char *upper; /* NULL: beside the checkpoint */
	/* Changes of a mount that died: refuse to open (EBUSY, OFS811), offer
	 * them to replay, or discard them. */
	enum ofs_recover {
		OFS_RECOVER_NO,
		OFS_RECOVER_YES,
		OFS_RECOVER_DISCARD,
	} recover;
	/* For temporary changes that are never committed: no lock, and a
	 * directory that is removed on close. */
	bool scratch;
	/* Called with the lock held and the directory beside the checkpoint,
	 * before the journal is read. 1: the staged changes were published, and
	 * are dropped. May be NULL. */
	int (*published)(void *ctx, int beside, struct optimfs_error *err);
	void *ctx;
};

/* The path of the stage beside source, whether it exists or not, malloc'ed.
 * NULL: failed (OFS809). */
char *ofs_stage_place(const char *source, struct optimfs_error *err);
/* Takes the lock and creates what is missing. EBUSY (OFS259: another writer, by
 * host and pid; OFS811), EACCES, EROFS, ENOSPC and other errors of the file
 * system (OFS809). */
struct ofs_stage *ofs_stage_open(const struct ofs_stage_config *config,
    struct optimfs_error *err);
/* A descriptor for ofs_lock_busy (lock.h), which tells whether a process of
 * this machine still has source open for writing; -1: none does. */
int ofs_stage_watch(const char *source);
/* Fails if the stage beside source has changes of a mount that ended without a
 * commit (EBUSY, OFS811), or cannot be read (OFS809). */
int ofs_stage_left(const char *source, struct optimfs_error *err);
/* Waits for the end of a mount of source for writing that is unmounted, but has
 * not finished its commit: EBUSY (OFS847) after limit_ms. say gets a message for
 * the user, after a second of waiting, or if the directory beside source is not
 * ours (OFS846), so that nothing is known of its owner. */
struct ofs_stage_tell {
	void (*say)(void *ctx, const char *text);
	void *ctx;
};
int ofs_stage_await(const char *source, int64_t limit_ms,
    const struct ofs_stage_tell *tell, struct optimfs_error *err);
/* Records that st belongs to the mount of device dev, so that others can see
 * when that is unmounted; 0: it is. */
int ofs_stage_mounted(struct ofs_stage *st, dev_t dev,
    struct optimfs_error *err);
/* A message for the user about a stale lock that was taken over (OFS804), or
 * "". */
const char *ofs_stage_note(const struct ofs_stage *st);
/* Releases the lock. keep: the contents, if any, stay for recovery; otherwise
 * the directory is removed. */
void ofs_stage_close(struct ofs_stage *st, bool keep);
/* Does the directory still exist, and do we hold the lock? EIO (OFS807), ESTALE
 * (OFS812: taken by another). */
int ofs_stage_held(struct ofs_stage *st, struct optimfs_error *err);
/* Its path, for messages; valid until it is closed. */
const char *ofs_stage_path(const struct ofs_stage *st);
/* The directory of journal and data, and the one beside the checkpoint; they
 * differ with upper=. Owned by the stage. */
int ofs_stage_dir(const struct ofs_stage *st);
int ofs_stage_beside(const struct ofs_stage *st);

/* A record: a type chosen by the caller, numbers and two strings; the second
 * may contain any bytes. */
#define OFS_RECORD_BOOT \
 0 /* used by the stage: the boot of the following records */
struct ofs_record {
	uint8_t type; /* any other value */
	uint64_t num[4];
	const char *a;
	const void *b;
	size_t nb;
};

/* Appends a record. It survives the death of this process once this returns,
 * and a power failure after ofs_stage_sync. On failure the journal is
 * unchanged: ENOSPC, EDQUOT, EIO. */
int ofs_stage_append(struct ofs_stage *st, const struct ofs_record *r,
    struct optimfs_error *err);
/* Syncs the journal. After one failure it always fails. */
int ofs_stage_sync(struct ofs_stage *st, struct optimfs_error *err);

/* The result of a replay. */
struct ofs_replay {
	uint64_t records;
	uint64_t dropped; /* bytes after the last good record, truncated */
	bool rebooted;    /* from another boot: unsynced data may be lost */
};
/* Calls each for the records that existed when the stage was opened, in order.
 * Their pointers are valid during the call. Stops when each fails, with its
 * result. */
typedef int ofs_replay_fn(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err);
int ofs_stage_replay(struct ofs_stage *st, ofs_replay_fn *each, void *ctx,
    struct ofs_replay *found, struct optimfs_error *err);
/* Removes all records and data files, after a published commit or an abort.
 * new/ stays. Open descriptors stay valid. */
int ofs_stage_reset(struct ofs_stage *st, struct optimfs_error *err);

/* Opens a data file, or creates an empty one (make): returns a descriptor for
 * reading and writing, owned by the caller. The caller chooses ids. EIO
 * (OFS807): it does not exist. In a scratch stage files have no names and each
 * is created once. */
int ofs_stage_data(struct ofs_stage *st, uint64_t id, bool make,
    struct optimfs_error *err);
/* An unnamed file that disappears on close. */
int ofs_stage_temp(struct ofs_stage *st, struct optimfs_error *err);
void ofs_stage_data_remove(struct ofs_stage *st, uint64_t id);

/* The directory beside source, and its lock, for a process that stages nothing
 * there: for a part of a checkpoint whose changes are elsewhere
 * (cluster/commit/participant.h). */
struct ofs_beside {
	char *path;
	int dir; /* -1: not taken */
	struct ofs_lock lock;
};
/* EBUSY (OFS259): it is locked. */
int ofs_beside_take(const char *source, struct ofs_beside *b,
    struct optimfs_error *err);
/* Releases the lock, and removes the directory if it is empty. */
void ofs_beside_drop(struct ofs_beside *b);
/* The random id of the lock's holder, or "". */
void ofs_beside_holder(const char *source, char id[OFS_LOCK_ID]);
/* The id of st's own lock. */
const char *ofs_stage_lock_id(const struct ofs_stage *st);

/* Writes all n bytes at off of a file in a staging directory. */
int ofs_stage_write(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);

#endif
