/* archive_many.c - an archive of many tensors, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/archive_many.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "layout/archive.h"
#include "plan/cast.h"

/* The pickle stays in memory with the archive and is copied in slices. All else
 * is generated from the offsets of the records. */

#define BLOCK   512u
#define NBEFORE (1 + OFS_ZIP_NBEFORE) /* records before the first storage */

int ofs_torch_new_storage(struct ofs_torch_new *a, struct optimfs_error *err)
{
	if (ofs_grow(a->storage, a->nstorages, a->storage_cap, err) == -1)
		return -1;
	a->storage[a->nstorages++] =
	    (struct ofs_torch_storage_new){ .first = a->nparts };
	return 0;
}

static enum ofs_dtype cast_of(const struct ofs_torch_new *a,
    const struct ofs_torch_part *part)
{
	return part->cast == OFS_DTYPE_NONE ? a->cast : part->cast;
}

int ofs_torch_new_part(struct ofs_torch_new *a, const struct ofs_catalog *cat,
    const struct ofs_torch_part *part, struct optimfs_error *err)
{
	struct ofs_torch_storage_new *s = &a->storage[a->nstorages - 1];
	uint64_t item = part->tensor == OFS_NONE
	    ? (part->item == 0 ? 1 : part->item)
	    : ofs_dtype_size(ofs_cast_type(&cat->tensors[part->tensor],
		  cast_of(a, part)));
	uint64_t bytes;

	if (!ofs_mul_u64(part->count, item, &bytes) ||
	    !ofs_add_u64(s->bytes, bytes, &s->bytes))
		return optimfs_fail(err, EFBIG,
		    "OFS606 size overflow: a storage of a view");
	if (part->count == 0)
		return 0;
	if (ofs_grow(a->part, a->nparts, a->part_cap, err) == -1)
		return -1;
	a->part[a->nparts++] = *part;
	return 0;
}

void ofs_torch_new_fini(struct ofs_torch_new *a)
{
	ofs_buf_fini(&a->head);
	ofs_buf_fini(&a->literal);
	free(a->part);
	free(a->storage);
	*a = (struct ofs_torch_new){ 0 };
}

enum part { PART_HEAD, PART_DATA, PART_AFTER, PART_CENTRAL, PART_END };
#define REF(part, i)  ((uint64_t)(part) << 56 | (i))
#define REF_PART(ref) ((enum part)((ref) >> 56))
#define REF_I(ref)    ((ref) & ((UINT64_C(1) << 56) - 1))

/* A record with the texts that it borrows. */
struct named {
	struct ofs_zip_new r;
	struct ofs_zip_small small;
	char name[32];
};

static void data_record(const struct ofs_torch_new *a, uint64_t i,
    struct named *out)
{
	snprintf(out->name, sizeof(out->name), "data/%" PRIu64, i);
	out->r = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = out->name,
		.header = a->storage[i].header,
		.size = a->storage[i].bytes,
		.crc = a->storage[i].crc,
	};
}

static void small_record(const struct ofs_torch_new *a, uint64_t header,
    struct named *out)
{
	out->r = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = out->small.name,
		.header = header,
		.size = out->small.len,
		.crc = ofs_crc32(0, out->small.bytes, out->small.len),
	};
}

/* Record i in the order of the directory. */
static void record(const struct ofs_torch_new *a, uint64_t i, struct named *out)
{
	uint64_t at;

	if (i == 0) {
		out->r = a->pickle;
		return;
	}
	if (i >= NBEFORE && i - NBEFORE < a->nstorages) {
		data_record(a, i - NBEFORE, out);
		return;
	}
	at = i < NBEFORE ? ofs_zip_next(&a->pickle)
			 : a->storage[a->nstorages].header;
	for (uint64_t k = i < NBEFORE ? 1 : NBEFORE + a->nstorages;; k++) {
		if (k < NBEFORE)
			ofs_zip_before((unsigned)k - 1, &out->small);
		else
			ofs_zip_after((unsigned)(k - NBEFORE - a->nstorages),
			    a->id, &out->small);
		small_record(a, at, out);
		if (k == i)
			return;
		at = ofs_zip_next(&out->r);
	}
}

static void put_record(struct ofs_buf *b, const struct named *n,
    const void *bytes)
{
	ofs_zip_put_local(b, &n->r);
	ofs_buf_put(b, bytes, n->r.size);
	ofs_zip_put_descriptor(b, &n->r);
}

int ofs_torch_new_place(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct optimfs_error *err)
{
	struct named n;

	if (pickle->bad)
		return ofs_no_memory(err);
	if (ofs_grow(a->storage, a->nstorages, a->storage_cap, err) == -1)
		return -1;
	a->storage[a->nstorages].first = a->nparts;
	a->id = ofs_torch_id(pickle->data, pickle->len);
	a->pickle = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = "data.pkl",
		.size = pickle->len,
		.crc = ofs_crc32(0, pickle->data, pickle->len),
	};
	n.r = a->pickle;
	put_record(&a->head, &n, pickle->data);
	for (unsigned i = 1; i < NBEFORE; i++) {
		record(a, i, &n);
		put_record(&a->head, &n, n.small.bytes);
	}
	if (a->head.bad)
		return ofs_no_memory(err);
	a->storage[0].header = a->head.len;
	for (uint32_t i = 0; i < a->nstorages; i++) {
		data_record(a, i, &n);
		a->storage[i + 1].header = ofs_zip_next(&n.r);
	}
	a->nrecords = (uint64_t)NBEFORE + a->nstorages + OFS_ZIP_NAFTER;
	for (uint64_t i = 0; i < a->nrecords; i++) {
		record(a, i, &n);
		a->directory_len += ofs_zip_central_len(&n.r);
	}
	a->directory = ofs_zip_next(&n.r);
	return 0;
}

