/* read.c - the rank files of one job, joined */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/keys.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/step.h"
#include "format/ranks/ranks.h"
#include "format/torch_file/sharded.h"
#include "format/torch_file/walk.h"

/* Collecting. */

struct collector {
	struct ofs_ranks *set;
	uint32_t file;
};

/* Note rank and world from a ShardedTensor or a DTensor that can be read. */
static int listen(struct ofs_ranks_file *f, uint32_t node,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_torch_sharded s;

	if (f->said_world != 0 || !ofs_torch_is_sharded(f->doc, node))
		return 0;
	if (ofs_torch_sharded(f->doc, node, &s, &why) == -1)
		return why.code == ENOMEM ? optimfs_fail_with(err, &why) : 0;
	f->said_world = s.world;
	f->said_part = s.part;
	f->said_rank = s.rank;
	ofs_torch_sharded_fini(&s);
	return 0;
}

int ofs_ranks_leaf(struct ofs_ranks *set, uint32_t path, uint32_t file,
    uint32_t node, struct optimfs_error *err)
{
	if (set->nleaves > UINT32_MAX / 2)
		return optimfs_fail(err, E2BIG,
		    "OFS624 too many leaves in one set of files");
	if (ofs_grow(set->leaf, set->nleaves, set->leaf_cap, err) == -1)
		return -1;
	set->leaf[set->nleaves++] = (struct ofs_ranks_leaf){ path, file, node };
	return 0;
}

static int collect(void *ctx, uint32_t path, uint32_t node,
    struct optimfs_error *err)
{
	struct collector *c = ctx;
	struct ofs_ranks_file *f = &c->set->file[c->file];

	if (ofs_ranks_leaf(c->set, path, c->file, node, err) == -1)
		return -1;
	f->nleaves++;
	return listen(f, node, err);
}

int ofs_ranks_begin(struct ofs_ranks *set, struct ofs_catalog *cat, size_t n,
    struct optimfs_error *err)
{
	*set = (struct ofs_ranks){ .cat = cat, .expected = n };
	set->file = calloc(n + 1, sizeof(*set->file));
	return set->file == NULL ? ofs_no_memory(err) : 0;
}

int ofs_ranks_open(struct ofs_ranks *set, const char *rel, int rank, bool bare,
    struct optimfs_error *err)
{
	struct ofs_ranks_file *f = &set->file[set->nfiles];

	*f = (struct ofs_ranks_file){
		.rel = rel, .rank = rank, .said_rank = -1
	};
	if (ofs_step(set->cat->dir.watch, "reading the files of ranks",
		set->nfiles, set->expected, err) == -1 ||
	    ofs_torch_file_open(&f->source, set->cat, rel, rank, bare, err) ==
		-1)
		return -1;
	f->doc = f->source.doc;
	f->at = f->source.at;
	set->nfiles++;
	return ofs_torch_leaves_init(&f->leaves, set->cat, f->doc, &f->at, err);
}

bool ofs_ranks_must_fail(const struct optimfs_error *why)
{
	return ofs_must_stop(why) || why->code == E2BIG;
}

int ofs_ranks_try(struct ofs_ranks *set, const char *rel, int rank, bool bare,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	uint32_t object;

	if (ofs_ranks_open(set, rel, rank, bare, &why) == 0)
		return 0;
	if (ofs_ranks_must_fail(&why))
		return optimfs_fail_with(err, &why);
	if (set->ndamaged == 0)
		set->why = why;
	object = ofs_catalog_object(set->cat, rel, rank, err);
	if (object == OFS_NONE ||
	    ofs_grow(set->damaged, set->ndamaged, set->damaged_cap, err) == -1)
		return -1;
	set->cat->objects[object].damaged = true;
	set->damaged[set->ndamaged++] = rank;
	if (ofs_catalog_note_as(set->cat, OFS_NOTE_MISSING, &why, err) == -1)
		return -1;
	return 1;
}

int ofs_ranks_collect(struct ofs_ranks *set, uint32_t file, uint32_t node,
    const uint32_t *prefix, size_t npref, struct optimfs_error *err)
{
	struct collector c = { set, file };

	if (ofs_torch_walk(set->cat, set->file[file].doc, node, prefix, npref,
		collect, &c, err) == 0)
		return 0;
	return optimfs_fail_in(err, "%s", set->file[file].rel);
}

/* Grouping. */

static bool is_empty(const struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf)
{
	const struct ofs_pickle *doc = set->file[leaf->file].doc;

	return ofs_pk_kind(doc, leaf->node) == OFS_PK_DICT &&
	    ofs_pk_len(doc, leaf->node) == 0;
}

/* The first n components of the leaf's path; n 0: all. */
static struct ofs_str path_key(const struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, uint32_t n)
{
	uint32_t all;
	const uint32_t *c = ofs_catalog_components(set->cat, leaf->path, &all);

