/* item.c - the torch.save archives that DCP stores, one for each item */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "item.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "le.h"

#define ALIGN       64
#define BIG         UINT64_C(0xffffffff)
#define RECORDS     6 /* of an archive without storages */
#define RECORD_NAME 32

struct record {
	char name[RECORD_NAME]; /* after "archive/" */
	uint64_t header, size;
	uint32_t crc;
};

struct archive {
	struct sink *s;
	struct record *record;
	size_t n, nstorages;
};

static void put_buf(struct sink *s, struct ofs_buf *b)
{
	if (b->bad)
		die("out of memory");
	sink_put(s, b->data, b->len);
	ofs_buf_fini(b);
}

static unsigned flags_of(const struct record *r)
{
	return r->size == 0 ? 0x0800 : 0x0808;
}

static bool is_big(const struct record *r)
{
	return r->size >= BIG || r->header >= BIG;
}

static void put_name(struct ofs_buf *b, const struct record *r)
{
	ofs_buf_puts(b, "archive/");
	ofs_buf_puts(b, r->name);
}

/* Writes the local header of a record of size bytes, with padding that aligns the
 * data. */
static void begin_record(struct archive *a, const char *name, uint64_t size)
{
	struct record *r = &a->record[a->n++];
	size_t len = strlen("archive/") + strlen(name), big = 0, pad;
	struct ofs_buf b = { 0 };

	*r = (struct record){ .header = a->s->raw, .size = size };
	snprintf(r->name, sizeof(r->name), "%s", name);
	if (size >= BIG)
		big = 20;
	else if (r->header >= BIG)
		big = 12;
	pad = (size_t) - (r->header + 30 + len + 4 + big) % ALIGN;
	put_le(&b, 0x04034b50, 4);
	put_le(&b, 0, 2);
	put_le(&b, flags_of(r), 2);
	put_le(&b, 0, 18);
	put_le(&b, len, 2);
	put_le(&b, big + 4 + pad, 2);
	put_name(&b, r);
	if (big != 0) {
		put_le(&b, 1, 2);
		put_le(&b, big - 4, 2);
		put_le(&b, size >= BIG ? size : r->header, 8);
		put_le(&b, 0, (int)big - 12);
	}
	put_le(&b, 0x4246, 2);
	put_le(&b, pad, 2);
	for (size_t i = 0; i < pad; i++)
		ofs_buf_putc(&b, 'Z');
	put_buf(a->s, &b);
}

/* The descriptor behind a record. */
static void end_record(struct archive *a, uint32_t crc)
{
	struct record *r = &a->record[a->n - 1];
	int width = is_big(r) ? 8 : 4;
	struct ofs_buf b = { 0 };

	r->crc = crc;
	if (r->size == 0)
		return;
	put_le(&b, 0x08074b50, 4);
	put_le(&b, crc, 4);
	put_le(&b, r->size, width);
	put_le(&b, r->size, width);
	put_buf(a->s, &b);
}

static void put_record(struct archive *a, const char *name, const void *p,
    size_t n)
{
	begin_record(a, name, n);
	sink_put(a->s, p, n);
	end_record(a, (uint32_t)crc32(0, p, (uInt)n));
}

static void put_entry(struct ofs_buf *b, const struct record *r)
{
	bool size = r->size >= BIG, far = !size && r->header >= BIG;

	put_le(b, 0x02014b50, 4);
	put_le(b, 0, 4);
	put_le(b, flags_of(r), 2);
	put_le(b, 0, 6);
	put_le(b, r->crc, 4);
	put_le(b, size ? BIG : r->size, 4);
	put_le(b, size ? BIG : r->size, 4);
	put_le(b, strlen("archive/") + strlen(r->name), 2);
	put_le(b, size ? 20 : far ? 12 : 0, 2);
	put_le(b, 0, 10);
	put_le(b, far ? BIG : r->header, 4);
	put_name(b, r);
	if (size) {
		put_le(b, 1, 2);
		put_le(b, 16, 2);
		put_le(b, r->size, 8);
		put_le(b, r->size, 8);
	} else if (far) {
		put_le(b, 1, 2);
		put_le(b, 8, 2);
		put_le(b, r->header, 8);
	}
}

