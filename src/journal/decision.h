/* decision.h - the decision of a commit to several directories */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_DECISION_H
#define OFS_JOURNAL_DECISION_H

#include "optimfs/error.h"

#include "base/buf.h"
#include "journal/publish.h"

/* A commit to several directories is decided when its id is written to the
 * stage of the writer. names has the names of the directories, each ending in
 * NUL. */
int ofs_decision_write(int stage, const char *id, const struct ofs_buf *names,
    struct optimfs_error *err);
/* 1: read; 0: there is none, or it is incomplete; then id is "". */
int ofs_decision_read(int stage, char id[OFS_PUBLISH_ID], struct ofs_buf *names,
    struct optimfs_error *err);
/* -1: it may stay (err, OFS809). */
int ofs_decision_remove(int stage, struct optimfs_error *err);
/* Removes an unfinished decision. */
void ofs_decision_clean(int stage);

#endif
