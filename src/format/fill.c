/* fill.c - fill=zero: missing optimizer state as zeros */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fill.h"

#include <errno.h>
#include <string.h>

bool ofs_starts_at_zero(const char *name)
{
	static const char *const known[] = { "exp_avg", "exp_avg_sq",
		"max_exp_avg_sq", "momentum_buffer", NULL };

	for (int i = 0; known[i] != NULL; i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return false;
}

/* optim/[OPTIMIZER/]state/NAME/STATE */
static bool is_state(const struct ofs_catalog *cat, const struct ofs_entry *e)
{
	const uint32_t *c;
	uint32_t n;

	if (e->kind != OFS_ENTRY_TENSOR || e->tree == OFS_NONE)
		return false;
	c = ofs_catalog_components(cat, e->tree, &n);
	return n >= 4 && ofs_catalog_string_is(cat, c[0], "optim") &&
	    (ofs_catalog_string_is(cat, c[1], "state") ||
		(n >= 5 && ofs_catalog_string_is(cat, c[2], "state"))) &&
	    ofs_starts_at_zero(ofs_catalog_string(cat, OFS_PATH_STR(c[n - 1]))
				   .p);
}

/* What is in a lost file is as good as in none: its shards are dropped. */
static void drop_lost(struct ofs_catalog *cat, struct ofs_tensor *t)
{
	struct ofs_shard *s = cat->shards + t->shard;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < t->nshards; i++)
		if (!ofs_extent_lost(cat, &s[i].at, NULL))
			s[kept++] = s[i];
	t->nshards = kept;
}

static void fill(struct ofs_catalog *cat, struct ofs_tensor *t)
{
	if (t->error != OFS_NONE)
		return;
	t->flags |= OFS_TENSOR_ZERO;
	drop_lost(cat, t);
}

int ofs_fill(struct ofs_catalog *cat, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	if (opt == NULL || opt->fill == NULL)
		return 0;
	if (strcmp(opt->fill, "zero") != 0)
		return optimfs_fail(err, EINVAL,
		    "fill=%.40s: only fill=zero is supported", opt->fill);
	for (uint32_t i = 0; i < cat->nentries; i++)
		if (is_state(cat, &cat->entries[i]))
			fill(cat, &cat->tensors[cat->entries[i].ref]);
	return 0;
}
