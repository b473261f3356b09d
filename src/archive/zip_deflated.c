/* zip_deflated.c - where the bytes of a deflated record are */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "archive/zip_impl.h"
#include "base/cursor.h"

/* Lengths of data descriptors, with their signature. */
#define DESCRIPTOR_LEN   16u
#define DESCRIPTOR64_LEN 24u

bool ofs_zip_deflated_extent(const struct ofs_zip_record *r, uint64_t off,
    struct ofs_extent *at)
{
	if (r->method != OFS_ZIP_DEFLATED)
		return false;
	*at = (struct ofs_extent){
		.off = r->header,
		.len = off + r->stored - r->header,
		.codec = OFS_DEFLATE,
	};
	if ((r->flags & OFS_ZIP_HAS_DESCRIPTOR) != 0)
		at->len = r->end - r->header;
	return true;
}

/* The sizes that the local header leaves to its zip64 field. */
static int read_extra(const struct ofs_zip_local *l, ofs_zip_read_fn *read,
    void *ctx, struct ofs_zip_deflated *d, struct optimfs_error *err)
{
	uint64_t sizes[2];
	bool has;

	if (l->size != UINT32_MAX && l->csize != UINT32_MAX)
		return 0;
	if (ofs_zip_local64(l, OFS_ZIP_LOCAL_LEN + (uint64_t)l->name_len, read,
		ctx, sizes, &has, err) == -1)
		return -1;
	if (has) {
		d->size = sizes[0];
		d->stored = sizes[1];
	}
	return 0;
}

/* A descriptor is the end of the len bytes. A writer that cannot go back to the
 * local header writes one. */
static int read_descriptor(uint64_t len, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip_deflated *d, struct optimfs_error *err)
{
	uint64_t left = len - d->off;
	uint8_t buf[DESCRIPTOR64_LEN];
	const uint8_t *p = buf + sizeof(buf) - DESCRIPTOR_LEN;

	if (left < DESCRIPTOR_LEN)
		return optimfs_fail(err, EIO,
		    "OFS502 a deflated record of %" PRIu64
		    " bytes with its descriptor",
		    left);
	if (read(ctx, len - sizeof(buf), sizeof(buf), buf, err) == -1)
		return -1;
	if (left >= DESCRIPTOR64_LEN && ofs_le32(buf) == OFS_ZIP_DESCRIPTOR) {
		d->crc = ofs_le32(buf + 4);
		d->stored = ofs_le64(buf + 8);
		d->size = ofs_le64(buf + 16);
		left -= DESCRIPTOR64_LEN;
	} else if (ofs_le32(p) == OFS_ZIP_DESCRIPTOR) {
		d->crc = ofs_le32(p + 4);
		d->stored = ofs_le32(p + 8);
		d->size = ofs_le32(p + 12);
		left -= DESCRIPTOR_LEN;
	} else {
		left = UINT64_MAX;
	}
	if (d->stored == left)
		return 0;
	return optimfs_fail(err, EBADMSG,
	    "OFS515 no data descriptor at the end of a deflated record");
}

int ofs_zip_deflated(uint64_t len, ofs_zip_read_fn *read, void *ctx,
    struct ofs_zip_deflated *d, struct optimfs_error *err)
{
	uint8_t buf[OFS_ZIP_LOCAL_LEN];
	struct ofs_zip_local l;

	if (len < sizeof(buf))
		return optimfs_fail(err, EIO,
		    "OFS502 a deflated record of %" PRIu64 " bytes", len);
	if (read(ctx, 0, sizeof(buf), buf, err) == -1 ||
	    ofs_zip_local(buf, &l, 0, err) == -1)
		return -1;
	if (l.method != OFS_ZIP_DEFLATED)
		return optimfs_fail(err, EUCLEAN,
		    "OFS513 local header has method %u and not that of the "
		    "directory",
		    l.method);
	*d = (struct ofs_zip_deflated){
		.off = OFS_ZIP_LOCAL_LEN + (uint64_t)l.name_len + l.extra_len,
		.stored = l.csize,
		.size = l.size,
		.crc = l.crc,
	};
	if (d->off <= len && (l.flags & OFS_ZIP_HAS_DESCRIPTOR) != 0)
		return read_descriptor(len, read, ctx, d, err);
	if (d->off <= len && read_extra(&l, read, ctx, d, err) == -1)
		return -1;
	if (d->off <= len && d->stored == len - d->off)
		return 0;
	return optimfs_fail(err, EIO,
	    "OFS502 a deflated record of %" PRIu64 " bytes at %" PRIu64
	    " in %" PRIu64,
	    d->stored, d->off, len);
}
