/* journal.h - a log of checksummed records that tolerates a torn end */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_H
#define OFS_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "journal/stage.h"

/* A magic number, then records of length, checksum and payload. The checksum
 * covers the length, the payload and the previous checksum. */
struct ofs_journal {
	int fd;
	uint64_t end; /* end of the last good record */
	uint32_t sum; /* checksum of the last record */
	bool broken;  /* appending is no longer possible */
};

/* Reads the journal, calls each for every record, and prepares for appending;
 * each may be NULL. dropped: bytes after the last good record, which stay in
 * the file until ofs_journal_trim. EUCLEAN (OFS810): not a journal of
 * optimfs. */
int ofs_journal_load(struct ofs_journal *j, ofs_replay_fn *each, void *ctx,
    uint64_t *records, uint64_t *dropped, struct optimfs_error *err);
/* Truncates the file after the last good record; writes the magic number to an
 * empty file. */
int ofs_journal_trim(struct ofs_journal *j, struct optimfs_error *err);
int ofs_journal_append(struct ofs_journal *j, const struct ofs_record *r,
    struct optimfs_error *err);
int ofs_journal_sync(struct ofs_journal *j, struct optimfs_error *err);

#endif