int ofs_torch_new_spans(const struct ofs_torch_new *a, struct ofs_spans *out,
    struct optimfs_error *err)
{
	struct named n;

	if (ofs_spans_add_bytes(out, a->head.len, REF(PART_HEAD, 0), err) == -1)
		return -1;
	for (uint32_t i = 0; i < a->nstorages; i++)
		if (ofs_spans_add(out,
			a->storage[i + 1].header - a->storage[i].header,
			REF(PART_DATA, i), 0, err) == -1)
			return -1;
	if (ofs_spans_add(out, a->directory - a->storage[a->nstorages].header,
		REF(PART_AFTER, 0), 0, err) == -1)
		return -1;
	for (uint64_t i = 0; i < a->nrecords; i += BLOCK) {
		uint64_t len = 0;

		for (uint64_t k = i; k < a->nrecords && k - i < BLOCK; k++) {
			record(a, k, &n);
			len += ofs_zip_central_len(&n.r);
		}
		if (ofs_spans_add(out, len, REF(PART_CENTRAL, i), 0, err) == -1)
			return -1;
	}
	return ofs_spans_add(out, OFS_ZIP_TRAILER_LEN, REF(PART_END, 0), 0,
	    err);
}

/* Append b with a checksum at offset at, which is computed when the storage is
 * read, unless it is known. */
static int give(const struct ofs_torch_new *a, struct ofs_buf *b, uint64_t at,
    const struct ofs_zip_new *r, struct ofs_composition *c,
    struct optimfs_error *err)
{
	int ret;

	if (r == NULL || !a->crc || r->size == 0 || r->crc != 0)
		ret = ofs_composition_buf(c, b, err);
	else
		ret = ofs_composition_buf_crc(c, b, at,
		    a->base + r->header + ofs_zip_local_len(r), r->size, err);
	b->len = 0;
	return ret;
}

static int give_padding(const struct ofs_torch_part *p, struct ofs_buf *b,
    struct ofs_composition *c, struct optimfs_error *err)
{
	uint8_t bits[8];
	int ret;

	ofs_put_le(bits, p->first, sizeof(bits));
	for (uint64_t i = 0; i < p->count * p->item; i++)
		ofs_buf_putc(b, i % p->item < 8 ? bits[i % p->item] : 0);
	ret = ofs_composition_buf(c, b, err);
	b->len = 0;
	return ret;
}

static int make_data(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, uint64_t i, struct ofs_buf *b,
    struct ofs_composition *c, struct optimfs_error *err)
{
	struct named n;

	data_record(a, i, &n);
	ofs_zip_put_local(b, &n.r);
	if (give(a, b, 0, NULL, c, err) == -1)
		return -1;
	for (size_t k = a->storage[i].first; k < a->storage[i + 1].first; k++) {
		const struct ofs_torch_part *p = &a->part[k];
		int ret;

		c->cast = cast_of(a, p);
		if (p->tensor == OFS_NONE && p->item == 0)
			ret = ofs_composition_bytes(c,
			    a->literal.data + p->first, p->count, err);
		else if (p->tensor == OFS_NONE)
			ret = give_padding(p, b, c, err);
		else
			ret = ofs_composition_elements(c, cat, p->tensor,
			    p->first, p->count, err);
		c->cast = a->cast;
		if (ret == -1)
			return -1;
	}
	ofs_zip_put_descriptor(b, &n.r);
	return give(a, b, OFS_ZIP_DESCRIPTOR_CRC, &n.r, c, err);
}

static int make_central(const struct ofs_torch_new *a, uint64_t i,
    struct ofs_buf *b, struct ofs_composition *c, struct optimfs_error *err)
{
	struct named n;

	for (uint64_t k = i; k < a->nrecords && k - i < BLOCK; k++) {
		bool data = k >= NBEFORE && k - NBEFORE < a->nstorages;

		record(a, k, &n);
		if (!data || !a->crc) {
			ofs_zip_put_central(b, &n.r);
			continue;
		}
		if (give(a, b, 0, NULL, c, err) == -1)
			return -1;
		ofs_zip_put_central(b, &n.r);
		if (give(a, b, OFS_ZIP_CENTRAL_CRC, &n.r, c, err) == -1)
			return -1;
	}
	return give(a, b, 0, NULL, c, err);
}

static int make_part(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, uint64_t ref, uint64_t len,
    struct ofs_buf *b, struct ofs_composition *c, struct optimfs_error *err)
{
	struct named n;

	switch (REF_PART(ref)) {
	case PART_HEAD:
		return ofs_composition_bytes(c, a->head.data + REF_I(ref), len,
		    err);
	case PART_DATA:
		return make_data(a, cat, REF_I(ref), b, c, err);
	case PART_CENTRAL:
		return make_central(a, REF_I(ref), b, c, err);
	case PART_AFTER:
		for (unsigned i = 0; i < OFS_ZIP_NAFTER; i++) {
			record(a, (uint64_t)NBEFORE + a->nstorages + i, &n);
			put_record(b, &n, n.small.bytes);
		}
		return give(a, b, 0, NULL, c, err);
	case PART_END:
		ofs_zip_put_end(b, a->nrecords, a->directory, a->directory_len);
	}
	return give(a, b, 0, NULL, c, err);
}

int ofs_torch_new_make(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, const struct ofs_span *span, uint64_t at,
    struct ofs_composition *c, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret = make_part(a, cat, span->ref, span->end - at, &b, c, err);

	ofs_buf_fini(&b);
	return ret;
}
