/* derive.c - tensors of a catalog that are computed from others */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/derive.h"

int ofs_derive_tensor(struct ofs_catalog *cat, uint32_t i,
    const struct ofs_derived *d, struct optimfs_error *err)
{
	const uint8_t kept = OFS_TENSOR_TIED;
	struct ofs_shard s = { .box = OFS_NONE };
	struct ofs_tensor *t = &cat->tensors[i];

	if (ofs_tensor_numel(cat, t) == 0 || cat->nobjects == 0)
		return 0;
	if (t->nshards > 0)
		s.at = cat->shards[t->shard].at;
	s.at.encoding = OFS_DERIVED;
	s.at.codec = OFS_PLAIN;
	s.view = ofs_catalog_derived(cat, d, err);
	t->shard = cat->nshards;
	t->nshards = 1;
	t->grid = t->shape;
	t->grid_ndim = t->ndim;
	t->error = OFS_NONE;
	t->index = OFS_NONE;
	t->flags &= kept;
	return ofs_catalog_shard(cat, &s, err) == OFS_NONE ? -1 : 0;
}
