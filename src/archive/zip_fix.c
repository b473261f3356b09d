/* zip_fix.c - checksums of records whose bytes were changed in place */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/zip_fix.h"

#include <string.h>

#include "archive/zip_impl.h"
#include "archive/zip_write.h"
#include "base/copy.h"
#include "base/cursor.h"
#include "base/io.h"

/* Offset of the checksum in a local header. */
#define LOCAL_CRC 14

struct archive {
	int fd;
	uint64_t off;
	struct ofs_zip zip;
};

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct archive *a = ctx;

	return ofs_pread_all(a->fd, buf, len, a->off + off, err);
}

static bool is_storage(const struct ofs_zip_record *r)
{
	return r->size > 0 && r->name.len > 5 &&
	    memcmp(r->name.p, "data/", 5) == 0;
}

/* Has no storage a checksum? That is an option of torch.save. */
static bool without(const struct ofs_zip *zip)
{
	bool any = false;

	for (size_t i = 0; i < zip->n; i++) {
		if (!is_storage(&zip->record[i]))
			continue;
		if (zip->record[i].crc != 0)
			return false;
		any = true;
	}
	return any;
}

static int put_crc(const struct archive *a, uint64_t at, uint32_t crc,
    struct optimfs_error *err)
{
	uint8_t le[4];

	ofs_put_le(le, crc, sizeof(le));
	return ofs_write_all(a->fd, le, sizeof(le), a->off + at, err);
}

/* Write the checksum to the local header, if that has one, and to the
 * descriptor. */
static int put_local(const struct archive *a, const struct ofs_zip_record *r,
    uint64_t data, uint32_t crc, struct optimfs_error *err)
{
	bool behind = (r->flags & OFS_ZIP_HAS_DESCRIPTOR) != 0;
	uint64_t at = data + r->size;
	uint8_t buf[4];

	if (ofs_pread_all(a->fd, buf, 4, a->off + r->header + LOCAL_CRC, err) ==
	    -1)
		return -1;
	if ((!behind || ofs_le32(buf) != 0) &&
	    put_crc(a, r->header + LOCAL_CRC, crc, err) == -1)
		return -1;
	if (!behind)
		return 0;
	if (ofs_pread_all(a->fd, buf, 4, a->off + at, err) == -1)
		return -1;
	if (ofs_le32(buf) == OFS_ZIP_DESCRIPTOR)
		at += 4;
	return put_crc(a, at, crc, err);
}

static int fix_record(struct archive *a, const struct ofs_zip_record *r,
    const struct ofs_ranges *touched, struct optimfs_error *err)
{
	uint64_t data;
	uint32_t crc = 0;

	/* its bytes are somewhere between its header and its end */
	if (!ofs_ranges_meet(touched, a->off + r->header, a->off + r->end))
		return 0;
	if (ofs_zip_data(&a->zip, r, read_archive, a, &data, err) == -1)
		return -1;
	if (!ofs_ranges_meet(touched, a->off + data, a->off + data + r->size))
		return 0;
	if (ofs_zip_crc(data, r->size, read_archive, a, &crc, err) == -1 ||
	    put_local(a, r, data, crc, err) == -1)
		return -1;
	return put_crc(a, a->zip.directory + r->central + OFS_ZIP_CENTRAL_CRC,
	    crc, err);
}

int ofs_zip_fix(int fd, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, struct optimfs_error *err)
{
	struct archive a = { .fd = fd, .off = off };
	int ret = 0;

	if (ofs_zip_open(&a.zip, len, read_archive, &a, err) == -1)
		return -1;
	all = all || !without(&a.zip);
	for (size_t i = 0; i < a.zip.n && ret == 0 && all; i++)
		ret = fix_record(&a, &a.zip.record[i], touched, err);
	ofs_zip_fini(&a.zip);
	return ret;
}
