/* written_sums.h - checksums of bytes as they are written */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PUSH_WRITTEN_SUMS_H
#define OFS_PUSH_WRITTEN_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* CRC-32s of byte ranges of numbered files. Adjacent ranges are joined, so that
 * a file written from start to end by any number of writes is one range. A
 * range whose checksum is unknown only costs a read at the commit; short
 * ranges, and those above a limit, are not kept. Thread-safe. */
struct ofs_written_sums;

/* For n files. NULL: ENOMEM. */
struct ofs_written_sums *ofs_written_sums_new(uint32_t n,
    struct optimfs_error *err);
void ofs_written_sums_free(struct ofs_written_sums *s);

/* Bytes [off, off + len) are about to be written: drops the ranges that
 * overlap. */
void ofs_written_sums_forget(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len);
/* The bytes were written, and this is their checksum. */
void ofs_written_sums_add(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t crc);
/* The checksum of exactly these bytes; false: unknown. */
bool ofs_written_sums_get(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t *crc);

#endif