static void put_directory(struct archive *a)
{
	uint64_t start = a->s->raw, size, end;
	struct ofs_buf b = { 0 };

	for (size_t i = 0; i < a->n; i++)
		put_entry(&b, &a->record[i]);
	size = b.len;
	end = start + size;
	put_le(&b, 0x06064b50, 4);
	put_le(&b, 44, 8);
	put_le(&b, 0x031e, 2);
	put_le(&b, 45, 2);
	put_le(&b, 0, 8);
	put_le(&b, a->n, 8);
	put_le(&b, a->n, 8);
	put_le(&b, size, 8);
	put_le(&b, start, 8);
	put_le(&b, 0x07064b50, 4);
	put_le(&b, 0, 4);
	put_le(&b, end, 8);
	put_le(&b, 1, 4);
	put_le(&b, 0x06054b50, 4);
	put_le(&b, 0, 4);
	put_le(&b, a->n, 2);
	put_le(&b, a->n, 2);
	put_le(&b, size, 4);
	put_le(&b, start < BIG ? start : BIG, 4);
	put_le(&b, 0, 2);
	put_buf(a->s, &b);
}

/* Records between the pickle and the data. */
struct archive *item_begin(struct sink *s, const void *pickle, size_t n,
    size_t nstorages)
{
	struct archive *a = must_alloc(sizeof(*a));

	a->s = s;
	a->record = must_alloc((RECORDS + nstorages) * sizeof(*a->record));
	put_record(a, "data.pkl", pickle, n);
	put_record(a, ".format_version", "1", 1);
	put_record(a, ".storage_alignment", "64", 2);
	put_record(a, "byteorder", "little", 6);
	return a;
}

void item_finish(struct archive *a)
{
	uint32_t names = 0, sums = 0;
	char id[41];

	put_record(a, "version", "3\n", 2);
	for (size_t i = 0; i < a->n; i++) {
		names = (uint32_t)crc32(names, (const Bytef *)a->record[i].name,
		    (uInt)strlen(a->record[i].name));
		sums = sums * 31 + a->record[i].crc;
	}
	snprintf(id, sizeof(id), "%020u%020u", names, sums);
	put_record(a, ".data/serialization_id", id, 40);
	put_directory(a);
	free(a->record);
	free(a);
}

uint64_t box_numel(const struct box *b)
{
	uint64_t n = 1;

	for (size_t i = 0; i < b->ndim; i++)
		n *= b->size[i];
	return n;
}

/* A tuple of integers, put into the memo as number memo; () is not. */
static unsigned put_tuple(struct ofs_buf *b, const uint64_t *v, size_t n,
    unsigned memo)
{
	if (n == 0) {
		ofs_buf_putc(b, ')');
		return memo;
	}
	if (n > 3)
		ofs_buf_putc(b, '(');
	for (size_t i = 0; i < n; i++)
		put_int(b, v[i]);
	ofs_buf_putc(b, n > 3 ? 't' : "\x85\x86\x87"[n - 1]);
	ofs_buf_printf(b, "q%c", (int)memo);
	return memo + 1;
}

static void put_string(struct ofs_buf *b, const char *s, int memo)
{
	ofs_buf_putc(b, 'X');
	put_le(b, strlen(s), 4);
	ofs_buf_puts(b, s);
	ofs_buf_putc(b, 'q');
	ofs_buf_putc(b, memo);
}

