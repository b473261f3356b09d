/* inner.c - tensors inside values, for which the tree has no files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "archive/torch_storage.h"
#include "archive/zip.h"
#include "base/crc.h"
#include "base/memory.h"
#include "catalog/budget.h"

static int read_bytes(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct ofs_buf *bytes = ctx;

	if (off > bytes->len || len > bytes->len - off)
		return optimfs_fail(err, EIO,
		    "OFS434 the archive of a value ends before its records");
	memcpy(buf, bytes->data + off, len);
	return 0;
}

static int open_archive(struct ofs_inner *inner, struct optimfs_error *err)
{
	if (inner->open)
		return 0;
	if (ofs_render_copy(inner->from, inner->e, &inner->bytes, err) == -1 ||
	    ofs_torch_open_zip(inner->bytes.len, read_bytes, &inner->bytes,
		&inner->zip, err) == -1)
		return -1;
	inner->open = true;
	return 0;
}

/* The bytes of a storage, in inner->bytes. */
static int find_bytes(struct ofs_inner *inner, const struct ofs_torch_source *s,
    uint64_t *off, struct optimfs_error *err)
{
	const struct ofs_zip_record *r =
	    ofs_torch_record_of(&inner->zip, s, err);

	if (r == NULL ||
	    ofs_zip_verify(&inner->zip, r, read_bytes, &inner->bytes, err) ==
		-1)
		return -1;
	return ofs_zip_data(&inner->zip, r, read_bytes, &inner->bytes, off,
	    err);
}

/* Append the bytes of a storage of the archive of the value. */
static int put_from_archive(struct ofs_inner *inner,
    const struct ofs_torch_source *s, struct optimfs_error *err)
{
	uint64_t off;

	if (open_archive(inner, err) == -1 ||
	    find_bytes(inner, s, &off, err) == -1)
		return -1;
	if (inner->zip.big_endian)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 a big-endian tensor inside a value cannot be "
		    "written");
	ofs_buf_put(&inner->a->literal, inner->bytes.data + off, s->bytes);
	return 0;
}

/* Append the elements of a tensor of the catalog. */
static int put_from_tensor(struct ofs_inner *inner, uint32_t tensor,
    const struct ofs_torch_source *s, struct optimfs_error *err)
{
	const struct ofs_render *from = inner->from;
	const struct ofs_tensor *t = &from->cat->tensors[tensor];
	uint8_t *bytes;
	int ret;

	if (t->error != OFS_NONE)
		return ofs_catalog_fail(from->cat, t->error, err);
	bytes = malloc(s->bytes + 1);
	if (bytes == NULL)
		return ofs_no_memory(err);
	ret = from->elements(from->ctx, tensor, ofs_tensor_numel(from->cat, t),
	    bytes, err);
	if (ret == 0)
		ofs_buf_put(&inner->a->literal, bytes, s->bytes);
	free(bytes);
	return ret;
}

static int add_storage(struct ofs_inner *inner,
    const struct ofs_torch_source *s, uint32_t tensor,
    struct optimfs_error *err)
{
	struct ofs_torch_new *a = inner->a;
	struct ofs_torch_part part = { .tensor = OFS_NONE, .count = s->bytes };
	uint64_t max = ofs_metadata_max(inner->from->cat);
	int ret;

	if (a->literal.len > max || s->bytes > max - a->literal.len)
		return optimfs_fail(err, E2BIG,
		    "OFS448 tensors inside values are too large "
		    "(-o max_metadata; drop=opaque leaves them out)");
	if (ofs_grow(inner->v, inner->n, inner->cap, err) == -1)
		return -1;
	part.first = a->literal.len;
	ret = tensor == OFS_NONE ? put_from_archive(inner, s, err)
				 : put_from_tensor(inner, tensor, s, err);
	if (ret == -1)
		return -1;
	if (a->literal.bad)
		return ofs_no_memory(err);
	inner->v[inner->n++] =
	    (struct ofs_inner_new){ s->key, s->bytes, a->nstorages };
	if (ofs_torch_new_storage(a, err) == -1)
		return -1;
	if (s->bytes > 0)
		a->storage[a->nstorages - 1].crc =
		    ofs_crc32(0, a->literal.data + part.first, s->bytes);
	return ofs_torch_new_part(a, inner->from->cat, &part, err);
}

int ofs_inner_put(void *ctx, struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err)
{
	struct ofs_inner *inner = ctx;
	struct ofs_torch_source s;
	uint32_t tensor = ofs_catalog_inner_tensor(inner->from->cat, doc, node);
	size_t i = 0, item;

	if (ofs_torch_storage_of(doc, node, &s, err) == -1)
		return -1;
	if ((tensor == OFS_NONE &&
		!ofs_render_has_archive(inner->from, inner->e)) ||
	    s.meta || s.offset != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 a tensor or storage inside a value (a tuple, a "
		    "list, an object) cannot be written (drop=opaque leaves it "
		    "out)");
	w->foreign = true;
	if (inner->a == NULL) {
		ofs_pkw_str(w, s.key.p, s.key.len);
		return 0;
	}
	while (i < inner->n && !ofs_str_equal(inner->v[i].key, s.key))
		i++;
	if (i == inner->n && add_storage(inner, &s, tensor, err) == -1)
		return -1;
	if (inner->v[i].bytes != s.bytes)
		return optimfs_fail(err, EIO,
		    "OFS434 storage '%.*s' is used with two sizes",
		    OFS_STR_ARGS(s.key, 100));
	item = s.dtype == OFS_DTYPE_NONE ? 1 : ofs_dtype_size(s.dtype);
	ofs_pkw_storage(w, ofs_dtype_storage(s.dtype), inner->v[i].number,
	    s.bytes / item, item);
	return 0;
}

int ofs_inner_archive(struct ofs_torch_new *a, const struct ofs_buf *pickle,
    struct ofs_buf *out, struct optimfs_error *err)
{
	struct ofs_composition c = { 0 };
	int ret = ofs_torch_new_place(a, pickle, err);

	if (ret == 0)
		ret = ofs_torch_new_put(a, NULL, &c, err);
	for (size_t i = 0; i < c.n && ret == 0; i++)
		ofs_buf_put(out, c.piece[i].bytes, c.piece[i].len);
	ofs_composition_fini(&c);
	return ret == 0 && out->bad ? ofs_no_memory(err) : ret;
}

void ofs_inner_fini(struct ofs_inner *inner)
{
	if (inner->open)
		ofs_zip_fini(&inner->zip);
	ofs_buf_fini(&inner->bytes);
	free(inner->v);
}
