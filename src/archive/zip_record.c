/* zip_record.c - local headers, data descriptors and checksums of records */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/zip_impl.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/memory.h"
#include "base/str.h"

#define CHUNK (1u << 20)

/* What the local header of a record must say. */
struct wanted {
	uint64_t csize, size;
	uint16_t method;
};

int ofs_zip_local(const uint8_t *p, struct ofs_zip_local *l, uint64_t header,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, OFS_ZIP_LOCAL_LEN);

	if (ofs_cursor_le32(&c) != OFS_ZIP_LOCAL)
		return optimfs_fail(err, EUCLEAN,
		    "OFS511 no local header at %" PRIu64, header);
	ofs_cursor_le16(&c); /* version */
	l->flags = ofs_cursor_le16(&c);
	l->method = ofs_cursor_le16(&c);
	ofs_cursor_le32(&c); /* time */
	l->crc = ofs_cursor_le32(&c);
	l->csize = ofs_cursor_le32(&c);
	l->size = ofs_cursor_le32(&c);
	l->name_len = ofs_cursor_le16(&c);
	l->extra_len = ofs_cursor_le16(&c);
	return 0;
}

/* torch.save writes a size of 0 here. Other writers repeat the size, or leave
 * it to the zip64 field even where it would fit. */
static bool size_agrees(uint32_t local, uint64_t size)
{
	return local == 0 || local == size || local == UINT32_MAX;
}

static int sizes_differ(uint64_t size, uint64_t csize,
    const struct wanted *want, struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN,
	    "OFS514 local header says %" PRIu64 " bytes, stored as %" PRIu64
	    "; the directory says %" PRIu64 ", stored as %" PRIu64,
	    size, csize, want->size, want->csize);
}

int ofs_zip_local64(const struct ofs_zip_local *l, uint64_t at,
    ofs_zip_read_fn *read, void *ctx, uint64_t sizes[2], bool *has,
    struct optimfs_error *err)
{
	uint8_t *buf = malloc((size_t)l->extra_len + 1);
	const uint8_t *block;
	uint16_t n = 0;
	int ret;

	if (buf == NULL)
		return ofs_no_memory(err);
	ret = read(ctx, at, l->extra_len, buf, err);
	if (ret == 0)
		ret = ofs_zip_extra64(buf, l->extra_len, &block, &n, err);
	*has = n >= 16;
	for (int i = 0; i < 2 && *has; i++)
		sizes[i] = ofs_le64(block + 8 * i);
	free(buf);
	return ret;
}

/* Check the sizes in the zip64 field of a local header; torch writes the size
 * and 0. */
static int check_extra(const struct ofs_zip_local *l, uint64_t at,
    const struct wanted *want, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	uint64_t v[2];
	bool has;

	if (ofs_zip_local64(l, at, read, ctx, v, &has, err) == -1)
		return -1;
	if (!has && l->size == UINT32_MAX && want->size < UINT32_MAX)
		return optimfs_fail(err, EUCLEAN,
		    "OFS514 local header leaves its size to a zip64 field that "
		    "it does not have");
	if (has &&
	    ((v[0] != 0 && v[0] != want->size) ||
		(v[1] != 0 && v[1] != want->csize)))
		return sizes_differ(v[0], v[1], want, err);
	return 0;
}

/* Check what does not need the entry in the directory. */
static int check(const struct ofs_zip_local *l, uint64_t header,
    const struct wanted *want, ofs_zip_read_fn *read, void *ctx,
    struct optimfs_error *err)
{
	if (l->method != want->method || (l->flags & ~OFS_ZIP_FLAGS) != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS513 local header at %" PRIu64
		    " has method %u and flags 0x%04x, unlike the directory",
		    header, l->method, l->flags);
	if (!size_agrees(l->size, want->size) ||
	    !size_agrees(l->csize, want->csize))
		return sizes_differ(l->size, l->csize, want, err);
	if (want->size < UINT32_MAX && l->size != UINT32_MAX &&
	    l->csize != UINT32_MAX)
		return 0;
	return check_extra(l, header + OFS_ZIP_LOCAL_LEN + l->name_len, want,
	    read, ctx, err);
}

static int check_named(const struct ofs_zip *zip,
    const struct ofs_zip_record *r, const struct ofs_zip_local *l,
    const char *name, struct optimfs_error *err)
{
	uint32_t want = zip->prefix.len + r->name.len;
	struct ofs_str got = { name, l->name_len < want ? l->name_len : want };

	if (l->name_len != want ||
	    memcmp(name, zip->prefix.p, zip->prefix.len) != 0 ||
	    memcmp(name + zip->prefix.len, r->name.p, r->name.len) != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS512 local '%.*s'%s, central '%.*s%.*s'",
		    OFS_STR_ARGS(got, 120),
		    l->name_len > want ? " and more" : "",
		    OFS_STR_ARGS(zip->prefix, 120), OFS_STR_ARGS(r->name, 120));
	if (l->flags != r->flags)
		return optimfs_fail(err, EUCLEAN,
		    "OFS513 local flags 0x%04x, central 0x%04x", l->flags,
		    r->flags);
	return 0;
}

