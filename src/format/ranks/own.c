/* own.c - state of each rank: random numbers, data loaders */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "base/str.h"
#include "format/ranks/ranks.h"
#include "naming/naming.h"

/* Rules: docs/formats/ranks.md, "What becomes of a path". */

static bool is_trained(const struct ofs_ranks *set,
    const struct ofs_ranks_group *g)
{
	uint32_t n;
	const uint32_t *part = ofs_catalog_components(set->cat, g->path, &n);

	for (uint32_t i = 0; i < n; i++)
		if (ofs_naming_is_trained(ofs_catalog_string(set->cat,
					      OFS_PATH_STR(part[i])),
			i))
			return true;
	return false;
}

/* Is there a key for a model or an optimizer, so that entries beside it are
 * neither? */
static bool has_trained(struct ofs_ranks *set)
{
	if (set->trained != 0)
		return set->trained > 0;
	set->trained = -1;
	for (uint32_t i = 0; i < set->ngroups && set->trained < 0; i++)
		if (is_trained(set, &set->group[i]))
			set->trained = 1;
	return set->trained > 0;
}

bool ofs_ranks_is_own(struct ofs_ranks *set, const struct ofs_ranks_group *g)
{
	uint32_t n;

	ofs_catalog_components(set->cat, g->path, &n);
	return !is_trained(set, g) && (n > 1 || has_trained(set));
}

/* The path with "rankR" appended. */
static uint32_t path_of(struct ofs_ranks *set, uint32_t path, int rank,
    struct optimfs_error *err)
{
	uint32_t n;
	const uint32_t *parent = ofs_catalog_components(set->cat, path, &n);
	char name[32];

	snprintf(name, sizeof(name), "rank%d", rank);
	return ofs_catalog_below(set->cat, parent, n, ofs_str_of(name), err);
}

int ofs_ranks_each(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	g->taken = true;
	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		const struct ofs_ranks_leaf *leaf = &set->leaf[i];
		struct ofs_ranks_file *f = &set->file[leaf->file];
		uint32_t path = path_of(set, g->path, f->rank, err);

		if (path == OFS_NONE ||
		    ofs_torch_leaf(&f->leaves, leaf->node, path, err) == -1)
			return -1;
	}
	return 0;
}
