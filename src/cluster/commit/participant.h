/* participant.h - one directory of a checkpoint that several ranks write together */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_PARTICIPANT_H
#define OFS_CLUSTER_COMMIT_PARTICIPANT_H

#include <stdint.h>

#include "optimfs/error.h"

#include "cluster/group.h"

struct ofs_manifest;

/* Of each directory that files of a checkpoint lie in, one rank is the
 * participant: it holds the lock beside it, and prepares and publishes new files
 * there when the writer (coordinator.h) says so. This is what it answers to
 * PARTICIPANT:
 *
 *   JOIN     number of ids (4), ids (strings); answered with OFS_JOINED, the
 *            index of an id (4), an id (string), the path (string), zeros
 *   RECOVER  the id that was decided, or "" (string): a call (call.h)
 *   BEGIN    how many bytes will be written (8)
 *   FILE     a name, the name of one like it (strings), its size (8), its mode
 *            (4) where there is neither; answered with a number for it (4)
 *   DATA     number of a file (4), offset (8), bytes
 *   REMOVE   a name (string)
 *   PREPARE  an id (string): a call. Behind it everything that can fail has
 *            been tried, and what becomes of it is the writer's decision alone
 *   COMMIT   a call: put in place what was prepared
 *   ABORT    take back what was prepared, or begun
 *   FORGET   all directories have it
 *
 * A participant that has prepared and hears nothing more leaves it as it is, for
 * the next mount to RECOVER: the writer may have decided, or not. */
enum ofs_participant_op {
	OFS_PARTICIPANT_JOIN,
	OFS_PARTICIPANT_RECOVER,
	OFS_PARTICIPANT_BEGIN,
	OFS_PARTICIPANT_FILE,
	OFS_PARTICIPANT_DATA,
	OFS_PARTICIPANT_REMOVE,
	OFS_PARTICIPANT_PREPARE,
	OFS_PARTICIPANT_COMMIT,
	OFS_PARTICIPANT_ABORT,
	OFS_PARTICIPANT_FORGET,
};
enum ofs_joined {
	OFS_JOINED_NONE, /* this rank has no such directory */
	OFS_JOINED_SAME, /* the one whose lock has the id of that index */
	OFS_JOINED_NEW,  /* one of its own, whose lock has this id */
};
#define OFS_JOIN_WANT 4352 /* bytes of its answer */

struct ofs_participant;

void ofs_participant_free(struct ofs_participant *k);
/* Answers PARTICIPANT. */
extern const struct ofs_group_service ofs_commit_service;
/* The writer's own directory: stage is the directory beside it, borrowed. */
int ofs_participant_own(struct ofs_manifest *s, int stage,
    struct optimfs_error *err);
/* The same as FILE and DATA for a file that lies in directory from of the same
 * stage, and is moved. */
int ofs_participant_take(struct ofs_manifest *s, int from, const char *rel,
    const char *like, struct optimfs_error *err);

#endif