	return (struct ofs_str){ (const char *)c,
		(n == 0 ? all : n) * (uint32_t)sizeof(*c) };
}

/* Marks which paths have others below them. */
static void mark_filled(const struct ofs_ranks *set,
    const struct ofs_keys *empty, bool *filled)
{
	for (uint32_t i = 0; i < set->nleaves; i++) {
		uint32_t n, at;

		ofs_catalog_components(set->cat, set->leaf[i].path, &n);
		while (n-- > 1) {
			struct ofs_str key = path_key(set, &set->leaf[i], n);

			at = ofs_keys_find(empty, key.p, key.len);
			if (at != OFS_NONE)
				filled[at] = true;
		}
	}
}

/* A dict that is empty on one rank, such as the model where only rank 0 has it,
 * is the one that has items on another. */
static int drop_empty(struct ofs_ranks *set, struct optimfs_error *err)
{
	struct ofs_keys empty = { 0 };
	bool *filled = NULL;
	uint32_t n = 0;
	int ret = 0;

	for (uint32_t i = 0; i < set->nleaves && ret == 0; i++)
		if (is_empty(set, &set->leaf[i]) &&
		    ofs_keys_add(&empty, path_key(set, &set->leaf[i], 0),
			err) == OFS_NONE)
			ret = -1;
	if (ret == 0 && empty.n > 0) {
		filled = calloc(empty.n, sizeof(*filled));
		ret = filled == NULL ? ofs_no_memory(err) : 0;
	}
	if (filled != NULL)
		mark_filled(set, &empty, filled);
	for (uint32_t i = 0; i < set->nleaves && filled != NULL; i++) {
		struct ofs_ranks_leaf leaf = set->leaf[i];
		struct ofs_str key = path_key(set, &leaf, 0);

		if (is_empty(set, &leaf) &&
		    filled[ofs_keys_find(&empty, key.p, key.len)])
			set->file[leaf.file].nleaves--;
		else
			set->leaf[n++] = leaf;
	}
	if (filled != NULL)
		set->nleaves = n;
	free(filled);
	ofs_keys_fini(&empty);
	return ret;
}

/* Keys of different kinds may give a file the same path twice: then the first
 * ones of all files are a group, and the second ones. */
struct order {
	struct ofs_ranks_leaf leaf;
	uint32_t nth, seq;
};

static int by_path(const void *va, const void *vb)
{
	const struct order *a = va, *b = vb;

	if (a->leaf.path != b->leaf.path)
		return OFS_ORDER(a->leaf.path, b->leaf.path);
	if (a->nth != b->nth)
		return OFS_ORDER(a->nth, b->nth);
	if (a->leaf.file != b->leaf.file)
		return OFS_ORDER(a->leaf.file, b->leaf.file);
	return OFS_ORDER(a->seq, b->seq);
}

static void number(struct order *o, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (o[i].leaf.path == o[i - 1].leaf.path &&
		    o[i].leaf.file == o[i - 1].leaf.file)
			o[i].nth = o[i - 1].nth + 1;
}

static struct order *sort_leaves(const struct ofs_ranks *set)
{
	struct order *o = calloc((size_t)set->nleaves + 1, sizeof(*o));

	if (o == NULL)
		return NULL;
	for (uint32_t i = 0; i < set->nleaves; i++)
		o[i] = (struct order){ .leaf = set->leaf[i], .seq = i };
	qsort(o, set->nleaves, sizeof(*o), by_path);
	number(o, set->nleaves);
	qsort(o, set->nleaves, sizeof(*o), by_path);
	return o;
}

/* The group that begins with leaf i. */
static struct ofs_ranks_group group_at(const struct ofs_ranks *set,
    const struct order *o, uint32_t i)
{
	struct ofs_ranks_group g = { .path = o[i].leaf.path, .first = i };

	while (i < set->nleaves && o[i].leaf.path == g.path &&
	    o[i].nth == o[g.first].nth)
		i++;
	g.n = i - g.first;
	return g;
}

/* A group has the place of the leaf of its first file. at has room for a number
 * per leaf. */
static void make_groups(struct ofs_ranks *set, const struct order *o,
    uint32_t *at)
{
	for (uint32_t i = 0; i < set->nleaves; i++)
		at[i] = OFS_NONE;
	for (uint32_t i = 0; i < set->nleaves; i += group_at(set, o, i).n)
		at[o[i].seq] = i;
	for (uint32_t i = 0; i < set->nleaves; i++)
		if (at[i] != OFS_NONE)
			set->group[set->ngroups++] = group_at(set, o, at[i]);
	for (uint32_t i = 0; i < set->nleaves; i++)
		set->leaf[i] = o[i].leaf;
}