static int find_data(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, uint64_t *off, struct optimfs_error *err)
{
	uint8_t buf[OFS_ZIP_LOCAL_LEN + 2 * OFS_ZIP_MAX_NAME];
	uint64_t n = OFS_ZIP_LOCAL_LEN + zip->prefix.len + r->name.len;
	struct wanted want = { r->stored, r->size, r->method };
	struct ofs_zip_local l;
	uint64_t data;

	if (read(ctx, r->header, n, buf, err) == -1 ||
	    ofs_zip_local(buf, &l, r->header, err) == -1 ||
	    check(&l, r->header, &want, read, ctx, err) == -1 ||
	    check_named(zip, r, &l, (char *)buf + OFS_ZIP_LOCAL_LEN, err) == -1)
		return -1;
	data = r->header + n + l.extra_len;
	if (data > r->end || r->stored > r->end - data)
		return optimfs_fail(err, EUCLEAN,
		    "OFS519 its %" PRIu64 " bytes at %" PRIu64
		    " overlap what starts at %" PRIu64,
		    r->stored, data, r->end);
	*off = data;
	return 0;
}

int ofs_zip_data(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, uint64_t *off, struct optimfs_error *err)
{
	if (find_data(zip, r, read, ctx, off, err) == 0)
		return 0;
	return optimfs_fail_in(err, "record '%.*s'",
	    OFS_STR_ARGS(r->name, 120));
}

static uint16_t tag_of(uint32_t crc)
{
	uint16_t tag = (uint16_t)(crc ^ crc >> 16);

	return tag == 0 ? 1 : tag;
}

uint16_t ofs_zip_tag(const struct ofs_zip *zip, const struct ofs_zip_record *r)
{
	uint32_t crc = ofs_crc32(0, zip->prefix.p, zip->prefix.len);

	return tag_of(ofs_crc32(crc, r->name.p, r->name.len));
}

int ofs_zip_data_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, uint64_t *off, struct optimfs_error *err)
{
	uint8_t buf[OFS_ZIP_LOCAL_LEN + OFS_ZIP_MAX_NAME];
	uint64_t left = at->off < end ? end - at->off : 0, n = 512, data;
	struct wanted want = { at->len, at->len, OFS_ZIP_STORED };
	struct ofs_zip_local l;

	if (n > left)
		n = left;
	if (n < OFS_ZIP_LOCAL_LEN)
		return optimfs_fail(err, EUCLEAN,
		    "OFS511 local header at %" PRIu64
		    " of an archive that ends at %" PRIu64,
		    at->off, end);
	if (read(ctx, at->off, n, buf, err) == -1 ||
	    ofs_zip_local(buf, &l, at->off, err) == -1 ||
	    check(&l, at->off, &want, read, ctx, err) == -1)
		return -1;
	data = OFS_ZIP_LOCAL_LEN + l.name_len + (uint64_t)l.extra_len;
	if (data > left || at->len > left - data)
		return optimfs_fail(err, EIO,
		    "OFS502 record of %" PRIu64 " bytes at %" PRIu64 " extends "
		    "past the archive's end at %" PRIu64,
		    at->len, at->off, end);
	if (l.name_len > OFS_ZIP_MAX_NAME)
		return optimfs_fail(err, EUCLEAN,
		    "OFS512 local name of %u bytes at %" PRIu64, l.name_len,
		    at->off);
	if (n < OFS_ZIP_LOCAL_LEN + l.name_len &&
	    read(ctx, at->off + n, OFS_ZIP_LOCAL_LEN + l.name_len - n, buf + n,
		err) == -1)
		return -1;
	if (at->tag != 0 &&
	    at->tag !=
		tag_of(ofs_crc32(0, buf + OFS_ZIP_LOCAL_LEN, l.name_len)))
		return optimfs_fail(err, EUCLEAN,
		    "OFS512 local '%.*s' at %" PRIu64
		    " is not what the directory names",
		    l.name_len > 120 ? 120 : l.name_len,
		    (char *)buf + OFS_ZIP_LOCAL_LEN, at->off);
	*off = at->off + data;
	return 0;
}

/* The checksum of len bytes at off. */
static int compute_crc(uint64_t off, uint64_t len, ofs_zip_read_fn *read,
    void *ctx, uint32_t *crc, struct optimfs_error *err)
{
	uint8_t *buf = malloc(CHUNK);
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	*crc = 0;
	while (len > 0 && ret == 0) {
		uint32_t n = len < CHUNK ? (uint32_t)len : CHUNK;

		ret = read(ctx, off, n, buf, err);
		if (ret == 0)
			*crc = ofs_crc32(*crc, buf, n);
		off += n;
		len -= n;
	}
	free(buf);
	return ret;
}

/* Does a descriptor, with or without signature, with 32 or 64 bit sizes, agree
 * with the directory? */
static bool descriptor_agrees(const uint8_t *p, uint64_t n,
    const struct ofs_zip_record *r)
{
	if (n >= 16 && ofs_le32(p) == OFS_ZIP_DESCRIPTOR) {
		p += 4;
		n -= 4;
	}
	if (n < 12 || ofs_le32(p) != r->crc)
		return false;
	if (ofs_le32(p + 4) == r->size && ofs_le32(p + 8) == r->size)
		return true;
	return n >= 20 && ofs_le64(p + 4) == r->size &&
	    ofs_le64(p + 12) == r->size;
}

