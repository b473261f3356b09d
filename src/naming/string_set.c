/* string_set.c - a set of borrowed strings */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "naming/naming_impl.h"

static bool same(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct naming_set *set = ctx;

	return set->v[index].len == n && memcmp(set->v[index].p, key, n) == 0;
}

bool ofs_naming_set_has(const struct naming_set *set, struct ofs_str s)
{
	return ofs_map_find(&set->map, ofs_map_hash(s.p, s.len), same, set, s.p,
		   s.len) != UINT32_MAX;
}

int ofs_naming_set_add(struct naming_set *set, struct ofs_str s,
    struct optimfs_error *err)
{
	if (ofs_naming_set_has(set, s))
		return 0;
	if (ofs_grow(set->v, set->n, set->cap, err) == -1)
		return -1;
	set->v[set->n] = s;
	if (!ofs_map_add(&set->map, ofs_map_hash(s.p, s.len), set->n))
		return ofs_no_memory(err);
	set->n++;
	return 0;
}

void ofs_naming_set_fini(struct naming_set *set)
{
	ofs_map_fini(&set->map);
	free(set->v);
	*set = (struct naming_set){ 0 };
}
