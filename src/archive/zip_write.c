/* zip_write.c - zip archives laid out as torch.save does, piece by piece */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/zip_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "archive/zip_impl.h"

#define BIG 0xffffffffu

static size_t name_len(const struct ofs_zip_new *r)
{
	return strlen(r->prefix) + strlen(r->name);
}

static void put_name(struct ofs_buf *b, const struct ofs_zip_new *r)
{
	ofs_buf_puts(b, r->prefix);
	ofs_buf_puts(b, r->name);
}

/* The length of the zip64 block, for fields that do not fit in 32 bits. */
static unsigned big_len(const struct ofs_zip_new *r)
{
	unsigned n = r->size >= BIG ? 16 : 0;

	n += r->header >= BIG ? 8 : 0;
	return n == 0 ? 0 : n + 4;
}

static void put_big(struct ofs_buf *b, const struct ofs_zip_new *r,
    uint64_t stored)
{
	if (big_len(r) == 0)
		return;
	ofs_buf_put_le(b, 1, 2);
	ofs_buf_put_le(b, big_len(r) - 4, 2);
	if (r->size >= BIG) {
		ofs_buf_put_le(b, r->size, 8);
		ofs_buf_put_le(b, stored, 8);
	}
	if (r->header >= BIG)
		ofs_buf_put_le(b, r->header, 8);
}

static unsigned flags(const struct ofs_zip_new *r)
{
	return r->size == 0 ? 0x0800 : 0x0800 | OFS_ZIP_HAS_DESCRIPTOR;
}

static unsigned padding(const struct ofs_zip_new *r)
{
	uint64_t at = r->header + OFS_ZIP_LOCAL_LEN + name_len(r) + 4;

	return (unsigned)((OFS_ZIP_ALIGN - (at + big_len(r)) % OFS_ZIP_ALIGN) %
	    OFS_ZIP_ALIGN);
}

uint64_t ofs_zip_local_len(const struct ofs_zip_new *r)
{
	return OFS_ZIP_LOCAL_LEN + name_len(r) + 4 + big_len(r) + padding(r);
}

uint64_t ofs_zip_descriptor_len(const struct ofs_zip_new *r)
{
	if (r->size == 0)
		return 0;
	return r->size >= BIG || r->header >= BIG ? 24 : 16;
}

uint64_t ofs_zip_central_len(const struct ofs_zip_new *r)
{
	return OFS_ZIP_CENTRAL_LEN + name_len(r) + big_len(r);
}

uint64_t ofs_zip_next(const struct ofs_zip_new *r)
{
	return r->header + ofs_zip_local_len(r) + r->size +
	    ofs_zip_descriptor_len(r);
}

void ofs_zip_put_local(struct ofs_buf *b, const struct ofs_zip_new *r)
{
	static const char fill[OFS_ZIP_ALIGN] =
	    "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
	    "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
	unsigned pad = padding(r);

	ofs_buf_put_le(b, OFS_ZIP_LOCAL, 4);
	ofs_buf_put_le(b, 0, 2);
	ofs_buf_put_le(b, flags(r), 2);
	ofs_buf_put_le(b, 0, 8);
	ofs_buf_put_le(b, 0, 8);
	ofs_buf_put_le(b, 0, 2);
	ofs_buf_put_le(b, name_len(r), 2);
	ofs_buf_put_le(b, big_len(r) + 4 + pad, 2);
	put_name(b, r);
	put_big(b, r, 0);
	ofs_buf_put_le(b, 0x4246, 2);
	ofs_buf_put_le(b, pad, 2);
	ofs_buf_put(b, fill, pad);
}

void ofs_zip_put_descriptor(struct ofs_buf *b, const struct ofs_zip_new *r)
{
	int width = ofs_zip_descriptor_len(r) == 24 ? 8 : 4;

	if (r->size == 0)
		return;
	ofs_buf_put_le(b, OFS_ZIP_DESCRIPTOR, 4);
	ofs_buf_put_le(b, r->crc, 4);
	ofs_buf_put_le(b, r->size, width);
	ofs_buf_put_le(b, r->size, width);
}

void ofs_zip_put_central(struct ofs_buf *b, const struct ofs_zip_new *r)
{
	ofs_buf_put_le(b, OFS_ZIP_CENTRAL, 4);
	ofs_buf_put_le(b, 0, 4);
	ofs_buf_put_le(b, flags(r), 2);
	ofs_buf_put_le(b, 0, 6);
	ofs_buf_put_le(b, r->crc, 4);
	ofs_buf_put_le(b, r->size >= BIG ? BIG : r->size, 4);
	ofs_buf_put_le(b, r->size >= BIG ? BIG : r->size, 4);
	ofs_buf_put_le(b, name_len(r), 2);
	ofs_buf_put_le(b, big_len(r), 2);
	ofs_buf_put_le(b, 0, 8);
	ofs_buf_put_le(b, 0, 2);
	ofs_buf_put_le(b, r->header >= BIG ? BIG : r->header, 4);
	put_name(b, r);
	put_big(b, r, r->size);
}

void ofs_zip_put_end(struct ofs_buf *b, uint64_t n, uint64_t start,
    uint64_t size)
{
	unsigned short_n = n > 0xffff ? 0xffff : (unsigned)n;

	ofs_buf_put_le(b, OFS_ZIP_END64, 4);
	ofs_buf_put_le(b, OFS_ZIP_END64_LEN - 12, 8);
	ofs_buf_put_le(b, 0x031e, 2);
	ofs_buf_put_le(b, 45, 2);
	ofs_buf_put_le(b, 0, 8);
	ofs_buf_put_le(b, n, 8);
	ofs_buf_put_le(b, n, 8);
	ofs_buf_put_le(b, size, 8);
	ofs_buf_put_le(b, start, 8);
	ofs_buf_put_le(b, OFS_ZIP_LOCATOR, 4);
	ofs_buf_put_le(b, 0, 4);
	ofs_buf_put_le(b, start + size, 8);
	ofs_buf_put_le(b, 1, 4);
	ofs_buf_put_le(b, OFS_ZIP_END, 4);
	ofs_buf_put_le(b, 0, 4);
	ofs_buf_put_le(b, short_n, 2);
	ofs_buf_put_le(b, short_n, 2);
	ofs_buf_put_le(b, size < BIG ? size : BIG, 4);
	ofs_buf_put_le(b, start < BIG ? start : BIG, 4);
	ofs_buf_put_le(b, 0, 2);
}

static void small(struct ofs_zip_small *r, const char *name, const char *bytes)
{
	r->name = name;
	r->len = (uint32_t)strlen(bytes);
	memcpy(r->bytes, bytes, r->len + 1);
}

void ofs_zip_before(unsigned i, struct ofs_zip_small *r)
{
	static const char *const v[OFS_ZIP_NBEFORE][2] = {
		{ ".format_version", "1" },
		{ ".storage_alignment", "64" },
		{ "byteorder", "little" },
	};

	small(r, v[i][0], v[i][1]);
}

void ofs_zip_after(unsigned i, uint64_t id, bool ordered,
    struct ofs_zip_small *r)
{
	char text[44];

	snprintf(text, sizeof(text), "%020" PRIu64 "%020u", id,
	    ordered ? 1u : 0u);
	if (i == 0)
		small(r, "version", "3\n");
	else
		small(r, ".data/serialization_id", text);
}

bool ofs_zip_unordered(const char id[OFS_ZIP_ID_LEN])
{
	for (unsigned i = OFS_ZIP_ID_LEN / 2; i < OFS_ZIP_ID_LEN; i++)
		if (id[i] != '0')
			return false;
	return true;
}
