/* merge.c - the catalog with staged changes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rewrite/rewrite_impl.h"

/* Components of a path; the deepest mountable tree has fewer. */
#define OFS_MERGE_DEPTH 256

struct merge {
	struct ofs_reader *reader;
	const struct ofs_catalog *base;
	struct ofs_overlay *overlay;
	struct ofs_commit names; /* source of the tasks */
	struct ofs_merged *m;
	struct ofs_catalog *cat;
	uint32_t *entry; /* new index of each entry of base, or OFS_NONE */
	const struct ofs_commit_task *
	    *task; /* task of each entry that is set or dropped */

	struct optimfs_error *err;
};

static uint32_t path_of(struct merge *x, const struct ofs_key *key, uint32_t n)
{
	uint32_t c[OFS_MERGE_DEPTH];

	if (n > OFS_MERGE_DEPTH) {
		optimfs_fail(x->err, E2BIG, "a path of %u components", n);
		return OFS_NONE;
	}
	for (uint32_t i = 0; i < n; i++)
		c[i] = key[i].index |
		    ofs_catalog_str(x->cat, key[i].s.p, key[i].s.len, x->err);
	return ofs_catalog_path(x->cat, c, n, x->err);
}

/* The path in the tree. Items of lists and tuples are those of the path in the
 * source, which ends alike. */
static uint32_t tree_of(struct merge *x, const struct ofs_commit_task *t)
{
	const struct ofs_change *ch = t->change;
	struct ofs_key key[OFS_MERGE_DEPTH];

	if (ch->nkeys > OFS_MERGE_DEPTH) {
		optimfs_fail(x->err, E2BIG, "a path of %u components",
		    ch->nkeys);
		return OFS_NONE;
	}
	for (uint32_t i = 0; i < ch->nkeys; i++)
		key[i] = (struct ofs_key){
			{ ch->key[i], (uint32_t)strlen(ch->key[i]) }, 0
		};
	for (uint32_t i = ch->nkeys, k = t->npath;
	     i > 0 && k > 0 && ofs_str_equal(key[i - 1].s, t->path[k - 1].s);
	     i--, k--)
		key[i - 1].index = t->path[k - 1].index;
	return path_of(x, key, ch->nkeys);
}

/* Adds a value; takes its document from the task. */
static uint32_t add_value(struct merge *x, struct ofs_commit_task *t)
{
	struct ofs_pickle *doc = t->doc;

	if (ofs_catalog_doc(x->cat, doc, x->err) == OFS_NONE)
		return OFS_NONE;
	t->doc = NULL;
	return ofs_catalog_value(x->cat, doc, ofs_pickle_root(doc), x->err);
}

/* The bytes of an added tensor: staged, or the element that its text is. */
static struct ofs_overlay_file *staged(struct merge *x,
    const struct ofs_commit_task *t)
{
	struct ofs_merged *m = x->m;
	struct ofs_overlay_file *f;

	if (!t->text)
		return ofs_overlay_of_node(x->overlay, t->change->node);
	if (ofs_grow(m->element, m->nelements, m->element_cap, x->err) == -1)
		return NULL;
	f = ofs_overlay_element(t->element, x->err);
	if (f != NULL)
		m->element[m->nelements++] = f;
	return f;
}

static uint32_t add_tensor(struct merge *x, const struct ofs_commit_task *t)
{
	struct ofs_tensor new = { .dtype = t->dtype,
		.ndim = t->ndim,
		.grid_ndim = t->ndim,
		.error = OFS_NONE,
		.index = OFS_NONE,
		.shard = x->cat->nshards };
	uint32_t index = x->cat->ntensors - x->m->ntensors;

	new.shape = new.grid =
	    ofs_catalog_dims(x->cat, t->shape, t->ndim, x->err);
	if (ofs_reserve(x->m->staged, index + 1ull, x->m->staged_cap, x->err) ==
	    -1)
		return OFS_NONE;
	x->m->staged[index] = staged(x, t);
	if (t->text && x->m->staged[index] == NULL)
		return OFS_NONE;
	return ofs_catalog_tensor(x->cat, &new, x->err);
}

