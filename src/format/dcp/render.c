/* render.c - a catalog as a DCP checkpoint of any number of ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp/render.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/keys.h"
#include "base/memory.h"
#include "format/format.h"
#include "pickle/write.h"

static const struct ofs_dcp_files *dcp_files(const struct ofs_files *f)
{
	return (const struct ofs_dcp_files *)f;
}

uint64_t ofs_dcp_item_size(const struct ofs_dcp_leaf *l, uint32_t chunk)
{
	return chunk + 1 < l->nchunks ? l->full : l->last;
}

uint64_t ofs_dcp_stored_size(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk)
{
	if (f->stored == NULL)
		return ofs_dcp_item_size(&f->leaf[leaf], chunk);
	return f->stored[f->item[leaf] + chunk];
}

void ofs_dcp_chunk_box(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, uint64_t *offsets, uint64_t *sizes)
{
	const struct ofs_dcp_leaf *l = &f->leaf[leaf];
	const struct ofs_tensor *t = ofs_dcp_leaf_tensor(f, leaf);
	const uint64_t *shape = ofs_tensor_shape(f->cat, t);

	for (unsigned d = 0; d < t->ndim; d++) {
		offsets[d] = 0;
		sizes[d] = shape[d];
	}
	if (l->rows == 0)
		return;
	offsets[0] = l->rows * chunk;
	if (sizes[0] - offsets[0] > l->rows)
		sizes[0] = l->rows;
	else
		sizes[0] -= offsets[0];
}

const uint32_t *ofs_dcp_entry_path(const struct ofs_dcp_files *f,
    uint32_t entry, uint32_t *n)
{
	const struct ofs_entry *e = &f->cat->entries[entry];

	return f->source ? ofs_catalog_components(f->cat, e->path, n)
			 : ofs_render_path(f->cat, e, n);
}

const uint32_t *ofs_dcp_leaf_path(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t *n)
{
	const uint32_t *c = ofs_dcp_entry_path(f, f->leaf[leaf].entry, n);

	*n = f->leaf[leaf].nkey;
	return c;
}

void ofs_dcp_leaf_key(const struct ofs_dcp_files *f, uint32_t leaf,
    struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *c = ofs_dcp_leaf_path(f, leaf, &n);

	ofs_catalog_join(f->cat, c, n, out);
}

/* The elements of a chunk: a run of those of the tensor, because it is cut along
 * dim 0 only. */
static struct ofs_torch_part chunk_part(const struct ofs_dcp_files *f,
    uint32_t leaf, uint32_t chunk)
{
	const struct ofs_tensor *t = ofs_dcp_leaf_tensor(f, leaf);
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];
	struct ofs_torch_part part = {
		.tensor = (uint32_t)(t - f->cat->tensors), .count = 1
	};

	ofs_dcp_chunk_box(f, leaf, chunk, offsets, sizes);
	for (unsigned d = 0; d < t->ndim; d++) {
		part.first = part.first * sizes[d] + offsets[d];
		part.count *= sizes[d];
	}
	return part;
}

/* The archive of a chunk, which is all of its storage. */
static int tensor_archive(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, struct ofs_torch_new *a, struct optimfs_error *err)
{
	const struct ofs_tensor *t = ofs_dcp_leaf_tensor(f, leaf);
	struct ofs_torch_part part = chunk_part(f, leaf, chunk);
	uint64_t offsets[OFS_MAX_DIMS], sizes[OFS_MAX_DIMS];
	struct ofs_buf pickle = { 0 };
	struct ofs_pkw w = { .out = &pickle };
	int ret = -1;

	a->crc = f->to.crc;
	a->cast = f->to.dtype;
	if (f->leaf[leaf].pickle > 0)
		w.scale = &f->scale[f->leaf[leaf].pickle - 1];
	ofs_dcp_chunk_box(f, leaf, chunk, offsets, sizes);
	ofs_pkw_begin(&w);
	if (ofs_pkw_tensor(&w, ofs_render_dtype(&f->to, t), 0, sizes, t->ndim,
		err) == 0 &&
	    ofs_pkw_end(&w, err) == 0)
		ret = ofs_torch_new_item(a, f->cat, &pickle, &part, err);
	ofs_buf_fini(&pickle);
	return ret;
}

static int item_size(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, uint64_t *size, struct optimfs_error *err)
{
	struct ofs_torch_new a = { 0 };
	int ret;

	if (f->to.variant == OFS_DCP_BLOBS) {
		*size = chunk_part(f, leaf, chunk).count *
		    ofs_dtype_size(ofs_render_dtype(&f->to,
			ofs_dcp_leaf_tensor(f, leaf)));
		return 0;
	}
	ret = tensor_archive(f, leaf, chunk, &a, err);
	if (ret == 0)
		*size = ofs_torch_new_size(&a);
	ofs_torch_new_fini(&a);
	return ret;
}

