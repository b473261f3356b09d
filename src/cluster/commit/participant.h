/* participant.h - one directory of a checkpoint of several ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_PARTICIPANT_H
#define OFS_CLUSTER_COMMIT_PARTICIPANT_H

#include "optimfs/error.h"

#include "cluster/group.h"
#include "journal/lock.h"

struct ofs_manifest;

/* For each directory with files of a checkpoint, one rank is the participant:
 * it holds the lock beside it, and prepares and publishes new files on request
 * of the writer (coordinator.h). Its answers to PARTICIPANT, by the operation (1),
 * which the number of the attempt to commit (4) follows:
 *
 *   JOIN     takes the lock beside its directory; answered with a struct
 *            ofs_join_answer
 *   LEAVE    releases that lock
 *   RECOVER  the id that was decided, or "" (string): a call (call.h)
 *   BEGIN    number of bytes that will be written (8)
 *   NAMES    files to be written or removed, numbered in this order. For each:
 *            1 or 0 (1), its name, the name of a similar file (strings), its
 *            size (8), its mode (4) if neither exists; the last three of a file
 *            that is removed are not used, and it has no number
 *   DATA     number of a file (4), offset (8), bytes
 *   PREPARE  an id (string): a call. After it everything that can fail has been
 *            tried, and only the writer decides
 *   COMMIT   a call: puts the prepared files in place
 *   ABORT    reverts what was prepared or begun
 *   FORGET   all directories are complete
 *
 * A participant that has prepared and hears nothing more leaves everything for
 * RECOVER by the next mount: the writer may or may not have decided.
 *
 * A thread of a rank that was stopped may have taken a request of an attempt that
 * the writer has given up, and go on when the next one has begun. The number tells:
 * such a request changes nothing. */
enum ofs_participant_op {
	OFS_PARTICIPANT_JOIN,
	OFS_PARTICIPANT_LEAVE,
	OFS_PARTICIPANT_RECOVER,
	OFS_PARTICIPANT_BEGIN,
	OFS_PARTICIPANT_NAMES,
	OFS_PARTICIPANT_DATA,
	OFS_PARTICIPANT_PREPARE,
	OFS_PARTICIPANT_COMMIT,
	OFS_PARTICIPANT_ABORT,
	OFS_PARTICIPANT_FORGET,
};
/* All ranks are of one version and of one architecture, as MPI assumes. */
struct ofs_join_answer {
	char path[4096];
	char id[OFS_LOCK_ID]; /* of the lock there; "": no directory or lock */
	struct optimfs_error
	    err; /* code 0: this rank has the lock, or no directory */
};

struct ofs_participant;

/* Answers PARTICIPANT. */
extern const struct ofs_group_service ofs_commit_service;
/* The participant of the writer's own directory; stage is the directory beside
 * it (borrowed). */
int ofs_participant_own(struct ofs_manifest *s, int stage,
    struct optimfs_error *err);
/* As NAMES and DATA, for a file in directory from of the same stage, which is
 * moved. */
int ofs_participant_take(struct ofs_manifest *s, int from, const char *rel,
    const char *like, struct optimfs_error *err);

#endif