/* The pickle of a contiguous tensor, opcode by opcode as torch.save has it. */
static void put_pickle(struct ofs_buf *b, const struct content *c,
    const struct box *box)
{
	uint64_t stride[MAX_DIMS] = { 0 }, n = 1;
	unsigned memo = 6;

	for (size_t i = box->ndim; i-- > 0;) {
		stride[i] = n;
		n *= box->size[i] > 0 ? box->size[i] : 1;
	}
	ofs_buf_put(b, "\x80\2", 2);
	ofs_buf_puts(b, "ctorch._utils\n_rebuild_tensor_v2\nq");
	ofs_buf_put(b, "\0((", 3);
	put_string(b, "storage", 1);
	ofs_buf_printf(b, "ctorch\n%s\nq\2", c->dtype->storage);
	put_string(b, "0", 3);
	put_string(b, "cpu", 4);
	put_int(b, box_numel(box));
	ofs_buf_put(b, "tq\5QK\0", 6);
	memo = put_tuple(b, box->size, box->ndim, memo);
	memo = put_tuple(b, stride, box->ndim, memo);
	ofs_buf_putc(b, '\x89');
	ofs_buf_puts(b, "ccollections\nOrderedDict\nq");
	ofs_buf_putc(b, (int)memo++);
	ofs_buf_puts(b, ")Rq");
	ofs_buf_putc(b, (int)memo++);
	ofs_buf_puts(b, "tq");
	ofs_buf_putc(b, (int)memo++);
	ofs_buf_puts(b, "Rq");
	ofs_buf_putc(b, (int)memo);
	ofs_buf_putc(b, '.');
}

/* The elements of a box in runs along its last dimension; adjacent whole rows are
 * one run. */
static uLong put_elements(struct sink *s, const struct part *p, bool with_crc,
    uLong crc)
{
	const struct content *c = p->content;
	const struct box *b = &p->box;
	enum { CHUNK = 1 << 16 };
	static _Alignas(64) uint8_t chunk[CHUNK];
	uint64_t left = box_numel(b), at[MAX_DIMS] = { 0 }, run = 1, index, n;
	size_t outer = b->ndim;

	if (outer > 0)
		run = b->size[--outer];
	while (outer > 0 && b->size[outer] == b->shape[outer])
		run *= b->size[--outer];
	for (; left > 0; left -= run) {
		index = 0;
		for (size_t i = 0; i < b->ndim; i++)
			index = index * b->shape[i] + b->offset[i] + at[i];
		for (uint64_t done = 0; done < run; done += n) {
			n = CHUNK / c->dtype->size;
			if (n > run - done)
				n = run - done;
			content_fill(c, p->tensor, index + done, n, chunk);
			sink_put(s, chunk, n * c->dtype->size);
			if (with_crc)
				crc = crc32(crc, chunk,
				    (uInt)(n * c->dtype->size));
		}
		for (size_t i = outer; i-- > 0 && ++at[i] == b->size[i];)
			at[i] = 0;
	}
	return crc;
}

void item_storage(struct archive *a, const struct part *parts, size_t n,
    bool with_crc)
{
	char name[RECORD_NAME];
	uint64_t size = 0;
	uLong crc = 0;

	for (size_t i = 0; i < n; i++)
		size +=
		    box_numel(&parts[i].box) * parts[i].content->dtype->size;
	snprintf(name, sizeof(name), "data/%zu", a->nstorages++);
	begin_record(a, name, size);
	for (size_t i = 0; i < n; i++)
		crc = put_elements(a->s, &parts[i], with_crc, crc);
	end_record(a, (uint32_t)crc);
}

void item_tensor(struct sink *s, const struct content *c, uint64_t tensor,
    const struct box *b, bool crc)
{
	const struct part part = { c, tensor, *b };
	struct ofs_buf pickle = { 0 };
	struct archive *a;

	put_pickle(&pickle, c, b);
	if (pickle.bad)
		die("out of memory");
	a = item_begin(s, pickle.data, pickle.len, 1);
	ofs_buf_fini(&pickle);
	item_storage(a, &part, 1, crc);
	item_finish(a);
}

void item_object(struct sink *s, const void *pickle, size_t n)
{
	item_finish(item_begin(s, pickle, n, 0));
}
