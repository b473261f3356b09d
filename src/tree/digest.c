/* digest.c - a digest of what a tree shows */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tree/digest.h"

#include <stdlib.h>
#include <xxhash.h>

#include "base/memory.h"
#include "catalog/shards.h"
#include "text/text.h"

static void put(struct ofs_buf *b, uint64_t v)
{
	ofs_buf_put(b, &v, sizeof(v));
}

static void put_error(struct ofs_buf *b, const struct ofs_catalog *cat,
    uint32_t note)
{
	put(b, note == OFS_NONE ? 0 : (uint64_t)cat->notes[note].number + 1);
}

static void put_extent(struct ofs_buf *b, const struct ofs_catalog *cat,
    const struct ofs_extent *at)
{
	ofs_buf_puts(b, cat->objects[at->object].path);
	put(b, at->off);
	put(b, at->len);
	put(b, (uint64_t)at->encoding << 8 | at->codec);
}

static void put_shard(struct ofs_buf *b, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const struct ofs_shard *s)
{
	const struct ofs_view *v = ofs_shard_view(cat, s);
	uint64_t box[2 * OFS_MAX_DIMS];

	ofs_shard_box(cat, t, s, box, box + t->grid_ndim);
	ofs_buf_put(b, box, 2 * t->grid_ndim * sizeof(*box));
	put_extent(b, cat, &s->at);
	if (v == NULL)
		return;
	put(b, v->offset);
	put(b, v->fix);
	ofs_buf_put(b, cat->dims + v->stride, t->grid_ndim * sizeof(int64_t));
}

static void put_tensor(struct ofs_buf *b, const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	put(b, t->dtype);
	put(b, t->ndim);
	ofs_buf_put(b, ofs_tensor_shape(cat, t), t->ndim * sizeof(uint64_t));
	put_error(b, cat, t->error);
	for (uint32_t i = 0; i < t->nshards; i++)
		put_shard(b, cat, t, &cat->shards[t->shard + i]);
}

/* A value that is too large for a text contributes its error code. */
static void put_value(struct ofs_buf *b, const struct ofs_value *v)
{
	struct ofs_buf text = { 0 };
	struct optimfs_error why = { 0 };

	if (ofs_text_value(v->doc, v->node, NULL, &text, &why) == 0)
		ofs_buf_put(b, text.data, text.len);
	else
		put(b, (uint64_t)why.code);
	b->bad |= text.bad;
	ofs_buf_fini(&text);
}

static void put_item(struct ofs_buf *b, const struct ofs_catalog *cat,
    const struct ofs_item *item)
{
	put_error(b, cat, item->error);
	if (item->error == OFS_NONE)
		put_extent(b, cat, &item->at);
}

static void put_entry(struct ofs_buf *b, const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	put(b, e->kind);
	switch ((enum ofs_entry_kind)e->kind) {
	case OFS_ENTRY_TENSOR:
		put_tensor(b, cat, &cat->tensors[e->ref]);
		break;
	case OFS_ENTRY_VALUE:
		put_value(b, &cat->values[e->ref]);
		break;
	case OFS_ENTRY_ITEM:
		put_item(b, cat, &cat->items[e->ref]);
		break;
	}
}

bool ofs_tree_digest(const struct ofs_tree *tree, const struct ofs_catalog *cat,
    uint32_t node, struct ofs_buf *space, uint64_t *hash)
{
	space->len = 0;
	put(space, ofs_tree_node_ino(tree, node)); /* of the path */
	if (tree->node[node].entry != OFS_NONE)
		put_entry(space, cat, ofs_tree_entry(tree, cat, node));
	*hash = XXH64(space->data, space->len, 0);
	return !space->bad;
}

uint64_t *ofs_tree_digests(const struct ofs_tree *tree,
    const struct ofs_catalog *cat, struct optimfs_error *err)
{
	uint64_t *hash = calloc(tree->n, sizeof(*hash));
	struct ofs_buf b = { 0 };
	bool good = hash != NULL;

	for (uint32_t i = 0; good && i < tree->n; i++)
		good = ofs_tree_digest(tree, cat, i, &b, &hash[i]);
	ofs_buf_fini(&b);
	if (good)
		return hash;
	free(hash);
	ofs_no_memory(err);
	return NULL;
}
