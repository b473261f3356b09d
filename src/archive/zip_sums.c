/* zip_sums.c - where an archive has the checksums of its records */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/zip_sums.h"

#include <string.h>

#include "archive/zip_impl.h"
#include "archive/zip_write.h"
#include "base/cursor.h"
#include "base/memory.h"

/* Offset of the checksum in a local header. */
#define LOCAL_CRC 14

struct archive {
	struct ofs_zip zip;
	ofs_zip_read_fn *read;
	void *ctx;
	struct ofs_zip_sums *sums;
};

static bool is_storage(const struct ofs_zip_record *r)
{
	return r->size > 0 && r->name.len > 5 &&
	    memcmp(r->name.p, "data/", 5) == 0;
}

bool ofs_zip_sums_without(const struct ofs_zip *zip)
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
	s->v[s->n++] = (struct ofs_zip_sum){ at, data, n };
	return 0;
}

/* Adds the local header, if that has a checksum, and the descriptor. */
static int add_local(struct archive *a, const struct ofs_zip_record *r,
    uint64_t data, struct optimfs_error *err)
{
	bool behind = (r->flags & OFS_ZIP_HAS_DESCRIPTOR) != 0;
	uint64_t at = data + r->size;
	uint8_t buf[4];

	if (a->read(a->ctx, r->header + LOCAL_CRC, 4, buf, err) == -1)
		return -1;
	if ((!behind || ofs_le32(buf) != 0) &&
	    add_sum(a, r->header + LOCAL_CRC, data, r->size, err) == -1)
		return -1;
	if (!behind)
		return 0;
	if (a->read(a->ctx, at, 4, buf, err) == -1)
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
	if (!ofs_ranges_meet(touched, r->header, r->end))
		return 0;
	if (ofs_zip_data(&a->zip, r, a->read, a->ctx, &data, err) == -1)
		return -1;
	if (!ofs_ranges_meet(touched, data, data + r->size))
		return 0;
	if (add_local(a, r, data, err) == -1)
		return -1;
	return add_sum(a, a->zip.directory + r->central + OFS_ZIP_CENTRAL_CRC,
	    data, r->size, err);
}

int ofs_zip_sums_find(struct ofs_zip_sums *sums, uint64_t len,
    const struct ofs_ranges *touched, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	struct archive a = { .read = read, .ctx = ctx, .sums = sums };
	int ret = 0;

	if (ofs_zip_open(&a.zip, len, read, ctx, err) == -1)
		return -1;
	if (!ofs_zip_sums_without(&a.zip))
		for (size_t i = 0; i < a.zip.n && ret == 0; i++)
			ret = add_record(&a, &a.zip.record[i], touched, err);
	ofs_zip_fini(&a.zip);
	return ret;
}
