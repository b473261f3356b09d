/* zip_sums.h - where an archive has the checksums of its records */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_SUMS_H
#define OFS_ARCHIVE_ZIP_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "archive/zip.h"
#include "base/ranges.h"

/* The checksum of n bytes from from on: 4 bytes at at. Offsets are those in the
 * archive. */
struct ofs_zip_sum {
	uint64_t at, from, n;
};
struct ofs_zip_sums {
	struct ofs_zip_sum *v;
	size_t n, cap;
};

/* Append the checksums of the records of an archive of len bytes that have bytes
 * of touched: in directory, descriptor and local header; those of a record
 * follow each other. An archive without checksums of storages has none. */
int ofs_zip_sums_find(struct ofs_zip_sums *sums, uint64_t len,
    const struct ofs_ranges *touched, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err);
/* Has no storage a checksum? That is an option of torch.save. */
bool ofs_zip_sums_without(const struct ofs_zip *zip);

#endif