static bool is_cut(const struct ofs_dcp_files *f, const struct ofs_tensor *t)
{
	return f->to.shards > 1 && t->ndim > 0 &&
	    ofs_tensor_numel(f->cat, t) > 0;
}

static int find_scale(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err)
{
	if (!ofs_dtype_is_quantized(f->cat->tensors[e->ref].dtype))
		return 0;
	if (ofs_grow(f->scale, f->nscales, f->scale_cap, err) == -1 ||
	    ofs_render_scale(from, e->ref, &f->scale[f->nscales], err) == -1)
		return -1;
	f->leaf[leaf].pickle = ++f->nscales;
	return 0;
}

/* An earlier leaf with the same type and shape, whose items have the same sizes;
 * NULL when none is remembered. The leaf is remembered in its place. */
static const struct ofs_dcp_leaf *find_alike(struct ofs_dcp_files *f,
    uint32_t leaf)
{
	const struct ofs_tensor *t = ofs_dcp_leaf_tensor(f, leaf), *other;
	uint32_t *slot = &f->alike[(t->shape + t->ndim) % OFS_DCP_ALIKE],
		 found = *slot;

	if (ofs_dtype_is_quantized(t->dtype)) /* a scale is stored as well */
		return NULL;
	*slot = leaf + 1;
	if (found == 0)
		return NULL;
	other = ofs_dcp_leaf_tensor(f, found - 1);
	return other->shape == t->shape && other->ndim == t->ndim &&
		other->dtype == t->dtype
	    ? &f->leaf[found - 1]
	    : NULL;
}

static int lay_tensor(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err)
{
	struct ofs_dcp_leaf *l = &f->leaf[leaf];
	const struct ofs_tensor *t = ofs_dcp_leaf_tensor(f, leaf);
	const struct ofs_dcp_leaf *alike;
	uint64_t rows;

	if (ofs_render_sound(f->cat, e, err) == -1 ||
	    (f->to.variant == OFS_DCP_BLOBS &&
		ofs_dcp_blob_takes(ofs_render_dtype(&f->to, t), err) == -1))
		return -1;
	if (find_scale(f, from, leaf, e, err) == -1)
		return -1;
	l->nchunks = 1;
	if (is_cut(f, t)) {
		rows = ofs_tensor_shape(f->cat, t)[0];
		l->rows =
		    rows / f->to.shards + (rows % f->to.shards == 0 ? 0 : 1);
		l->nchunks = (uint32_t)((rows + l->rows - 1) / l->rows);
	}
	alike = find_alike(f, leaf);
	if (alike != NULL) {
		l->full = alike->full;
		l->last = alike->last;
		return 0;
	}
	if (item_size(f, leaf, l->nchunks - 1, &l->last, err) == -1)
		return -1;
	return l->nchunks == 1 ? 0 : item_size(f, leaf, 0, &l->full, err);
}

static int lay_leaf(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const uint32_t *entries, uint32_t n,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = &f->cat->entries[f->leaf[leaf].entry];
	uint32_t all;
	int ret;

	ofs_dcp_entry_path(f, entries[0], &all);
	if (f->leaf[leaf].nkey < all)
		return ofs_dcp_tuple_lay(f, from, leaf, entries, n, err);
	if (ofs_render_is_value(f->cat, e))
		ret = ofs_dcp_value_lay(f, from, leaf, e, err);
	else
		ret = lay_tensor(f, from, leaf, e, err);
	return ret == -1 ? ofs_render_fail_in(f->cat, e, err) : 0;
}

/* Refuses entries with equal flat keys: a reader would find only one of them. */
static int check_keys(const struct ofs_dcp_files *f, struct optimfs_error *err)
{
	struct ofs_keys keys = { 0 };
	struct ofs_buf key = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < f->nleaves && ret == 0; i++) {
		uint32_t number;

		key.len = 0;
		ofs_dcp_leaf_key(f, i, &key);
		number = key.bad
		    ? OFS_NONE
		    : ofs_keys_copy(&keys, key.data, key.len, NULL);
		if (number == OFS_NONE)
			ret = ofs_no_memory(err);
		else if (number < i)
			ret = optimfs_fail(err, EUCLEAN,
			    "OFS449 two entries of the checkpoint would have "
			    "the key '%.*s'",
			    OFS_STR_ARGS(keys.v[number], 120));
	}
	ofs_keys_fini(&keys);
	ofs_buf_fini(&key);
	return ret;
}

/* A DCP checkpoint keeps the keys that its program expects, whatever their form
 * in the tree. */
