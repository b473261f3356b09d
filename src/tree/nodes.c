/* nodes.c - paths of entries -> directories and files in order */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "naming/file_name.h"
#include "tree/tree_impl.h"

/* A trie over the 32-bit components of the paths, then two stable counting
 * sorts: by rank of the name, and by parent. Each string is encoded and
 * compared once, however many files have it as their name. */

struct build {
	const struct ofs_catalog *cat;
	struct ofs_tree *tree;
	struct ofs_tree_draft *draft;
	uint32_t n, cap;
	struct ofs_map dirs; /* (parent, key) -> draft */
	/* the directories of the previous path */
	uint32_t *last;
	size_t nlast, last_cap;
};

struct dir_key {
	uint32_t parent, key;
};

static bool same_dir(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct build *b = ctx;
	const struct dir_key *k = key;

	(void)n;
	return b->draft[index].parent == k->parent &&
	    b->draft[index].key == k->key;
}

static int add_draft(struct build *b, uint32_t parent, uint32_t key,
    uint32_t entry, struct optimfs_error *err)
{
	if (b->n == OFS_NONE - 1)
		return optimfs_fail(err, E2BIG,
		    "OFS633 more than 4294967294 files and directories");
	if (ofs_grow(b->draft, b->n, b->cap, err) == -1)
		return -1;
	b->draft[b->n++] = (struct ofs_tree_draft){
		.parent = parent,
		.key = key,
		.entry = entry,
	};
	return 0;
}

/* Find or create the directory key in parent. */
static int enter(struct build *b, uint32_t parent, uint32_t key, uint32_t *dir,
    struct optimfs_error *err)
{
	struct dir_key k = { parent, key };
	uint32_t hash = ofs_map_hash(&k, sizeof(k));
	uint32_t found =
	    ofs_map_find(&b->dirs, hash, same_dir, b, &k, sizeof(k));

	if (found == UINT32_MAX) {
		found = b->n;
		if (add_draft(b, parent, key, OFS_NONE, err) == -1)
			return -1;
		if (!ofs_map_add(&b->dirs, hash, found))
			return ofs_no_memory(err);
	}
	*dir = found;
	return 0;
}

static int add_path(struct build *b, uint32_t entry, struct optimfs_error *err)
{
	uint32_t n, parent = 0, key;
	const uint32_t *c =
	    ofs_catalog_components(b->cat, b->cat->entries[entry].tree, &n);

	assert(n > 0); /* ofs_name_entries gave every entry a name */
	if (ofs_reserve(b->last, n, b->last_cap, err) == -1)
		return -1;
	for (uint32_t i = 0; i + 1 < n; i++) {
		key = OFS_PATH_STR(c[i]);
		if (i < b->nlast && b->draft[b->last[i]].key == key) {
			parent = b->last[i];
			continue;
		}
		b->nlast = i;
		if (enter(b, parent, key, &parent, err) == -1)
			return -1;
		b->last[b->nlast++] = parent;
	}
	return add_draft(b, parent, OFS_PATH_STR(c[n - 1]), entry, err);
}

static int add_entries(struct build *b, struct optimfs_error *err)
{
	/* so many directories that the array need not grow */
	if (ofs_reserve(b->draft, 2 * (uint64_t)b->cat->nentries + 1, b->cap,
		err) == -1 ||
	    add_draft(b, 0, OFS_NONE, OFS_NONE, err) == -1)
		return -1;
	b->draft[0].name = "";
	for (uint32_t i = 0; i < b->cat->nentries; i++)
		if (b->cat->entries[i].tree != OFS_NONE &&
		    add_path(b, i, err) == -1)
			return -1;
	return 0;
}

/* Encode the string of each draft once. slot[s] is the index in names of the
 * encoded string s. */
static int encode(struct build *b, uint32_t *slot, const char **names,
    uint32_t *nnames, struct optimfs_error *err)
{
	char name[OFS_NAME_MAX + 1];
	struct ofs_str s;
	size_t len;

	*nnames = 0;
	memset(slot, 0xff, b->cat->nstrs * sizeof(*slot));
	for (uint32_t i = 1; i < b->n; i++) {
		struct ofs_tree_draft *d = &b->draft[i];

		if (slot[d->key] == OFS_NONE) {
			s = ofs_catalog_string(b->cat, d->key);
			len = ofs_name_encode(s.p, s.len, name);
			/* most need no encoding: use the catalog's string */
			names[*nnames] = s.p;
			if (len != s.len || memcmp(name, s.p, len) != 0)
				names[*nnames] =
				    ofs_arena_strndup(&b->tree->names, name,
					len);
			if (names[*nnames] == NULL)
				return ofs_no_memory(err);
			slot[d->key] = (*nnames)++;
		}
		d->name = names[slot[d->key]];
	}
	return 0;
}

