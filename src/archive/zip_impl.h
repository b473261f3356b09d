/* zip_impl.h - signatures, lengths and flags that the zip modules share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ARCHIVE_ZIP_IMPL_H
#define OFS_ARCHIVE_ZIP_IMPL_H

#include "archive/zip.h"

#define OFS_ZIP_LOCAL      0x04034b50u
#define OFS_ZIP_CENTRAL    0x02014b50u
#define OFS_ZIP_DESCRIPTOR 0x08074b50u
#define OFS_ZIP_END        0x06054b50u
#define OFS_ZIP_END64      0x06064b50u
#define OFS_ZIP_LOCATOR    0x07064b50u

/* Lengths of the fixed parts. */
#define OFS_ZIP_LOCAL_LEN   30u
#define OFS_ZIP_CENTRAL_LEN 46u
#define OFS_ZIP_END_LEN     22u
#define OFS_ZIP_END64_LEN   56u
#define OFS_ZIP_LOCATOR_LEN 20u

#define OFS_ZIP_STORED   0u
#define OFS_ZIP_DEFLATED 8u

#define OFS_ZIP_HAS_DESCRIPTOR 0x0008u
/* Encrypted, patched, strongly encrypted, masked headers. */
#define OFS_ZIP_CRYPT 0x2061u
/* Compression level, descriptor, UTF-8: flags that do not affect the bytes. */
#define OFS_ZIP_FLAGS 0x080eu

#define OFS_ZIP_MAX_NAME 4096u

/* A local header. */
struct ofs_zip_local {
	uint32_t crc, csize, size;
	uint16_t flags, method, name_len, extra_len;
};

/* Parse the OFS_ZIP_LOCAL_LEN bytes of the local header at header. OFS511. */
int ofs_zip_local(const uint8_t *p, struct ofs_zip_local *l, uint64_t header,
    struct optimfs_error *err);

/* Parse a central directory of n records into the records and prefix of zip;
 * zip->directory is its start. */
int ofs_zip_walk(struct ofs_zip *zip, const uint8_t *p, uint64_t len,
    uint64_t n, struct optimfs_error *err);

/* Read the extra fields of a local header, which are at offset at. *has: they have
 * a zip64 block with a size and a stored size, which are put into sizes. */
int ofs_zip_local64(const struct ofs_zip_local *l, uint64_t at,
    ofs_zip_read_fn *read, void *ctx, uint64_t sizes[2], bool *has,
    struct optimfs_error *err);

/* Find the zip64 block in len bytes of extra fields: *block and *n get its
 * content, NULL when there is none. OFS509 when blocks do not fit or there are
 * two. */
int ofs_zip_extra64(const uint8_t *p, uint64_t len, const uint8_t **block,
    uint16_t *n, struct optimfs_error *err);

#endif