static bool keeps_keys(const struct ofs_dcp_files *f)
{
	if (f->to.keys != OFS_KEYS_DEFAULT)
		return f->to.keys == OFS_KEYS_SOURCE;
	return strcmp(f->cat->format, "dcp") == 0 && f->cat->nid_names == 0;
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	(void)files;
	if (file == 0)
		snprintf(name, OFS_FILE_NAME, ".metadata");
	else
		snprintf(name, OFS_FILE_NAME, "__%u_0.distcp", file - 1);
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	const struct ofs_dcp_files *f = dcp_files(files);
	struct ofs_dcp_walk w;
	int ret = 0;

	if (file == 0)
		return ofs_dcp_index_spans(f, out, err);
	ofs_dcp_walk_begin(&w, f, file - 1, OFS_DCP_VALUES, 0, 0);
	while (ret == 0 && ofs_dcp_walk_next(&w))
		ret = w.kind == OFS_DCP_HEADER
		    ? ofs_dcp_blob_spans(f, file - 1, out, err)
		    : ofs_spans_add(out,
			  ofs_dcp_item_size(&f->leaf[w.leaf], w.of_leaf),
			  w.leaf, w.of_leaf, err);
	return ret;
}

static int make_tensor(const struct ofs_dcp_files *f, uint32_t leaf,
    uint32_t chunk, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_torch_part part = chunk_part(f, leaf, chunk);
	struct ofs_torch_new a = { .base = at };
	int ret;

	if (f->to.variant == OFS_DCP_BLOBS)
		return ofs_composition_elements(c, f->cat, part.tensor,
		    part.first, part.count, err);
	ret = tensor_archive(f, leaf, chunk, &a, err);
	if (ret == 0)
		ret = ofs_torch_new_put(&a, f->cat, c, err);
	ofs_torch_new_fini(&a);
	return ret;
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	const struct ofs_dcp_files *f = dcp_files(files);
	uint32_t leaf = (uint32_t)span->ref, chunk = (uint32_t)span->base;

	if (file == 0)
		return ofs_dcp_index_make(f, span, c, err);
	if (ofs_dcp_blob_is(span))
		return ofs_dcp_blob_make(f, file - 1, span, c, err);
	if (f->leaf[leaf].nchunks == 0)
		return ofs_dcp_value_make(f, &f->leaf[leaf], at, c, err);
	return make_tensor(f, leaf, chunk, at, c, err);
}

static void stored(struct ofs_files *files, const struct ofs_span *span,
    uint64_t len)
{
	struct ofs_dcp_files *f = (struct ofs_dcp_files *)files;

	f->stored[f->item[span->ref] + span->base] = len;
}

static void files_free(struct ofs_files *files)
{
	struct ofs_dcp_files *f = (struct ofs_dcp_files *)files;

	for (uint32_t i = 0; i < f->ntuples; i++)
		ofs_torch_new_fini(&f->tuple[i]);
	free(f->tuple);
	ofs_buf_fini(&f->pickles);
	free(f->scale);
	free(f->item);
	free(f->stored);
	free(f->most);
	free(f->leaf);
	free(f);
}

static int lay_stored(struct ofs_dcp_files *f, struct optimfs_error *err)
{
	uint64_t n = 0;

	f->item = calloc((size_t)f->nleaves + 1, sizeof(*f->item));
	if (f->item == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->nleaves; i++) {
		f->item[i] = n;
		n += f->leaf[i].nchunks == 0 ? 1 : f->leaf[i].nchunks;
	}
	f->stored = calloc(n + 1, sizeof(*f->stored));
	return f->stored == NULL ? ofs_no_memory(err) : 0;
}

static int lay_all(struct ofs_dcp_files *f, const struct ofs_render *from,
    const uint32_t *entries, struct optimfs_error *err)
{
	uint32_t n = f->nleaves;

	f->source = keeps_keys(f);
	ofs_dcp_leaves(f, entries, n);
	f->groups = ofs_dcp_lists_groups(f);
	if (check_keys(f, err) == -1)
		return -1;
	for (uint32_t leaf = 0, i = 0, next; leaf < f->nleaves;
	     leaf++, i = next) {
		next = leaf + 1 < f->nleaves ? i + 1 : n;
		while (next < n && entries[next] != f->leaf[leaf + 1].entry)
			next++;
		if (lay_leaf(f, from, leaf, entries + i, next - i, err) == -1)
			return -1;
	}
	if (ofs_dcp_walk_init(f, err) == -1)
		return -1;
	return f->to.zstd == 0 ? 0 : lay_stored(f, err);
}

static int lay(struct ofs_files *files, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	struct ofs_dcp_files *f = (struct ofs_dcp_files *)files;
	uint32_t *entries = NULL;
	int ret = -1;

	f->cat = from->cat;
	f->to = *to;
	f->nranks = to->shards * to->replicas;
	f->files.n = 1 + f->nranks;
	if (ofs_render_entries(from, to, NULL, &entries, &f->nleaves, err) ==
	    -1)
		return -1;
	f->leaf = ofs_alloc((size_t)f->nleaves + 1, sizeof(*f->leaf), err);
	if (f->leaf != NULL)
		ret = lay_all(f, from, entries, err);
	free(entries);
	return ret;
}

const struct ofs_files_ops ofs_dcp_render = {
	.size = sizeof(struct ofs_dcp_files),
	.lay = lay,
	.name = file_name,
	.spans = spans,
	.make = make,
	.stored = stored,
	.free = files_free,
};
