/* stage_left.h - changes that an earlier writer has left in a stage */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_STAGE_LEFT_H
#define OFS_JOURNAL_STAGE_LEFT_H

#include <limits.h>
#include <stdbool.h>

#include "optimfs/error.h"

#include "journal/journal.h"

/* The link beside the checkpoint to a stage in another file system (upper=). */
#define OFS_STAGE_UPPER "upper"

/* Are there changes in the journal? 1, 0; -1: it cannot be read. path is its
 * stage, for messages. */
int ofs_stage_changes(struct ofs_journal *j, const char *path,
    struct optimfs_error *err);
/* Fails with EBUSY (OFS811), which says how the changes at path are recovered or
 * dropped. */
int ofs_stage_refuse(const char *path, bool upper, struct optimfs_error *err);
/* The directory that the link in beside names; "": it has none. */
void ofs_stage_upper(int beside, char path[PATH_MAX]);
/* Fails if the stage at path, that of a link, has changes (EBUSY, OFS811). */
int ofs_stage_check_upper(const char *path, struct optimfs_error *err);

#endif
