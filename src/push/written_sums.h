/* written_sums.h - checksums of what is written to files, while it passes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_WRITTEN_SUMS_H
#define OFS_PUSH_WRITTEN_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* CRC-32s of runs of bytes of files that have numbers. Runs that touch are
 * joined, so that what was written from its start to its end, in any number of
 * writes, is one. A run that is not known costs a read at the commit, no more:
 * little runs, and those beyond a number of them, are not kept. Any thread may
 * call. */
struct ofs_written_sums;

/* Of n files. NULL: ENOMEM. */
struct ofs_written_sums *ofs_written_sums_new(uint32_t n,
    struct optimfs_error *err);
void ofs_written_sums_free(struct ofs_written_sums *s);

/* Bytes [off, off + len) of a file are about to be written: nothing is known of
 * them any more, nor of the run that they cut. */
void ofs_written_sums_forget(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len);
/* They have been written, and this is their sum. */
void ofs_written_sums_add(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t crc);
/* The sum of exactly these bytes; false: it is not known. */
bool ofs_written_sums_get(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t *crc);

#endif
