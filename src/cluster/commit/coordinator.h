/* coordinator.h - publish a commit in all directories of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_COORDINATOR_H
#define OFS_CLUSTER_COMMIT_COORDINATOR_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

struct ofs_buf;
struct ofs_publish_plan;
struct ofs_manifest;

/* A checkpoint of several ranks is in one or several directories: local disks
 * of the ranks, or file systems shared by some of them. The participant of a
 * directory (participant.h) is the lowest rank that sees it. The writer, rank
 * 0, has the stage with all uncommitted changes. In a commit it writes the new
 * files and sends each to the participants that have the old one.
 *
 * Publishing has two phases (docs/architecture.md, "Writing by several ranks").
 * All participants prepare; if one cannot, all revert. Then the writer decides
 * by writing the id of the commit beside its own lock. From then on the new
 * generation is the checkpoint; what is not yet in place will be put there by
 * this mount or by the next one for writing. */
struct ofs_coordinator;

/* Lets every rank join; a rank that sees a directory with a participant belongs
 * to it. id is that of the writer's lock, stage the directory beside it
 * (borrowed). EBUSY (OFS259): another writer has one of the directories. */
struct ofs_coordinator *ofs_coordinator_open(struct ofs_manifest *s,
    const char *id, int stage, struct optimfs_error *err);
void ofs_coordinator_free(struct ofs_coordinator *s);
/* After a commit: lists the files of all ranks again (ofs_manifest_refresh). */
int ofs_coordinator_refresh(struct ofs_coordinator *s,
    struct optimfs_error *err);
/* How to open the checkpoint: the path (borrowed) that was offered in
 * *group. */
const char *ofs_coordinator_source(const struct ofs_coordinator *s,
    struct optimfs_group **group);
/* Is there only one directory, which the writer sees? Then no other rank is
 * needed. */
bool ofs_coordinator_alone(const struct ofs_coordinator *s);
/* Finishes or reverts an interrupted commit in all directories. 1: it was
 * decided, and its staged changes are done; 0: it was not. EBUSY (OFS841): one
 * of its directories is not present. */
int ofs_coordinator_recover(struct ofs_coordinator *s,
    struct optimfs_error *err);
/* Does any directory have a file called rel? */
bool ofs_coordinator_have(const struct ofs_coordinator *s, const char *rel);
/* As ofs_publish_begin (journal/publish.h) for all directories: files are
 * created in stage and distributed when they are published. */
struct ofs_publish *ofs_publish_begin_all(struct ofs_coordinator *s, int stage,
    struct optimfs_error *err);
/* Called when the journal of a published commit is empty: removes the record of
 * the decision. -1: it stays. */
int ofs_coordinator_forget(struct ofs_coordinator *s,
    struct optimfs_error *err);

#endif
