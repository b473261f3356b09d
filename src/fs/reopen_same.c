/* reopen_same.c - does a file hold the same bytes after a commit? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "fs/fs.h"

/* Bytes that are not looked at are the same if they lie where they did in a
 * file that is the one it was. */

static bool same_object(const struct ofs_object *a, const struct ofs_object *b)
{
	return strcmp(a->path, b->path) == 0 && a->size == b->size &&
	    a->mtime_ns == b->mtime_ns && a->ino == b->ino &&
	    a->missing == b->missing && a->refused == b->refused;
}

static bool same_extent(const struct ofs_catalog *a, const struct ofs_extent *x,
    const struct ofs_catalog *b, const struct ofs_extent *y)
{
	return x->off == y->off && x->len == y->len &&
	    x->encoding == y->encoding && x->codec == y->codec &&
	    x->tag == y->tag &&
	    same_object(&a->objects[x->object], &b->objects[y->object]);
}

static bool same_item(const struct ofs_catalog *a, const struct ofs_item *x,
    const struct ofs_catalog *b, const struct ofs_item *y)
{
	return x->error == OFS_NONE && y->error == OFS_NONE &&
	    same_extent(a, &x->at, b, &y->at);
}

static bool same_numbers(const struct ofs_catalog *a, uint32_t at,
    const struct ofs_catalog *b, uint32_t bt, size_t n)
{
	if (at == OFS_NONE || bt == OFS_NONE)
		return at == bt;
	return memcmp(a->dims + at, b->dims + bt, n * sizeof(*a->dims)) == 0;
}

static bool same_view(const struct ofs_catalog *a, uint32_t av,
    const struct ofs_catalog *b, uint32_t bv, size_t ndim)
{
	const struct ofs_view *x, *y;

	if (av == OFS_NONE || bv == OFS_NONE)
		return av == bv;
	x = &a->views[av];
	y = &b->views[bv];
	return x->offset == y->offset && x->numel == y->numel &&
	    x->fix == y->fix && same_numbers(a, x->stride, b, y->stride, ndim);
}

static bool same_shard(const struct ofs_catalog *a, const struct ofs_shard *x,
    const struct ofs_catalog *b, const struct ofs_shard *y, size_t ndim)
{
	return same_extent(a, &x->at, b, &y->at) &&
	    same_numbers(a, x->box, b, y->box, 2 * ndim) &&
	    same_view(a, x->view, b, y->view, ndim);
}

static bool same_tensor(const struct ofs_catalog *a, const struct ofs_tensor *x,
    const struct ofs_catalog *b, const struct ofs_tensor *y)
{
	if (x->ndim != y->ndim || x->grid_ndim != y->grid_ndim ||
	    x->dtype != y->dtype || x->nshards != y->nshards ||
	    x->error != OFS_NONE || y->error != OFS_NONE ||
	    !same_numbers(a, x->shape, b, y->shape, x->ndim) ||
	    !same_numbers(a, x->grid, b, y->grid, x->grid_ndim))
		return false;
	for (uint32_t i = 0; i < x->nshards; i++)
		if (!same_shard(a, &a->shards[x->shard + i], b,
			&b->shards[y->shard + i], x->grid_ndim))
			return false;
	return true;
}

/* Values come from what was parsed, and are not compared. */
bool ofs_node_same(const struct optimfs *fs, uint32_t i,
    const struct optimfs *now, uint32_t k)
{
	uint32_t was = fs->tree.node[i].entry, is = now->tree.node[k].entry;
	const struct ofs_catalog *a = fs->cat, *b = now->cat;
	const struct ofs_entry *x, *y;

	if (was == OFS_NONE || is == OFS_NONE)
		return was == is;
	x = &a->entries[was];
	y = &b->entries[is];
	if (x->kind != y->kind)
		return false;
	if (x->kind == OFS_ENTRY_TENSOR)
		return same_tensor(a, &a->tensors[x->ref], b,
		    &b->tensors[y->ref]);
	return x->kind == OFS_ENTRY_ITEM &&
	    same_item(a, &a->items[x->ref], b, &b->items[y->ref]);
}
