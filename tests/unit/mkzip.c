/* mkzip.c - zip archives in the layout of torch.save, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "mkzip.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "tap.h"

static void put(struct ofs_buf *b, size_t bytes, uint64_t v)
{
	for (size_t i = 0; i < bytes; i++)
		ofs_buf_putc(b, (int)(v >> 8 * i & 0xff));
}

void mkzip_put(struct mkzip *z, size_t at, size_t bytes, uint64_t v)
{
	for (size_t i = 0; i < bytes; i++)
		z->b.data[at + i] = (uint8_t)(v >> 8 * i);
}

struct mkzip_record *mkzip_add(struct mkzip *z, const char *name,
    const void *data, size_t len)
{
	struct mkzip_record *r = &z->rec[z->n++];
	size_t header = z->b.len - z->base, pad;

	if (z->n > MKZIP_MAX)
		bail_out("too many records");
	*r = (struct mkzip_record){ .header = (uint32_t)header };
	r->name_len = strlen(name);
	memcpy(r->name, name, r->name_len);
	r->crc = (uint32_t)crc32(0, data, (uInt)len);
	r->csize = r->size = (uint32_t)len;
	r->flags = len > 0 ? 0x0808 : 0x0800;
	pad = (64 - (header + 30 + r->name_len + 4) % 64) % 64;
	put(&z->b, 4, 0x04034b50);
	put(&z->b, 2, 0);
	put(&z->b, 2, r->flags);
	for (int i = 0; i < 9; i++)
		put(&z->b, 2, 0);
	put(&z->b, 2, r->name_len);
	put(&z->b, 2, pad + 4);
	ofs_buf_put(&z->b, name, r->name_len);
	put(&z->b, 2, 0x4246);
	put(&z->b, 2, pad);
	while (pad-- > 0)
		ofs_buf_putc(&z->b, 'Z');
	r->data = z->b.len;
	r->data_len = len;
	ofs_buf_put(&z->b, data, len);
	if (len == 0)
		return r;
	put(&z->b, 4, 0x08074b50);
	put(&z->b, 4, r->crc);
	put(&z->b, 4, len);
	put(&z->b, 4, len);
	return r;
}

static void put_entry(struct mkzip *z, struct mkzip_record *r)
{
	struct ofs_buf *b = &z->b;

	r->entry = b->len;
	put(b, 4, 0x02014b50);
	put(b, 4, 0);
	put(b, 2, r->flags);
	put(b, 2, r->method);
	put(b, 4, 0);
	put(b, 4, r->crc);
	put(b, 4, r->csize);
	put(b, 4, r->size);
	put(b, 2, r->name_len);
	put(b, 2, r->extra_len);
	put(b, 2, r->comment_len);
	put(b, 2, r->disk);
	put(b, 2, 0);
	put(b, 4, r->attributes);
	put(b, 4, r->header);
	ofs_buf_put(b, r->name, r->name_len);
	ofs_buf_put(b, r->extra, r->extra_len);
	for (int i = 0; i < r->comment_len; i++)
		ofs_buf_putc(b, 'c');
}

void mkzip_end(struct mkzip *z)
{
	struct ofs_buf *b = &z->b;
	size_t at = b->len - z->base, size;

	z->directory = b->len;
	for (size_t i = 0; i < z->n; i++)
		put_entry(z, &z->rec[i]);
	size = b->len - z->directory;
	z->end64 = b->len;
	if (!z->no64) {
		put(b, 4, 0x06064b50);
		put(b, 8, 44);
		put(b, 4, 798 | 45 << 16);
		put(b, 8, 0);
		put(b, 8, z->n);
		put(b, 8, z->n);
		put(b, 8, size);
		put(b, 8, at);
		z->locator = b->len;
		put(b, 4, 0x07064b50);
		put(b, 4, 0);
		put(b, 8, z->end64 - z->base);
		put(b, 4, 1);
	}
	z->end = b->len;
	put(b, 4, 0x06054b50);
	put(b, 4, 0);
	put(b, 2, z->n);
	put(b, 2, z->n);
	put(b, 4, size);
	put(b, 4, at);
	put(b, 2, 0);
	if (b->bad)
		bail_out("out of memory");
}

void mkzip_fini(struct mkzip *z)
{
	ofs_buf_fini(&z->b);
	memset(z, 0, sizeof(*z));
}

void mkzip_simple(struct mkzip *z, const void *pickle, size_t len)
{
	mkzip_add(z, "archive/data.pkl", pickle, len);
	mkzip_add(z, "archive/version", "3\n", 2);
	mkzip_end(z);
}

int mkzip_read(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	struct mkzip_bytes *m = ctx;

	m->calls++;
	if (off > m->n || len > m->n - off)
		return optimfs_fail(err, EIO, "OFS603 short file");
	memcpy(buf, m->p + off, len);
	return 0;
}