static int add_new(struct merge *x, struct ofs_commit_task *t)
{
	struct ofs_entry e = { .kind = OFS_ENTRY_TENSOR };

	e.path = path_of(x, t->path, t->npath);
	e.tree = tree_of(x, t);
	if (e.path == OFS_NONE || e.tree == OFS_NONE)
		return -1;
	if (t->doc != NULL) {
		e.kind = OFS_ENTRY_VALUE;
		e.ref = add_value(x, t);
	} else if (t->from != NULL &&
	    ofs_commit_tensor(&x->names, t->change) != NULL) {
		e.ref = t->from->ref;
	} else {
		e.ref = add_tensor(x, t);
	}
	if (e.ref == OFS_NONE)
		return -1;
	return ofs_catalog_entry(x->cat, &e, x->err) == OFS_NONE ? -1 : 0;
}

/* Copies the entries that stay, in their order. */
static int keep_entries(struct merge *x)
{
	const struct ofs_catalog *base = x->base;

	for (uint32_t i = 0; i < base->nentries; i++) {
		struct ofs_entry e = base->entries[i];
		struct ofs_commit_task *t =
		    (struct ofs_commit_task *)(uintptr_t)x->task[i];

		x->entry[i] = OFS_NONE;
		if (t != NULL && t->op == OFS_TASK_DROP)
			continue;
		if (t != NULL && t->doc != NULL) {
			e.kind = OFS_ENTRY_VALUE;
			e.ref = add_value(x, t);
			if (e.ref == OFS_NONE)
				return -1;
		}
		x->entry[i] = ofs_catalog_entry(x->cat, &e, x->err);
		if (x->entry[i] == OFS_NONE)
			return -1;
	}
	for (uint32_t i = 0; i < base->nvariants; i++) {
		struct ofs_variant v = base->variants[i];

		if (x->entry[v.entry] == OFS_NONE)
			continue;
		v.entry = x->entry[v.entry];
		if (ofs_catalog_variant(x->cat, &v, x->err) == OFS_NONE)
			return -1;
	}
	return 0;
}

static int merge(struct merge *x)
{
	struct ofs_commit *n = &x->names;

	for (size_t i = 0; i < n->ntasks; i++)
		if (n->task[i].entry != NULL)
			x->task[n->task[i].entry - x->base->entries] =
			    &n->task[i];
	if (keep_entries(x) == -1)
		return -1;
	for (size_t i = 0; i < n->ntasks; i++)
		if (n->task[i].op == OFS_TASK_ADD &&
		    add_new(x, &n->task[i]) == -1)
			return -1;
	ofs_catalog_seal(x->cat);
	return 0;
}

static int make(struct merge *x, const struct ofs_changes *changes)
{
	uint32_t n = x->base->nentries;
	int ret = -1;

	x->names = (struct ofs_commit){ .reader = x->reader,
		.cat = x->base,
		.changes = changes,
		.lenient = true };
	x->entry = calloc((size_t)n + 1, sizeof(*x->entry));
	x->task = calloc((size_t)n + 1, sizeof(*x->task));
	x->cat = ofs_catalog_copy(x->base, x->err);
	x->m->cat = x->cat;
	if (x->entry == NULL || x->task == NULL)
		ofs_no_memory(x->err);
	else if (x->cat != NULL && ofs_commit_place(&x->names, x->err) == 0)
		ret = merge(x);
	ofs_commit_place_fini(&x->names);
	ofs_arena_fini(&x->names.arena);
	free(x->entry);
	free(x->task);
	return ret;
}

struct ofs_merged *ofs_merge(struct ofs_reader *reader,
    struct ofs_overlay *overlay, struct optimfs_error *err)
{
	struct ofs_changes changes;
	struct merge x = { .reader = reader,
		.base = reader->cat,
		.overlay = overlay,
		.err = err };
	int ret;

	if (ofs_overlay_changes(overlay, &changes, err) == -1)
		return NULL;
	x.m = calloc(1, sizeof(*x.m));
	if (x.m == NULL) {
		ofs_changes_free(&changes);
		ofs_no_memory(err);
		return NULL;
	}
	atomic_init(&x.m->refs, 1);
	x.m->ntensors = reader->cat->ntensors;
	ret = make(&x, &changes);
	ofs_changes_free(&changes);
	if (ret == 0)
		return x.m;
	ofs_merged_unref(x.m);
	return NULL;
}

struct ofs_merged *ofs_merged_ref(struct ofs_merged *m)
{
	atomic_fetch_add(&m->refs, 1);
	return m;
}

void ofs_merged_unref(struct ofs_merged *m)
{
	if (m == NULL || atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	ofs_catalog_free(m->cat);
	for (size_t i = 0; i < m->nelements; i++)
		ofs_overlay_file_free(m->element[i]);
	free(m->element);
	free(m->staged);
	free(m);
}
