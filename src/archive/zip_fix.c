/* zip_fix.c - checksums of records whose bytes were changed in place */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/zip_fix.h"

#include <stdlib.h>
#include <string.h>

#include "archive/zip_impl.h"
#include "archive/zip_write.h"
#include "base/copy.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"

/* Offset of the checksum in a local header. */
#define LOCAL_CRC 14

struct archive {
	uint64_t off;
	struct ofs_zip zip;
	ofs_zip_read_fn *read; /* reads the file */
	void *ctx;
	struct ofs_zip_sums *sums;
};

static int read_archive(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct archive *a = ctx;

	return a->read(a->ctx, a->off + off, len, buf, err);
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

/* The checksum of n bytes at data is at at. */
static int add_sum(const struct archive *a, uint64_t at, uint64_t data,
    uint64_t n, struct optimfs_error *err)
{
	struct ofs_zip_sums *s = a->sums;

	if (ofs_grow(s->v, s->n, s->cap, err) == -1)
		return -1;
	s->v[s->n++] = (struct ofs_zip_sum){ a->off + at, a->off + data, n };
	return 0;
}

/* Adds the local header, if that has a checksum, and the descriptor. */
static int add_local(struct archive *a, const struct ofs_zip_record *r,
    uint64_t data, struct optimfs_error *err)
{
	bool behind = (r->flags & OFS_ZIP_HAS_DESCRIPTOR) != 0;
	uint64_t at = data + r->size;
	uint8_t buf[4];

	if (read_archive(a, r->header + LOCAL_CRC, 4, buf, err) == -1)
		return -1;
	if ((!behind || ofs_le32(buf) != 0) &&
	    add_sum(a, r->header + LOCAL_CRC, data, r->size, err) == -1)
		return -1;
	if (!behind)
		return 0;
	if (read_archive(a, at, 4, buf, err) == -1)
		return -1;
	if (ofs_le32(buf) == OFS_ZIP_DESCRIPTOR)
		at += 4;
	return add_sum(a, at, data, r->size, err);
}

static int add_record(struct archive *a, const struct ofs_zip_record *r,
    const struct ofs_ranges *touched, struct optimfs_error *err)
{
	uint64_t data;

	/* its bytes are somewhere between its header and its end */
	if (!ofs_ranges_meet(touched, a->off + r->header, a->off + r->end))
		return 0;
	if (ofs_zip_data(&a->zip, r, read_archive, a, &data, err) == -1)
		return -1;
	if (!ofs_ranges_meet(touched, a->off + data, a->off + data + r->size))
		return 0;
	if (add_local(a, r, data, err) == -1)
		return -1;
	return add_sum(a, a->zip.directory + r->central + OFS_ZIP_CENTRAL_CRC,
	    data, r->size, err);
}

int ofs_zip_sums_find(struct ofs_zip_sums *sums, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, ofs_zip_read_fn *read,
    void *ctx, struct optimfs_error *err)
{
	struct archive a = {
		.off = off, .read = read, .ctx = ctx, .sums = sums
	};
	int ret = 0;

	if (ofs_zip_open(&a.zip, len, read_archive, &a, err) == -1)
		return -1;
	all = all || !without(&a.zip);
	for (size_t i = 0; i < a.zip.n && ret == 0 && all; i++)
		ret = add_record(&a, &a.zip.record[i], touched, err);
	ofs_zip_fini(&a.zip);
	return ret;
}

/* Fixing a file in place. */

static int read_fd(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	return ofs_pread_all(*(const int *)ctx, buf, len, off, err);
}

int ofs_zip_fix(int fd, uint64_t off, uint64_t len,
    const struct ofs_ranges *touched, bool all, struct optimfs_error *err)
{
	struct ofs_zip_sums sums = { 0 };
	uint32_t crc = 0;
	uint8_t le[4];
	int ret =
	    ofs_zip_sums_find(&sums, off, len, touched, all, read_fd, &fd, err);

	for (size_t i = 0; i < sums.n && ret == 0; i++) {
		const struct ofs_zip_sum *s = &sums.v[i];

		/* those of a record follow each other */
		if (i == 0 || s->from != sums.v[i - 1].from)
			ret =
			    ofs_zip_crc(s->from, s->n, read_fd, &fd, &crc, err);
		ofs_put_le(le, crc, sizeof(le));
		if (ret == 0)
			ret = ofs_write_all(fd, le, sizeof(le), s->at, err);
	}
	free(sums.v);
	return ret;
}
