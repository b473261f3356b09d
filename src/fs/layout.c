/* layout.c - the location of the bytes of an entry, as JSON */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/dtype.h"
#include "base/json_write.h"
#include "fs/fs.h"

static const char *encoding_name(const struct ofs_extent *at)
{
	switch (at->encoding) {
	case OFS_TORCH_ITEM:
		return "torch";
	case OFS_TORCH_RECORD:
		return "torch-record";
	case OFS_NPY:
		return "npy";
	case OFS_DERIVED:
		return "derived";
	default:
		return "raw";
	}
}

static const char *codec_name(const struct ofs_extent *at)
{
	switch (at->codec) {
	case OFS_ZSTD:
		return "zstd";
	case OFS_DEFLATE:
		return "deflate";
	default:
		return NULL;
	}
}

static void put_extent(struct ofs_json_writer *w, const struct ofs_catalog *cat,
    const struct ofs_extent *at)
{
	const struct ofs_object *o = &cat->objects[at->object];

	ofs_json_put_rank(w, "rank", o->rank);
	ofs_json_put_string(w, "file", o->path);
	ofs_json_put_u64(w, "offset", at->off);
	ofs_json_put_u64(w, "length", at->len);
	ofs_json_put_string(w, "encoding", encoding_name(at));
	ofs_json_put_string(w, "codec", codec_name(at));
	if (o->missing)
		ofs_json_put_bool(w, "missing", true);
}

static void put_grid(struct ofs_json_writer *w, const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	ofs_json_put_string(w, "dtype", ofs_dtype_name(t->dtype));
	ofs_json_put_numbers(w, "shape", ofs_tensor_shape(cat, t), t->ndim);
	if (t->grid != t->shape || t->grid_ndim != t->ndim)
		ofs_json_put_numbers(w, "grid", cat->dims + t->grid,
		    t->grid_ndim);
}

/* One stored copy of a box. */
static void put_shard(struct ofs_json_writer *w, const struct ofs_catalog *cat,
    const uint64_t *box, unsigned ndim, const struct ofs_extent *at,
    bool replica)
{
	w->gap = "\n  ";
	ofs_json_open(w, NULL, '{');
	w->gap = " ";
	ofs_json_put_numbers(w, "offsets", box, ndim);
	ofs_json_put_numbers(w, "sizes", box + ndim, ndim);
	put_extent(w, cat, at);
	if (replica)
		ofs_json_put_bool(w, "replica", true);
	ofs_json_close(w, '}');
}

static void put_tensor(struct ofs_json_writer *w, const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t box[2 * OFS_MAX_DIMS];
	const struct ofs_replica *copy;
	uint32_t copies;

	put_grid(w, cat, t);
	ofs_json_open(w, "shards", '[');
	for (uint32_t i = 0; i < t->nshards; i++) {
		const struct ofs_shard *s = &cat->shards[t->shard + i];

		ofs_shard_box(cat, t, s, box, box + t->grid_ndim);
		put_shard(w, cat, box, t->grid_ndim, &s->at, false);
		copy = ofs_replicas(cat, t->shard + i, &copies);
		for (uint32_t k = 0; k < copies; k++)
			put_shard(w, cat, box, t->grid_ndim, &copy[k].at, true);
	}
	if (t->nshards > 0)
		ofs_buf_putc(w->b, '\n');
	ofs_json_close(w, ']');
}

void ofs_layout_json(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_buf *out)
{
	const struct ofs_entry *e =
	    ofs_tree_entry(&snap->tree, snap->cat, index);
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);
	struct ofs_json_writer w = { out, " ", false };
	char path[4096];

	ofs_tree_path(&snap->tree, index, path, sizeof(path));
	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "path", path);
	if (t != NULL)
		put_tensor(&w, snap->cat, t);
	else
		put_extent(&w, snap->cat, &snap->cat->items[e->ref].at);
	ofs_json_close(&w, '}');
	ofs_buf_putc(out, '\n');
}
