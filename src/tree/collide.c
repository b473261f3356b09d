/* collide.c - keys that have the same name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "base/utf8.h"
#include "naming/file_name.h"
#include "tree/tree_impl.h"

/* The order of entries does not decide which one keeps the name: directories
 * come before files, then smaller keys, then smaller paths in the source. */
struct scope {
	const struct ofs_catalog *cat;
	const struct ofs_tree_draft *draft;
};

static int path_cmp(const struct ofs_catalog *cat, uint32_t a, uint32_t b)
{
	uint32_t na, nb;
	const uint32_t *x =
	    ofs_catalog_components(cat, cat->entries[a].path, &na);
	const uint32_t *y =
	    ofs_catalog_components(cat, cat->entries[b].path, &nb);
	int c;

	for (uint32_t i = 0; i < na && i < nb; i++) {
		c = ofs_str_compare(ofs_catalog_string(cat, x[i]),
		    ofs_catalog_string(cat, y[i]));
		if (c != 0)
			return c;
		if (x[i] != y[i])
			return x[i] > y[i] ? -1 : 1;
	}
	return (na > nb) - (na < nb);
}

static int draft_cmp(const void *pa, const void *pb, void *ctx)
{
	const struct scope *s = ctx;
	uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
	const struct ofs_tree_draft *a = &s->draft[ia], *b = &s->draft[ib];
	int c = strcmp(a->name, b->name);

	if (c == 0)
		c = (a->entry != OFS_NONE) - (b->entry != OFS_NONE);
	if (c == 0)
		c = ofs_str_compare(ofs_catalog_string(s->cat, a->key),
		    ofs_catalog_string(s->cat, b->key));
	if (c == 0 && a->entry != OFS_NONE)
		c = path_cmp(s->cat, a->entry, b->entry);
	return c != 0 ? c : (ia > ib) - (ia < ib);
}

struct wanted {
	const struct scope *s;
	const char *name;
};

static int compare_taken(const void *key, const void *item)
{
	const struct wanted *w = key;

	return strcmp(w->name, w->s->draft[*(const uint32_t *)item].name);
}

static bool taken(const struct scope *s, const uint32_t *order, uint32_t n,
    const char *name)
{
	struct wanted w = { s, name };

	return ofs_search(&w, order, n, sizeof(*order), compare_taken) != NULL;
}

/* name = base with a number. A base that leaves no room for it is truncated and
 * hashed like a long key, so that two bases never give one name. */
static void numbered(const char *base, uint32_t k, char name[OFS_NAME_MAX + 1])
{
	size_t len = strlen(base), cut = 0, u;

	if (len + 11 <= OFS_NAME_MAX) {
		snprintf(name, OFS_NAME_MAX + 1, "%s~%u", base, k);
		return;
	}
	while (cut < 200) {
		u = ofs_utf8_length((const uint8_t *)base + cut, len - cut);
		if (u == 0 || cut + u > 200)
			break;
		cut += u;
	}
	snprintf(name, OFS_NAME_MAX + 1, "%.*s~%016llx~%u", (int)cut, base,
	    (unsigned long long)XXH64(base, len, 0), k);
}

/* order[0..n) is sorted by the old names. renamed[i] gets the new name of
 * order[i]; NULL: it keeps its name. */
static int rename_all(struct ofs_tree *tree, const struct scope *s,
    const uint32_t *order, uint32_t n, const char **renamed,
    struct optimfs_error *err)
{
	char name[OFS_NAME_MAX + 1];
	uint32_t k = 2;

	for (uint32_t i = 0; i < n; i++) {
		const char *base = s->draft[order[i]].name;

		if (i == 0 || strcmp(s->draft[order[i - 1]].name, base) != 0) {
			k = 2;
			continue;
		}
		do
			numbered(base, k++, name);
		while (taken(s, order, n, name));
		renamed[i] =
		    ofs_arena_strndup(&tree->names, name, strlen(name));
		if (renamed[i] == NULL)
			return ofs_no_memory(err);
	}
	return 0;
}

int ofs_tree_collide(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct ofs_tree_draft *draft, uint32_t *order, uint32_t n,
    struct optimfs_error *err)
{
	struct scope s = { cat, draft };
	const char **renamed = calloc(n, sizeof(*renamed));
	int ret = -1;

	if (renamed == NULL)
		return ofs_no_memory(err);
	qsort_r(order, n, sizeof(*order), draft_cmp, &s);
	if (rename_all(tree, &s, order, n, renamed, err) == -1)
		goto out;
	for (uint32_t i = 0; i < n; i++)
		if (renamed[i] != NULL)
			draft[order[i]].name = renamed[i];
	qsort_r(order, n, sizeof(*order), draft_cmp, &s);
	ret = 0;
out:
	free(renamed);
	return ret;
}
