/* budget.h - the memory budget for a checkpoint's pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CATALOG_BUDGET_H
#define OFS_CATALOG_BUDGET_H

#include "base/memory.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

#define OFS_METADATA_MAX ((uint64_t)1 << 30)

static inline uint64_t ofs_metadata_max(const struct ofs_catalog *cat)
{
	uint64_t part = ofs_memory_limit() / 4;

	if (cat->max_metadata != 0)
		return cat->max_metadata;
	return part < OFS_METADATA_MAX ? part : OFS_METADATA_MAX;
}

/* Limits for one more pickle, beside those that cat keeps. */
static inline struct ofs_pickle_limits ofs_pickle_budget(const struct
    ofs_catalog *cat)
{
	struct ofs_pickle_limits limits = { .bytes = ofs_metadata_max(cat),
		.watch = cat->dir.watch };

	/* 1, because 0 means the default */
	if (cat->parse_mem > cat->parsed)
		limits.memory = cat->parse_mem - cat->parsed;
	else if (cat->parse_mem != 0)
		limits.memory = 1;
	return limits;
}

#endif
