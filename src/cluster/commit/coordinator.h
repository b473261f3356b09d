/* coordinator.h - the directories of a checkpoint that one rank writes for all */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_COORDINATOR_H
#define OFS_CLUSTER_COMMIT_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "journal/publish.h"

struct ofs_buf;
struct ofs_publish_plan;
struct ofs_manifest;

/* A checkpoint of several ranks lies in one directory or in several: each
 * rank's own disk, a file system that some of them share. The
 * participant of such a directory (participant.h) is the lowest rank that sees it. The
 * writer, rank 0, has the stage with all that is not committed; in a commit it
 * makes the new files and hands each to the participants that have the old one.
 *
 * They are published by two phases (docs/architecture.md, "Writing by several
 * ranks"): all participants prepare, and if one cannot, all take it back. Then
 * the writer decides: it writes the id of the commit down beside its own lock.
 * From there on the new generation is the checkpoint, and what is not yet in
 * place will be put there by the next mount for writing, if not by this one. */
struct ofs_coordinator;

/* Let every rank join: those that see a directory that has a participant
 * already belong to that one. id is that of the writer's own lock, stage the directory
 * beside it with the lock; it is borrowed. EBUSY (OFS259): somebody else writes
 * in one of them. */
struct ofs_coordinator *ofs_coordinator_open(struct ofs_manifest *s,
    const char *id, int stage, struct optimfs_error *err);
void ofs_coordinator_free(struct ofs_coordinator *s);
/* After a commit: find out what the ranks have now, ofs_manifest_refresh. */
int ofs_coordinator_refresh(struct ofs_coordinator *s,
    struct optimfs_error *err);
/* How all of it is opened: the path, borrowed, that was offered in *group. */
const char *ofs_coordinator_source(const struct ofs_coordinator *s,
    struct optimfs_group **group);
/* Is there but one, and the writer sees it? Then nobody else is needed. */
bool ofs_coordinator_alone(const struct ofs_coordinator *s);
/* A commit that was cut short is finished or taken back, by all participants. 1: it
 * was decided, so that what was staged for it is done; 0. EBUSY (OFS841): a
 * directory where it is to be finished is not among these. */
int ofs_coordinator_recover(struct ofs_coordinator *s,
    struct optimfs_error *err);
/* Does any have a file called rel? */
bool ofs_coordinator_have(const struct ofs_coordinator *s, const char *rel);
/* Publish what plan says; its files lie in directory new. 0: done and safe; 1:
 * decided, but not known to be done everywhere (err, OFS803); -1: nothing has
 * changed. */
int ofs_coordinator_publish(struct ofs_coordinator *s,
    const struct ofs_publish_plan *plan, int new, struct optimfs_error *err);
/* ofs_publish_begin (journal/publish.h) for all directories: files are made
 * in stage, and go to where s says when they are published. */
struct ofs_publish *ofs_publish_begin_all(struct ofs_coordinator *s, int stage,
    struct optimfs_error *err);
/* The journal of what was published is empty: nothing is left to be done. */
void ofs_coordinator_forget(struct ofs_coordinator *s);

#endif
