/* name_index.c - the pairs of a pickled dict by name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/name_index.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

static struct ofs_str key_at(const struct ofs_pk_names *x, uint32_t pair)
{
	return ofs_pk_str(x->doc, ofs_pk_key(x->doc, x->dict, pair));
}

static int by_key(const void *va, const void *vb, void *ctx)
{
	uint32_t a = *(const uint32_t *)va, b = *(const uint32_t *)vb;
	int c = ofs_str_compare(key_at(ctx, a), key_at(ctx, b));

	return c != 0 ? c : (a > b) - (a < b);
}

int ofs_pk_names_init(struct ofs_pk_names *x, const struct ofs_pickle *doc,
    uint32_t dict, struct optimfs_error *err)
{
	uint32_t n =
	    ofs_pk_kind(doc, dict) == OFS_PK_DICT ? ofs_pk_len(doc, dict) : 0;

	*x = (struct ofs_pk_names){ doc, dict, NULL, 0 };
	x->order = malloc((n + 1ull) * sizeof(*x->order));
	if (x->order == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++)
		if (ofs_pk_kind(doc, ofs_pk_key(doc, dict, i)) == OFS_PK_STR)
			x->order[x->n++] = i;
	qsort_r(x->order, x->n, sizeof(*x->order), by_key, x);
	return 0;
}

void ofs_pk_names_fini(struct ofs_pk_names *x)
{
	free(x->order);
	*x = (struct ofs_pk_names){ 0 };
}

struct wanted {
	const struct ofs_pk_names *x;
	struct ofs_str name;
};

static int compare_name(const void *key, const void *item)
{
	const struct wanted *w = key;

	return ofs_str_compare(w->name, key_at(w->x, *(const uint32_t *)item));
}

uint32_t ofs_pk_names_pair(const struct ofs_pk_names *x, struct ofs_str name)
{
	struct wanted w = { x, name };
	size_t i = ofs_upper_bound(&w, x->order, x->n, sizeof(*x->order),
	    compare_name);

	if (i == 0 || !ofs_str_equal(key_at(x, x->order[i - 1]), name))
		return OFS_NONE;
	return x->order[i - 1];
}

uint32_t ofs_pk_names_val(const struct ofs_pk_names *x, struct ofs_str name)
{
	uint32_t pair = ofs_pk_names_pair(x, name);

	return pair == OFS_NONE ? OFS_NONE : ofs_pk_val(x->doc, x->dict, pair);
}
