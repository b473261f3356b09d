/* repeated.c - values that several checkpoints of one job repeat */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "format/megatron/megatron.h"
#include "text/digest.h"

/* A job may save model, optimizer and the rest as checkpoints of their own
 * (verl). Each has a common state, whose equal values are one. */

/* More objects than common state has. */
#define VISITS (UINT64_C(1) << 20)

struct value {
	uint32_t path, entry;
};

OFS_COMPARE_BY2(by_path, struct value, path, entry)

static bool same(const struct ofs_catalog *cat, uint32_t a, uint32_t b)
{
	const struct ofs_value *x = &cat->values[cat->entries[a].ref],
			       *y = &cat->values[cat->entries[b].ref];
	struct ofs_text_budget budget = { .visits = VISITS };
	uint64_t first, second;

	return ofs_text_digest(x->doc, x->node, &budget, &first) &&
	    ofs_text_digest(y->doc, y->node, &budget, &second) &&
	    first == second;
}

static void remove_marked(struct ofs_catalog *cat, const bool *gone)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cat->nentries; i++)
		if (!gone[i])
			cat->entries[n++] = cat->entries[i];
	cat->nentries = n;
}

int ofs_megatron_drop_repeated(struct ofs_megatron *m,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = m->cat;
	size_t max = (size_t)cat->nentries + 1;
	struct value *v = ofs_alloc(max, sizeof(*v), err);
	bool *gone = ofs_alloc(max, sizeof(*gone), err);
	int ret = v == NULL || gone == NULL ? -1 : 0;
	uint32_t n = 0;

	for (uint32_t i = 0; v != NULL && i < cat->nentries; i++)
		if (cat->entries[i].kind == OFS_ENTRY_VALUE)
			v[n++] = (struct value){ cat->entries[i].path, i };
	if (ret == 0) {
		qsort(v, n, sizeof(*v), by_path);
		for (uint32_t i = 1; i < n; i++)
			gone[v[i].entry] = v[i].path == v[i - 1].path &&
			    same(cat, v[i - 1].entry, v[i].entry);
		remove_marked(cat, gone);
	}
	free(v);
	free(gone);
	return ret;
}
