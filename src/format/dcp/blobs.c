/* blobs.c - tensors that DCP stored in safetensors blobs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/safetensors.h"
#include "format/dcp/dcp.h"

/* FileSystemWriter(serialization_format=SAFETENSORS) stores all tensors of a
 * file in one safetensors blob, keyed by name. It records the start of the blob
 * with the length of the tensor (PyTorch 2.8 to 2.11, filesystem.py). At mount
 * the header of each blob is read once, and every shard gets its true
 * extent. */

struct source {
	const struct ofs_input *in;
	uint64_t off;
};

static int read_source(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct source *s = ctx;

	return ofs_input_read(s->in, buf, len, s->off + off, err);
}

static int by_place(const void *a, const void *b)
{
	const struct ofs_dcp_blob *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	if (x->name != y->name)
		return x->name < y->name ? -1 : 1;
	return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int spoil(struct ofs_dcp *d, const struct ofs_dcp_blob *b, int code,
    const char *text, struct optimfs_error *err)
{
	struct ofs_tensor *t = &d->cat->tensors[b->tensor];
	uint32_t note;

	if (t->error != OFS_NONE)
		return 0;
	note = ofs_dcp_problem(d, ofs_catalog_string(d->cat, b->name), code,
	    text, err);
	if (note == OFS_NONE)
		return -1;
	d->cat->tensors[b->tensor].error = note;
	return 0;
}

/* Set the extent of a shard. */
static int place(struct ofs_dcp *d, const struct ofs_safetensors *st,
    const struct ofs_dcp_blob *b, struct optimfs_error *err)
{
	const struct ofs_tensor *t = &d->cat->tensors[b->tensor];
	struct ofs_shard *s = &d->cat->shards[b->shard];
	struct ofs_str name = ofs_catalog_string(d->cat, b->name);
	const struct ofs_safetensors_tensor *found;
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];

	found = ofs_safetensors_find(st, name.p, name.len);
	if (found == NULL)
		return spoil(d, b, EUCLEAN,
		    "OFS615 the safetensors blob lacks it", err);
	ofs_shard_box(d->cat, t, s, offsets, sizes);
	if (found->dtype != t->dtype || found->ndim != t->grid_ndim ||
	    memcmp(found->shape, sizes, found->ndim * sizeof(sizes[0])) != 0)
		return spoil(d, b, EUCLEAN,
		    "OFS615 dtype or shape in the safetensors blob differ "
		    "from .metadata",
		    err);
	s->at.off = b->off + found->off;
	s->at.len = found->len;
	s->at.encoding = OFS_RAW;
	return 0;
}

/* Set the extents of all shards in a blob. Two chunks of a tensor in one file
 * have the same name, so PyTorch kept the bytes of one only; which one is not
 * recorded reliably. */
static int place_all(struct ofs_dcp *d, const struct ofs_safetensors *st,
    const struct ofs_dcp_blob *b, uint32_t n, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < n; i++) {
		bool twice = (i > 0 && b[i - 1].name == b[i].name) ||
		    (i + 1 < n && b[i + 1].name == b[i].name);

		if (twice ? spoil(d, &b[i], EIO,
				"OFS626 its file had several chunks of it, of "
				"which the writer kept one",
				err)
			  : place(d, st, &b[i], err))
			return -1;
	}
	return 0;
}

static int spoil_all(struct ofs_dcp *d, const struct ofs_dcp_blob *b,
    uint32_t n, const struct optimfs_error *why, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (spoil(d, &b[i], why->code, why->text, err) == -1)
			return -1;
	return 0;
}

static bool is_zip(const struct source *s)
{
	uint8_t magic[4];

	return ofs_input_read(s->in, magic, sizeof(magic), s->off, NULL) == 0 &&
	    memcmp(magic, "PK\3\4", sizeof(magic)) == 0;
}

/* Resolve n shards whose blob starts at the same offset of a file. */
static int resolve(struct ofs_dcp *d, const struct ofs_input *in, uint64_t size,
    const struct ofs_dcp_blob *b, uint32_t n, struct optimfs_error *err)
{
	struct source source = { in, b->off };
	struct optimfs_error why = { 0 };
	struct ofs_safetensors st;
	int ret;

	if (is_zip(&source))
		return 0; /* reading it reports the fault */
	if (ofs_safetensors_open(&st, size - b->off, d->cat->max_metadata,
		false, read_source, &source, &why) == -1)
		return why.code == ENOMEM ? optimfs_fail_with(err, &why)
					  : spoil_all(d, b, n, &why, err);
	ret = place_all(d, &st, b, n, err);
	ofs_safetensors_fini(&st);
	return ret;
}

/* Resolve n shards in the blobs of one file. */
static int resolve_object(struct ofs_dcp *d, const struct ofs_dcp_blob *b,
    uint32_t n, struct optimfs_error *err)
{
	const struct ofs_object *o = &d->cat->objects[b->object];
	uint64_t size = o->size;
	struct ofs_input in;
	uint32_t end;
	int ret = 0;

	if (o->missing || o->refused)
		return 0;
	if (ofs_dir_open_input(&d->cat->dir, o->path, &in, NULL, NULL) == -1)
		return 0; /* reading fails in the same way, with a message */
	for (uint32_t i = 0; i < n && ret == 0; i = end) {
		for (end = i + 1; end < n && b[end].off == b[i].off; end++)
			;
		ret = resolve(d, &in, size, b + i, end - i, err);
	}
	ofs_input_close(&in);
	return ret;
}

int ofs_dcp_resolve_blobs(struct ofs_dcp *d, struct optimfs_error *err)
{
	uint32_t end;

	if (d->nblobs == 0)
		return 0;
	qsort(d->blob, d->nblobs, sizeof(*d->blob), by_place);
	for (uint32_t i = 0; i < d->nblobs; i = end) {
		for (end = i + 1; end < d->nblobs &&
		     d->blob[end].object == d->blob[i].object;
		     end++)
			;
		if (resolve_object(d, d->blob + i, end - i, err) == -1)
			return -1;
	}
	return 0;
}
