/* archive.c - archives as torch.save lays them out, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "plan/cast.h"

/* The records around the storages stay in memory with the archive; that with
 * the pickle is copied in slices. All else is generated from the offsets of the
 * records. */

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
	    ? (part->item == 0 || part->item == OFS_TORCH_OLD ? 1 : part->item)
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
	ofs_buf_fini(&a->tail);
	ofs_buf_fini(&a->literal);
	for (uint32_t i = 0; i < a->nstorages; i++)
		free(a->storage[i].name);
	free(a->part);
	free(a->storage);
	*a = (struct ofs_torch_new){ 0 };
}

enum part { PART_HEAD, PART_DATA, PART_AFTER, PART_CENTRAL, PART_END };
#define REF(part, i)  ((uint64_t)(part) << 56 | (i))
#define REF_PART(ref) ((enum part)((ref) >> 56))
#define REF_I(ref)    ((ref) & ((UINT64_C(1) << 56) - 1))

/* A record with the name that it borrows. */
struct named {
	struct ofs_zip_new r;
	char name[32];
};

static void data_record(const struct ofs_torch_new *a, uint64_t i,
    struct named *out)
{
	const char *name = a->storage[i].name;

	if (name == NULL)
		snprintf(out->name, sizeof(out->name), "data/%" PRIu64, i);
	out->r = (struct ofs_zip_new){
		.prefix = a->prefix,
		.name = name == NULL ? out->name : name,
		.header = a->storage[i].header,
		.size = a->storage[i].bytes,
		.crc = a->storage[i].crc,
	};
}

/* Is record i, in the order of the directory, a storage? */
static bool is_data(const struct ofs_torch_new *a, uint64_t i)
{
	return i >= a->nbefore && i - a->nbefore < a->nstorages;
}

static void record(const struct ofs_torch_new *a, uint64_t i, struct named *out)
{
	if (is_data(a, i)) {
		data_record(a, i - a->nbefore, out);
		return;
	}
	out->r = a->fixed[i < a->nbefore ? i : i - a->nstorages];
	out->r.prefix = a->prefix;
}

/* Append record i of those that are no storages; b begins at offset base. */
static void put_fixed(struct ofs_torch_new *a, unsigned i, struct ofs_buf *b,
    uint64_t base, const char *name, const void *bytes, uint64_t n)
{
	struct ofs_zip_new r = {
		.prefix = a->prefix,
		.name = name,
		.header = base + b->len,
		.size = n,
		.crc = ofs_crc32(0, bytes, n),
	};

	ofs_zip_put_local(b, &r);
	ofs_buf_put(b, bytes, n);
	ofs_zip_put_descriptor(b, &r);
	a->fixed[i] = r;
}

static void put_head(struct ofs_torch_new *a, const struct ofs_buf *pickle)
{
	struct ofs_zip_small small;

	a->nbefore = NBEFORE;
	put_fixed(a, 0, &a->head, 0, "data.pkl", pickle->data, pickle->len);
	for (unsigned i = 0; i < OFS_ZIP_NBEFORE; i++) {
		ofs_zip_before(i, &small);
		put_fixed(a, 1 + i, &a->head, 0, small.name, small.bytes,
		    small.len);
	}
}

static void put_tail(struct ofs_torch_new *a, uint64_t base, uint64_t id)
{
	struct ofs_zip_small small;

	for (unsigned i = 0; i < OFS_ZIP_NAFTER; i++) {
		ofs_zip_after(i, id, a->ordered, &small);
		put_fixed(a, NBEFORE + i, &a->tail, base, small.name,
		    small.bytes, small.len);
	}
}

int ofs_torch_new_place(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct optimfs_error *err)
{
	struct named n;
	uint64_t end;

	if (ofs_grow(a->storage, a->nstorages, a->storage_cap, err) == -1)
		return -1;
	if (pickle != NULL)
		put_head(a, pickle);
	a->storage[a->nstorages].first = a->nparts;
	a->storage[0].header = a->head.len;
	for (uint32_t i = 0; i < a->nstorages; i++) {
		data_record(a, i, &n);
		a->storage[i + 1].header = ofs_zip_next(&n.r);
	}
	end = a->storage[a->nstorages].header;
	if (pickle != NULL)
		put_tail(a, end, XXH64(pickle->data, pickle->len, 0));
	if ((pickle != NULL && pickle->bad) || a->head.bad || a->tail.bad)
		return ofs_no_memory(err);
	a->directory = end + a->tail.len;
	a->nrecords = a->nbefore + a->nstorages +
	    (pickle == NULL ? 0 : OFS_ZIP_NAFTER);
	for (uint64_t i = 0; i < a->nrecords; i++) {
		record(a, i, &n);
		a->directory_len += ofs_zip_central_len(&n.r);
	}
	return 0;
}

