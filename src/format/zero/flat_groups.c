/* flat_groups.c - the flat group of each trained parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/memory.h"
#include "format/zero/zero.h"

static int put_trained(const struct ofs_zero *z, uint32_t param,
    struct ofs_flat_param *v, struct optimfs_error *err)
{
	const struct ofs_zero_param *p = &z->shapes.param[param];
	char group[16];
	int n = snprintf(group, sizeof(group), "%" PRIu32, p->group);

	*v = (struct ofs_flat_param){
		.name = ofs_catalog_str(z->cat, p->name.p, p->name.len, err),
		.unit = ofs_catalog_str(z->cat, group, (size_t)n, err),
		.index = param - z->shapes.first[p->group],
		.grad = 1,
	};
	return v->name == OFS_NONE || v->unit == OFS_NONE ? -1 : 0;
}

static int put_frozen(const struct ofs_zero *z, uint32_t param,
    struct ofs_flat_param *v, struct optimfs_error *err)
{
	struct ofs_str name = z->frozen.param[param].name;

	*v = (struct ofs_flat_param){
		.name = ofs_catalog_str(z->cat, name.p, name.len, err),
		.unit = OFS_NONE,
	};
	return v->name == OFS_NONE ? -1 : 0;
}

int ofs_zero_flat(struct ofs_zero *z, struct optimfs_error *err)
{
	struct ofs_catalog *cat = z->cat;
	struct ofs_flat_param *v;
	uint64_t most = 1;
	uint32_t n = 0;

	for (const struct ofs_zero *s = z; s != NULL; s = s->next)
		most += (uint64_t)s->shapes.n + s->frozen.n;
	v = ofs_arena_alloc(&cat->arena, most * sizeof(*v));
	if (v == NULL)
		return ofs_no_memory(err);
	for (const struct ofs_zero *s = z; s != NULL; s = s->next) {
		for (uint32_t i = 0; i < s->shapes.n; i++)
			if (put_trained(s, i, &v[n++], err) == -1)
				return -1;
		for (uint32_t i = 0; i < s->frozen.n; i++)
			if (put_frozen(s, i, &v[n++], err) == -1)
				return -1;
	}
	/* a name may be of two pipeline stages, or of a trained and a frozen
	 * parameter */
	ofs_catalog_set_flat(cat, v, n);
	return 0;
}