/* order = the drafts of from, stably sorted by bucket, a number below nbuckets;
 * start is scratch space of nbuckets + 1 numbers. */
static void counting_sort(const uint32_t *from, uint32_t *order, uint32_t n,
    const uint32_t *bucket, uint32_t *start, uint32_t nbuckets)
{
	memset(start, 0, ((size_t)nbuckets + 1) * sizeof(*start));
	for (uint32_t i = 0; i < n; i++)
		start[bucket[from[i]] + 1]++;
	for (uint32_t i = 0; i < nbuckets; i++)
		start[i + 1] += start[i];
	for (uint32_t i = 0; i < n; i++)
		order[start[bucket[from[i]]]++] = from[i];
}

/* Sort all drafts but the root by parent, then by name, into order[1..n). */
static int sort_drafts(struct build *b, uint32_t *order,
    struct optimfs_error *err)
{
	size_t nstrs = b->cat->nstrs;
	uint32_t *slot = malloc(nstrs * sizeof(*slot) + 1);
	uint32_t *rank = malloc(nstrs * sizeof(*rank) + 1);
	const char **names = malloc(nstrs * sizeof(*names) + 1);
	uint32_t *bucket = calloc(b->n, sizeof(*bucket));
	uint32_t *by_name = malloc((size_t)b->n * sizeof(*by_name));
	uint32_t *start = NULL, nnames, nranks, most;
	int ret = -1;

	if (slot == NULL || rank == NULL || names == NULL || bucket == NULL ||
	    by_name == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	if (encode(b, slot, names, &nnames, err) == -1 ||
	    ofs_tree_rank(names, nnames, rank, &nranks, err) == -1)
		goto out;
	most = nranks > b->n ? nranks : b->n;
	start = malloc(((size_t)most + 1) * sizeof(*start));
	if (start == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	for (uint32_t i = 1; i < b->n; i++) {
		order[i] = i;
		bucket[i] = rank[slot[b->draft[i].key]];
	}
	counting_sort(order + 1, by_name + 1, b->n - 1, bucket, start, nranks);
	for (uint32_t i = 1; i < b->n; i++)
		bucket[i] = b->draft[i].parent;
	counting_sort(by_name + 1, order + 1, b->n - 1, bucket, start, b->n);
	ret = 0;
out:
	free(slot);
	free(rank);
	free(names);
	free(bucket);
	free(by_name);
	free(start);
	return ret;
}

/* Equal names are adjacent now, and few directories have any. */
static int collide(struct build *b, uint32_t *order, struct optimfs_error *err)
{
	uint32_t end;
	bool twice;

	for (uint32_t i = 1; i < b->n; i = end) {
		const struct ofs_tree_draft *d = b->draft;

		twice = false;
		for (end = i + 1;
		     end < b->n && d[order[end]].parent == d[order[i]].parent;
		     end++)
			if (strcmp(d[order[end]].name,
				d[order[end - 1]].name) == 0)
				twice = true;
		if (twice &&
		    ofs_tree_collide(b->tree, b->cat, b->draft, order + i,
			end - i, err) == -1)
			return -1;
	}
	return 0;
}

/* Turn drafts into nodes, in order. */
static int place(struct build *b, const uint32_t *order,
    struct optimfs_error *err)
{
	struct ofs_tree_node *node = ofs_alloc_huge(b->n * sizeof(*node));
	uint32_t *at = malloc((size_t)b->n * sizeof(*at));

	if (node == NULL || at == NULL) {
		free(node);
		free(at);
		return ofs_no_memory(err);
	}
	for (uint32_t i = 0; i < b->n; i++)
		at[order[i]] = i;
	for (uint32_t i = 0; i < b->n; i++)
		node[at[i]] = (struct ofs_tree_node){
			.name = b->draft[i].name,
			.parent = at[b->draft[i].parent],
			.entry = b->draft[i].entry,
		};
	for (uint32_t i = 1; i < b->n; i++) {
		struct ofs_tree_node *dir = &node[node[i].parent];

		if (dir->nchild++ == 0)
			dir->child = i;
	}
	free(at);
	b->tree->node = node;
	b->tree->n = b->n;
	return 0;
}

int ofs_tree_nodes(struct ofs_tree *tree, const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct build b = { .cat = cat, .tree = tree };
	uint32_t *order = NULL;
	int ret = -1;

	if (add_entries(&b, err) == -1)
		goto out;
	ofs_map_fini(&b.dirs);
	order = malloc((size_t)b.n * sizeof(*order));
	if (order == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	order[0] = 0;
	if (sort_drafts(&b, order, err) == -1 || collide(&b, order, err) == -1)
		goto out;
	ret = place(&b, order, err);
out:
	ofs_map_fini(&b.dirs);
	free(b.draft);
	free(b.last);
	free(order);
	return ret;
}
