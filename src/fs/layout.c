/* layout.c - where the bytes of an entry lie, as JSON */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "fs/fs.h"

static const char *encoding_name(const struct ofs_extent *at)
{
	switch (at->encoding) {
	case OFS_TORCH_ITEM:
		return "torch";
	case OFS_TORCH_RECORD:
		return "torch-record";
	default:
		return "raw";
	}
}

static void put_string(struct ofs_buf *out, const char *key, const char *s)
{
	ofs_buf_printf(out, "\"%s\": \"", key);
	ofs_buf_json(out, s, strlen(s));
	ofs_buf_putc(out, '"');
}

static void put_numbers(struct ofs_buf *out, const char *key, const uint64_t *v,
    unsigned n)
{
	ofs_buf_printf(out, "\"%s\": [", key);
	for (unsigned i = 0; i < n; i++)
		ofs_buf_printf(out, "%s%" PRIu64, i == 0 ? "" : ", ", v[i]);
	ofs_buf_putc(out, ']');
}

static void put_extent(struct ofs_buf *out, const struct ofs_catalog *cat,
    const struct ofs_extent *at)
{
	const struct ofs_object *o = &cat->objects[at->object];

	if (o->rank >= 0)
		ofs_buf_printf(out, "\"rank\": %d, ", o->rank);
	else
		ofs_buf_puts(out, "\"rank\": null, ");
	put_string(out, "file", o->path);
	ofs_buf_printf(out, ", \"offset\": %" PRIu64 ", \"length\": %" PRIu64,
	    at->off, at->len);
	ofs_buf_printf(out, ", \"encoding\": \"%s\", \"codec\": %s",
	    encoding_name(at), at->codec == OFS_ZSTD ? "\"zstd\"" : "null");
	if (o->missing)
		ofs_buf_puts(out, ", \"missing\": true");
}

static void put_grid(struct ofs_buf *out, const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	put_string(out, "dtype", ofs_dtype_name(t->dtype));
	ofs_buf_puts(out, ", ");
	put_numbers(out, "shape", ofs_tensor_shape(cat, t), t->ndim);
	if (t->grid == t->shape && t->grid_ndim == t->ndim)
		return;
	ofs_buf_puts(out, ", ");
	put_numbers(out, "grid", cat->dims + t->grid, t->grid_ndim);
}

/* One stored copy of a box. */
static void put_shard(struct ofs_buf *out, const struct ofs_catalog *cat,
    const uint64_t *box, unsigned ndim, const struct ofs_extent *at)
{
	put_numbers(out, "offsets", box, ndim);
	ofs_buf_puts(out, ", ");
	put_numbers(out, "sizes", box + ndim, ndim);
	ofs_buf_puts(out, ", ");
	put_extent(out, cat, at);
}

static void put_tensor(struct ofs_buf *out, const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t box[2 * OFS_MAX_DIMS];
	const struct ofs_replica *copy;
	uint32_t copies;

	put_grid(out, cat, t);
	ofs_buf_puts(out, ", \"shards\": [");
	for (uint32_t i = 0; i < t->nshards; i++) {
		const struct ofs_shard *s = &cat->shards[t->shard + i];

		ofs_shard_box(cat, t, s, box, box + t->grid_ndim);
		ofs_buf_puts(out, i == 0 ? "\n  {" : ",\n  {");
		put_shard(out, cat, box, t->grid_ndim, &s->at);
		ofs_buf_putc(out, '}');
		copy = ofs_replicas(cat, t->shard + i, &copies);
		for (uint32_t k = 0; k < copies; k++) {
			ofs_buf_puts(out, ",\n  {");
			put_shard(out, cat, box, t->grid_ndim, &copy[k].at);
			ofs_buf_puts(out, ", \"replica\": true}");
		}
	}
	ofs_buf_puts(out, t->nshards == 0 ? "]" : "\n]");
}

void ofs_layout_json(struct ofs_snapshot *snap, uint32_t index,
    struct ofs_buf *out)
{
	const struct ofs_entry *e =
	    &snap->cat->entries[snap->tree.node[index].entry];
	const struct ofs_tensor *t = ofs_entry_tensor(snap->cat, e);
	char path[4096];

	if (ofs_tree_path(&snap->tree, index, path, sizeof(path)) >=
	    sizeof(path))
		path[0] = '\0';
	ofs_buf_putc(out, '{');
	put_string(out, "path", path);
	ofs_buf_puts(out, ", ");
	if (t != NULL)
		put_tensor(out, snap->cat, t);
	else
		put_extent(out, snap->cat, &snap->cat->items[e->ref].at);
	ofs_buf_puts(out, "}\n");
}
