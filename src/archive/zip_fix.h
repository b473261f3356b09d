/* zip_fix.h - checksums of records whose bytes were changed in place */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_FIX_H
#define OFS_ARCHIVE_ZIP_FIX_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip.h"
#include "base/ranges.h"

/* Where an archive has the checksum of a record: 4 bytes at at, of n bytes from
 * from on. Offsets are those of the file that contains the archive. */
struct ofs_zip_sum {
	uint64_t at, from, n;
};
struct ofs_zip_sums {
	struct ofs_zip_sum *v;
	size_t n, cap;
};

/* Append the checksums of the records in the archive at bytes [off, off + len)
 * of a file that have bytes of touched: in directory, descriptor and local
 * header, in any order. An archive without checksums of storages has none,
 * unless all is set. read and ctx read the file. */
int ofs_zip_sums_find(struct ofs_zip_sums *sums, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err);

/* After bytes of fd at touched (offsets in the file) were changed: write new
 * checksums of the records that contain them, in the archive at bytes [off, off
 * + len): in directory, descriptor and local header. fd is open for reading and
 * writing. */
int ofs_zip_fix(int fd, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, struct optimfs_error *err);

#endif
