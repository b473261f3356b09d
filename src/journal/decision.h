/* decision.h - the one word on which all directories of a commit agree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_DECISION_H
#define OFS_JOURNAL_DECISION_H

#include "optimfs/error.h"

#include "base/buf.h"
#include "journal/publish.h"

/* A commit to several directories is decided when its id is written down in
 * the stage of who writes them. names are those of the directories, each with
 * its NUL. */
int ofs_decision_write(int stage, const char *id, const struct ofs_buf *names,
    struct optimfs_error *err);
/* 1; 0: there is none, or it was not written to its end; id is "" then. */
int ofs_decision_read(int stage, char id[OFS_PUBLISH_ID], struct ofs_buf *names,
    struct optimfs_error *err);
void ofs_decision_remove(int stage);
/* What was never finished. */
void ofs_decision_clean(int stage);

#endif