static int check_descriptor(const struct ofs_zip_record *r, uint64_t at,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err)
{
	uint64_t n = r->end - at < 24 ? r->end - at : 24;
	uint8_t buf[24];

	if ((r->flags & OFS_ZIP_HAS_DESCRIPTOR) == 0)
		return 0;
	if (read(ctx, at, n, buf, err) == -1)
		return -1;
	if (descriptor_agrees(buf, n, r))
		return 0;
	return optimfs_fail(err, EBADMSG,
	    "OFS515 data descriptor of '%.*s' at %" PRIu64
	    " disagrees with the directory",
	    OFS_STR_ARGS(r->name, 120), at);
}

int ofs_zip_verify(const struct ofs_zip *zip, const struct ofs_zip_record *r,
    ofs_zip_read_fn *read, void *ctx, struct optimfs_error *err)
{
	uint64_t off;
	uint32_t crc = 0;

	if (r->method == OFS_ZIP_DEFLATED)
		return 0;
	if (ofs_zip_data(zip, r, read, ctx, &off, err) == -1 ||
	    check_descriptor(r, off + r->size, read, ctx, err) == -1 ||
	    compute_crc(off, r->size, read, ctx, &crc, err) == -1)
		return -1;
	if (crc == r->crc)
		return 0;
	if (r->crc == 0)
		return 1;
	return optimfs_fail(err, EBADMSG,
	    "OFS530 CRC mismatch in '%.*s': 0x%08" PRIx32
	    ", stored 0x%08" PRIx32,
	    OFS_STR_ARGS(r->name, 120), crc, r->crc);
}

/* *crc = the checksum in the headers of a record; 0: it has none. */
static int stored_crc(const struct ofs_extent *at, uint64_t data, uint64_t end,
    ofs_zip_read_fn *read, void *ctx, uint32_t *crc, struct optimfs_error *err)
{
	uint8_t buf[OFS_ZIP_LOCAL_LEN], *p = buf;
	uint64_t behind = data + at->len;
	struct ofs_zip_local l;

	if (read(ctx, at->off, sizeof(buf), buf, err) == -1 ||
	    ofs_zip_local(buf, &l, at->off, err) == -1)
		return -1;
	*crc = l.crc;
	if ((l.flags & OFS_ZIP_HAS_DESCRIPTOR) == 0 || end - behind < 8)
		return 0;
	if (read(ctx, behind, 8, buf, err) == -1)
		return -1;
	if (ofs_le32(p) == OFS_ZIP_DESCRIPTOR)
		p += 4;
	*crc = ofs_le32(p);
	return 0;
}

int ofs_zip_verify_at(const struct ofs_extent *at, ofs_zip_read_fn *read,
    void *ctx, uint64_t end, struct optimfs_error *err)
{
	uint32_t stored;
	uint64_t off;
	uint32_t crc = 0;

	if (ofs_zip_data_at(at, read, ctx, end, &off, err) == -1 ||
	    stored_crc(at, off, end, read, ctx, &stored, err) == -1 ||
	    compute_crc(off, at->len, read, ctx, &crc, err) == -1)
		return -1;
	if (crc == stored)
		return 0;
	if (stored == 0)
		return 1;
	return optimfs_fail(err, EBADMSG,
	    "OFS530 CRC mismatch in the record at %" PRIu64 ": 0x%08" PRIx32
	    ", stored 0x%08" PRIx32,
	    at->off, crc, stored);
}

void ofs_window_init(struct ofs_window *w, uint64_t size, ofs_zip_read_fn *read,
    void *ctx)
{
	w->read = read;
	w->ctx = ctx;
	w->size = size;
	w->next = 0;
	for (int i = 0; i < 2; i++)
		w->piece[i].off = w->piece[i].len = 0;
}

int ofs_window_read(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct ofs_window *w = ctx;
	struct ofs_window_piece *p;
	uint64_t n;

	for (int i = 0; i < 2; i++) {
		p = &w->piece[i];
		if (off >= p->off && off - p->off <= p->len &&
		    len <= p->len - (off - p->off)) {
			memcpy(buf, p->bytes + (off - p->off), len);
			return 0;
		}
	}
	if (len > OFS_ZIP_TAIL || off > w->size || len > w->size - off)
		return w->read(w->ctx, off, len, buf, err);
	p = &w->piece[w->next];
	p->len = 0;
	p->off = off;
	if (w->size - off < OFS_ZIP_TAIL)
		p->off = w->size < OFS_ZIP_TAIL ? 0 : w->size - OFS_ZIP_TAIL;
	n = w->size - p->off;
	if (n > OFS_ZIP_TAIL)
		n = OFS_ZIP_TAIL;
	if (w->read(w->ctx, p->off, n, p->bytes, err) == -1)
		return -1;
	p->len = n;
	w->next ^= 1;
	memcpy(buf, p->bytes + (off - p->off), len);
	return 0;
}
