/* journal.h - records, one after another, that end where they are torn */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_JOURNAL_H
#define OFS_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "journal/stage.h"

/* Magic, then records: length, checksum, payload. The checksum is over the
 * length, the payload and the checksum before. */
struct ofs_journal {
	int fd;
	uint64_t end; /* of what is good */
	uint32_t sum; /* of the last record */
	bool broken;  /* nothing can be added any more */
};

/* Read what is there, calling each, and be ready to append; each may be NULL.
 * dropped: bytes behind the last good record. They stay in the file until
 * ofs_journal_trim. EUCLEAN (OFS810): it is none of ours. */
int ofs_journal_load(struct ofs_journal *j, ofs_replay_fn *each, void *ctx,
    uint64_t *records, uint64_t *dropped, struct optimfs_error *err);
/* Cut off what was dropped; write the magic if there is nothing. */
int ofs_journal_trim(struct ofs_journal *j, struct optimfs_error *err);
int ofs_journal_append(struct ofs_journal *j, const struct ofs_record *r,
    struct optimfs_error *err);
int ofs_journal_sync(struct ofs_journal *j, struct optimfs_error *err);

#endif
