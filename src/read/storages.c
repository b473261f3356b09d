/* storages.c - the storages inside values, for the hashes of their texts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/storages.h"

#include <stdlib.h>
#include <xxhash.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "base/memory.h"
#include "read/fetch.h"

/* A storage is read in parts of this many bytes. */
#define PART ((uint64_t)1 << 20)

/* Reads bytes [off, off + len) of a storage. */
struct part_reader {
	int (*read)(const struct part_reader *p, uint64_t off, uint64_t len,
	    void *buf, struct optimfs_error *err);
	const struct ofs_storages *s;
	const struct ofs_tensor *tensor;
	uint64_t start; /* of the record, in the archive */
};

static int read_tensor(const struct part_reader *p, uint64_t off, uint64_t len,
    void *buf, struct optimfs_error *err)
{
	size_t size = ofs_dtype_size(p->tensor->dtype);

	return ofs_fetch_elements(p->s->reader, p->tensor, off / size,
	    len / size, buf, err);
}

static int read_item(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct ofs_storages *s = ctx;

	return ofs_transport_read(s->reader->transport, &s->item->at, off, len,
	    buf, err);
}

static int read_record(const struct part_reader *p, uint64_t off, uint64_t len,
    void *buf, struct optimfs_error *err)
{
	return read_item((void *)p->s, p->start + off, len, buf, err);
}

static int hash_parts(const struct part_reader *p, uint64_t bytes,
    uint64_t *hash, struct optimfs_error *err)
{
	uint8_t *buf = malloc(bytes < PART ? bytes + 1 : PART);
	XXH64_state_t *state = XXH64_createState();
	uint64_t len;
	int ret = 0;

	if (buf == NULL || state == NULL)
		ret = ofs_no_memory(err);
	else
		XXH64_reset(state, 0);
	for (uint64_t off = 0; off < bytes && ret == 0; off += len) {
		len = bytes - off < PART ? bytes - off : PART;
		ret = p->read(p, off, len, buf, err);
		if (ret == 0)
			XXH64_update(state, buf, len);
	}
	if (ret == 0)
		*hash = XXH64_digest(state);
	XXH64_freeState(state);
	free(buf);
	return ret == -1 ? -1 : 1;
}

static int open_archive(struct ofs_storages *s, struct optimfs_error *err)
{
	uint64_t size;

	if (s->open)
		return 0;
	if (ofs_transport_length(s->reader->transport, &s->item->at, &size,
		err) == -1 ||
	    ofs_torch_open_zip(size, read_item, s, &s->zip, err) == -1)
		return -1;
	s->open = true;
	return 0;
}

static int hash_record(struct ofs_storages *s,
    const struct ofs_torch_source *source, uint64_t *hash,
    struct optimfs_error *err)
{
	struct part_reader p = { .read = read_record, .s = s };
	const struct ofs_zip_record *r;

	if (s->item->at.encoding != OFS_TORCH_ITEM)
		return 0;
	if (open_archive(s, err) == -1)
		return -1;
	r = ofs_torch_record_of(&s->zip, source, err);
	if (r == NULL)
		return -1;
	if (s->zip.big_endian)
		return 0;
	if (ofs_zip_data(&s->zip, r, read_item, s, &p.start, err) == -1)
		return -1;
	return hash_parts(&p, source->bytes, hash, err);
}

int ofs_storages_hash(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t *hash, struct optimfs_error *err)
{
	struct ofs_storages *s = ctx;
	const struct ofs_catalog *cat = s->reader->cat;
	struct part_reader p = { .read = read_tensor, .s = s };
	struct ofs_torch_source source;
	uint32_t tensor;

	if (ofs_torch_storage_of(doc, node, &source, err) == -1)
		return -1;
	if (s->item != NULL)
		return hash_record(s, &source, hash, err);
	tensor = ofs_catalog_inner_tensor(cat, doc, node);
	if (tensor == OFS_NONE)
		return 0;
	p.tensor = &cat->tensors[tensor];
	if (p.tensor->error != OFS_NONE)
		return ofs_catalog_fail(cat, p.tensor->error, err);
	return hash_parts(&p, ofs_tensor_bytes(cat, p.tensor), hash, err);
}

int ofs_storages_read(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t off, uint64_t n, void *buf, struct optimfs_error *err)
{
	struct ofs_storages *s = ctx;
	const struct ofs_catalog *cat = s->reader->cat;
	uint32_t inner = s->item != NULL
	    ? OFS_NONE
	    : ofs_catalog_inner_tensor(cat, doc, node);
	const struct ofs_tensor *t;

	if (inner == OFS_NONE || s->elements == OFS_TORCH_ELEMENTS)
		return 0;
	t = &cat->tensors[inner];
	if (t->error != OFS_NONE || ofs_dtype_size(t->dtype) != n ||
	    off / n >= ofs_tensor_numel(cat, t))
		return 0;
	s->elements++;
	return ofs_fetch_elements(s->reader, t, off / n, 1, buf, err) == -1 ? -1
									    : 1;
}

void ofs_storages_fini(struct ofs_storages *s)
{
	if (s->open)
		ofs_zip_fini(&s->zip);
}
