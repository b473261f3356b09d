/* ties.c - parameters of the model that are one tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "naming/naming_impl.h"

/* Equal for two names of one tensor. Boxes, shapes and strides are interned:
 * equal ones have one index. It is hashed, so it must have no padding. */
struct identity {
	uint64_t off, len, view_offset, view_numel;
	uint32_t object, kind, shape, box, stride, ndim_fix;
};

struct ties {
	struct ofs_keys ids;
	uint32_t *entry, cap; /* of each identity: its first entry */
};

/* Fill *id. false: the tensor has no elements, or it is not a view of one
 * extent and no reader reported several names. Tensors in DCP items are never
 * shared. */
static bool identify(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct identity *id)
{
	const struct ofs_shard *s;
	const struct ofs_view *v;

	if (ofs_tensor_numel(cat, t) == 0)
		return false;
	if ((t->flags & OFS_TENSOR_TIED) != 0) {
		*id = (struct identity){ .off = (uint64_t)(t - cat->tensors),
			.kind = UINT32_MAX };
		return true;
	}
	if (t->nshards != 1)
		return false;
	s = &cat->shards[t->shard];
	if (s->at.encoding == OFS_TORCH_ITEM || s->at.encoding == OFS_DERIVED)
		return false;
	*id = (struct identity){
		.off = s->at.off,
		.len = s->at.len,
		.object = s->at.object,
		.kind = s->at.encoding | (uint32_t)s->at.codec << 8 |
		    (uint32_t)t->dtype << 16,
		.shape = t->ndim == 0 ? 0 : t->shape,
		.box = s->box,
		.stride = OFS_NONE,
		.ndim_fix = t->ndim,
	};
	if (s->view == OFS_NONE)
		return true;
	v = &cat->views[s->view];
	id->view_offset = v->offset;
	id->view_numel = v->numel;
	id->stride = t->ndim == 0 ? 0 : v->stride;
	id->ndim_fix |= (uint32_t)v->fix << 8;
	return true;
}

static int add_tie(struct naming *c, uint32_t entry, uint32_t first,
    struct optimfs_error *err)
{
	if (ofs_grow(c->tie, c->nties, c->tie_cap, err) == -1)
		return -1;
	c->tie[c->nties++] = (struct naming_tie){ entry, first };
	return 0;
}

static int see(struct naming *c, struct ties *t, uint32_t entry,
    const struct identity *id, struct optimfs_error *err)
{
	uint32_t known = t->ids.n;
	uint32_t at = ofs_keys_copy(&t->ids, id, sizeof(*id), err);

	if (at == OFS_NONE)
		return -1;
	if (at < known)
		return add_tie(c, entry, t->entry[at], err);
	if (ofs_grow(t->entry, at, t->cap, err) == -1)
		return -1;
	t->entry[at] = entry;
	return 0;
}

int ofs_naming_ties(struct naming *c, struct optimfs_error *err)
{
	struct ties t = { 0 };
	struct naming_rest rest;
	struct identity id;
	int ret = 0;

	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++) {
		const struct ofs_entry *e = &c->cat->entries[i];

		if (e->kind == OFS_ENTRY_TENSOR &&
		    identify(c->cat, &c->cat->tensors[e->ref], &id) &&
		    ofs_naming_in_model(c, i, &rest) &&
		    ofs_naming_fqn(c, rest).s.p != NULL)
			ret = see(c, &t, i, &id, err);
	}
	ofs_keys_fini(&t.ids);
	free(t.entry);
	return ret;
}

OFS_COMPARE_BY(by_entry, struct naming_tie, entry)

bool ofs_naming_tied(const struct naming *c, uint32_t entry)
{
	struct naming_tie key = { .entry = entry };

	return ofs_search(&key, c->tie, c->nties, sizeof(key), by_entry) !=
	    NULL;
}
