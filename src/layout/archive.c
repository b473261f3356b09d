/* archive.c - torch.save archives of one object, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/archive.h"

#include <xxhash.h>

#include "archive/zip_write.h"
#include "base/buf.h"
#include "base/crc.h"
#include "base/dtype.h"
#include "plan/cast.h"

#define NRECORDS (1 + OFS_ZIP_NBEFORE + 1 + OFS_ZIP_NAFTER)
#define DATA     (1 + OFS_ZIP_NBEFORE)

uint64_t ofs_torch_id(const uint8_t *pickle, uint64_t n)
{
	return XXH64(pickle, n, 0);
}

/* Describe record i of the archive, except its place. */
static void record(const struct ofs_torch_item *item, unsigned i, uint64_t id,
    struct ofs_zip_new *r, struct ofs_zip_small *small)
{
	r->prefix = "archive/";
	r->crc = 0;
	if (i == 0) {
		r->name = "data.pkl";
		r->size = item->npickle;
		return;
	}
	if (i == DATA) {
		r->name = "data/0";
		r->size = item->bytes;
		return;
	}
	if (i < DATA)
		ofs_zip_before(i - 1, small);
	else
		ofs_zip_after(i - DATA - 1, id, small);
	r->name = small->name;
	r->size = small->len;
}

uint64_t ofs_torch_item_size(const struct ofs_torch_item *item)
{
	uint64_t at = 0, directory = 0;

	for (unsigned i = 0; i < NRECORDS; i++) {
		struct ofs_zip_new r = { .header = at };
		struct ofs_zip_small small;

		if (i == DATA && !item->tensor)
			continue;
		record(item, i, 0, &r, &small);
		at = ofs_zip_next(&r);
		directory += ofs_zip_central_len(&r);
	}
	return at + directory + OFS_ZIP_TRAILER_LEN;
}

struct maker {
	const struct ofs_torch_item *item;
	uint64_t at; /* offset of the archive in its file */
	uint64_t id, header;
	unsigned n;
	struct ofs_zip_new data; /* the record of the elements */
	bool crc;
	struct ofs_buf before, directory;
	uint64_t split; /* in directory: the place of the elements' checksum */
};

/* Append a record whose bytes are known. */
static void put_known(struct maker *m, unsigned i)
{
	struct ofs_zip_new r = { .header = m->header };
	struct ofs_zip_small small;
	const void *p;

	record(m->item, i, m->id, &r, &small);
	p = i == 0 ? (const void *)m->item->pickle : small.bytes;
	r.crc = ofs_crc32(0, p, r.size);
	ofs_zip_put_local(&m->before, &r);
	ofs_buf_put(&m->before, p, r.size);
	ofs_zip_put_descriptor(&m->before, &r);
	ofs_zip_put_central(&m->directory, &r);
	m->header = ofs_zip_next(&r);
	m->n++;
}

/* Append b, with the checksum of the elements at offset split. */
static int flush(struct maker *m, struct ofs_buf *b, uint64_t split,
    struct ofs_composition *c, struct optimfs_error *err)
{
	if (!m->crc || !m->item->tensor || m->data.size == 0 ||
	    split == UINT64_MAX)
		return ofs_composition_buf(c, b, err);
	return ofs_composition_buf_crc(c, b, split,
	    m->at + m->data.header + ofs_zip_local_len(&m->data), m->data.size,
	    err);
}

/* Append the record of the elements, with its header. */
static int put_data(struct maker *m, const struct ofs_catalog *cat,
    uint32_t tensor, uint64_t first, struct ofs_composition *c,
    struct optimfs_error *err)
{
	enum ofs_dtype dtype = ofs_cast_type(&cat->tensors[tensor], c->cast);
	struct ofs_zip_small none;

	m->data.header = m->header;
	record(m->item, DATA, m->id, &m->data, &none);
	ofs_zip_put_local(&m->before, &m->data);
	if (flush(m, &m->before, UINT64_MAX, c, err) == -1 ||
	    ofs_composition_elements(c, cat, tensor, first,
		m->item->bytes / ofs_dtype_size(dtype), err) == -1)
		return -1;
	m->before.len = 0;
	ofs_zip_put_descriptor(&m->before, &m->data);
	m->split = m->directory.len + OFS_ZIP_CENTRAL_CRC;
	ofs_zip_put_central(&m->directory, &m->data);
	m->header = ofs_zip_next(&m->data);
	m->n++;
	return 0;
}

int ofs_torch_item_make(const struct ofs_torch_item *item,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first, uint64_t at,
    bool crc, struct ofs_composition *c, struct optimfs_error *err)
{
	struct maker m = { .item = item, .at = at, .crc = crc };
	uint64_t size;
	int ret = 0;

	m.id = ofs_torch_id(item->pickle, item->npickle);
	for (unsigned i = 0; i < DATA; i++)
		put_known(&m, i);
	if (item->tensor)
		ret = put_data(&m, cat, tensor, first, c, err);
	for (unsigned i = DATA + 1; i < NRECORDS; i++)
		put_known(&m, i);
	if (ret == 0)
		ret = flush(&m, &m.before,
		    item->tensor ? OFS_ZIP_DESCRIPTOR_CRC : UINT64_MAX, c, err);
	size = m.directory.len;
	ofs_zip_put_end(&m.directory, m.n, m.header, size);
	if (ret == 0)
		ret = flush(&m, &m.directory,
		    item->tensor ? m.split : UINT64_MAX, c, err);
	ofs_buf_fini(&m.before);
	ofs_buf_fini(&m.directory);
	return ret;
}