int ofs_torch_new_item(struct ofs_torch_new *a, const struct ofs_catalog *cat,
    const struct ofs_buf *pickle, const struct ofs_torch_part *data,
    struct optimfs_error *err)
{
	snprintf(a->prefix, sizeof(a->prefix), "archive/");
	if (data != NULL &&
	    (ofs_torch_new_storage(a, err) == -1 ||
		ofs_torch_new_part(a, cat, data, err) == -1))
		return -1;
	return ofs_torch_new_place(a, pickle, err);
}

uint64_t ofs_torch_new_size(const struct ofs_torch_new *a)
{
	return a->directory + a->directory_len + OFS_ZIP_TRAILER_LEN;
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
	if (ofs_spans_add(out, a->tail.len, REF(PART_AFTER, 0), 0, err) == -1)
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

/* Append b, and empty it. With r, the record of a storage, its checksum at
 * offset at is computed when the storage is read, unless it is known. */
static int append(const struct ofs_torch_new *a, struct ofs_buf *b, uint64_t at,
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

/* Append padding: p->count elements with the bits p->first. b is empty. */
static int append_padding(const struct ofs_torch_part *p, struct ofs_buf *b,
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
	if (append(a, b, 0, NULL, c, err) == -1)
		return -1;
	for (size_t k = a->storage[i].first; k < a->storage[i + 1].first; k++) {
		const struct ofs_torch_part *p = &a->part[k];
		int ret;

		c->cast = cast_of(a, p);
		if (p->tensor != OFS_NONE)
			ret = ofs_composition_elements(c, cat, p->tensor,
			    p->first, p->count, err);
		else if (p->item == 0)
			ret = ofs_composition_bytes(c,
			    a->literal.data + p->first, p->count, err);
		else if (p->item == OFS_TORCH_OLD)
			ret = ofs_composition_stored(c, a->old, p->first,
			    p->count, err);
		else
			ret = append_padding(p, b, c, err);
		c->cast = a->cast;
		if (ret == -1)
			return -1;
	}
	ofs_zip_put_descriptor(b, &n.r);
	return append(a, b, OFS_ZIP_DESCRIPTOR_CRC, &n.r, c, err);
}

static int make_central(const struct ofs_torch_new *a, uint64_t i,
    struct ofs_buf *b, struct ofs_composition *c, struct optimfs_error *err)
{
	struct named n;

	for (uint64_t k = i; k < a->nrecords && k - i < BLOCK; k++) {
		record(a, k, &n);
		if (!is_data(a, k) || !a->crc) {
			ofs_zip_put_central(b, &n.r);
			continue;
		}
		if (append(a, b, 0, NULL, c, err) == -1)
			return -1;
		ofs_zip_put_central(b, &n.r);
		if (append(a, b, OFS_ZIP_CENTRAL_CRC, &n.r, c, err) == -1)
			return -1;
	}
	return append(a, b, 0, NULL, c, err);
}

static int make_part(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, uint64_t ref, uint64_t len,
    struct ofs_buf *b, struct ofs_composition *c, struct optimfs_error *err)
{
	switch (REF_PART(ref)) {
	case PART_HEAD:
		return ofs_composition_bytes(c, a->head.data + REF_I(ref), len,
		    err);
	case PART_DATA:
		return make_data(a, cat, REF_I(ref), b, c, err);
	case PART_CENTRAL:
		return make_central(a, REF_I(ref), b, c, err);
	case PART_AFTER:
		return ofs_composition_buf(c, &a->tail, err);
	case PART_END:
		ofs_zip_put_end(b, a->nrecords, a->directory, a->directory_len);
	}
	return append(a, b, 0, NULL, c, err);
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

int ofs_torch_new_put(const struct ofs_torch_new *a,
    const struct ofs_catalog *cat, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_spans spans = { 0 };
	uint64_t at = 0;
	int ret = ofs_torch_new_spans(a, &spans, err);

	for (size_t i = 0; i < spans.n && ret == 0; i++) {
		ret = ofs_torch_new_make(a, cat, &spans.v[i], at, c, err);
		at = spans.v[i].end;
	}
	ofs_spans_fini(&spans);
	return ret;
}