int ofs_ranks_group(struct ofs_ranks *set, struct optimfs_error *err)
{
	struct order *o;
	uint32_t *at;
	int ret = 0;

	if (drop_empty(set, err) == -1)
		return -1;
	o = sort_leaves(set);
	at = malloc(((size_t)set->nleaves + 1) * sizeof(*at));
	set->group = calloc((size_t)set->nleaves + 1, sizeof(*set->group));
	if (o == NULL || at == NULL || set->group == NULL)
		ret = ofs_no_memory(err);
	else
		make_groups(set, o, at);
	free(at);
	free(o);
	return ret;
}

/* Functions for the merge. */

int ofs_ranks_tensor(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at,
    struct optimfs_error *err)
{
	struct ofs_ranks_file *f = &set->file[leaf->file];
	int is = ofs_torch_tensor(f->doc, node, t, err);
	uint32_t number;

	if (is != 1)
		return is;
	return ofs_torch_place(&f->leaves, t, at, &number, err) == -1 ? -1 : 1;
}

uint32_t ofs_ranks_checksum(struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t)
{
	struct ofs_ranks_file *f = &set->file[leaf->file];
	const struct ofs_zip *zip = f->at.zip;
	struct ofs_extent at;
	uint32_t number;

	if (zip == NULL || zip->big_endian || t->ndim == 0 ||
	    !ofs_torch_is_plain(t) ||
	    ofs_torch_place(&f->leaves, t, &at, &number, NULL) == -1)
		return 0;
	return zip->record[number].crc;
}

int ofs_ranks_shard(struct ofs_ranks *set, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at, uint32_t box,
    struct optimfs_error *err)
{
	struct ofs_ranks_file *f = &set->file[leaf->file];
	struct ofs_shard s = { .at = *at, .box = box };
	struct ofs_extent again;
	uint32_t number;

	if (ofs_torch_place(&f->leaves, t, &again, &number, err) == -1 ||
	    ofs_torch_use(&f->leaves, t, number, set->cat->ntensors, err) ==
		-1 ||
	    ofs_torch_view(&f->leaves, t, &s.view, err) == -1)
		return -1;
	return ofs_catalog_shard(set->cat, &s, err) == OFS_NONE ? -1 : 0;
}

int ofs_ranks_variants(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    uint32_t entry, struct optimfs_error *err)
{
	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		const struct ofs_ranks_leaf *leaf = &set->leaf[i];
		struct ofs_ranks_file *f = &set->file[leaf->file];
		struct ofs_variant v = { .entry = entry, .rank = f->rank };

		if (ofs_torch_leaf_ref(&f->leaves, leaf->node, &v.kind, &v.ref,
			err) == -1 ||
		    ofs_catalog_variant(set->cat, &v, err) == OFS_NONE)
			return -1;
	}
	return 0;
}

int ofs_ranks_apart(struct ofs_ranks *set, struct ofs_ranks_group *group,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_ranks_file *f = &set->file[set->leaf[group->first].file];
	uint32_t entry = set->cat->nentries, ref;

	group->taken = true;
	if (ofs_torch_damaged(&f->leaves, why, &ref, err) == -1 ||
	    ofs_catalog_add(set->cat, group->path, OFS_ENTRY_ITEM, ref,
		OFS_KEY_FREE, err) == -1)
		return -1;
	return ofs_ranks_variants(set, group, entry, err);
}

int ofs_ranks_value(struct ofs_ranks *set, uint32_t path, struct ofs_buf *b,
    struct optimfs_error *err)
{
	if (b->bad) {
		ofs_buf_fini(b);
		return ofs_no_memory(err);
	}
	return ofs_catalog_add(set->cat, path, OFS_ENTRY_VALUE,
	    ofs_catalog_pickle(set->cat, b->data, b->len, err), OFS_KEY_FIXED,
	    err);
}

/* The catalog takes over documents that values refer to. */
int ofs_ranks_end(struct ofs_ranks *set, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < set->nfiles; i++) {
		struct ofs_ranks_file *f = &set->file[i];

		if (ofs_torch_leaves_end(&f->leaves, err) == -1)
			return -1;
		if (!f->leaves.values)
			continue;
		if (ofs_catalog_doc(set->cat, f->source.doc, err) == OFS_NONE)
			return -1;
		f->source.doc = NULL;
	}
	return 0;
}

void ofs_ranks_fini(struct ofs_ranks *set)
{
	for (uint32_t i = 0; i < set->nfiles; i++) {
		ofs_torch_leaves_fini(&set->file[i].leaves);
		ofs_torch_file_fini(&set->file[i].source);
	}
	free(set->file);
	free(set->leaf);
	free(set->group);
	free(set->damaged);
}
