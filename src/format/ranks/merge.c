/* merge.c - the leaves of all ranks at one path, merged to one entry */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/memory.h"
#include "format/ranks/copies.h"
#include "format/ranks/ranks.h"
#include "format/torch_file/sharded.h"
#include "text/text.h"

/* Up to this number, keys that some ranks lack are named one by one. */
#define MAX_NAMED 4096

static const struct ofs_pickle *doc_of(const struct ofs_ranks *set, uint32_t i)
{
	return set->file[set->leaf[i].file].doc;
}

static int rank_of(const struct ofs_ranks *set, uint32_t i)
{
	return set->file[set->leaf[i].file].rank;
}

static bool is_tensor(const struct ofs_ranks *set, uint32_t i)
{
	struct ofs_torch_tensor t;

	return ofs_torch_is_sharded(doc_of(set, i), set->leaf[i].node) ||
	    ofs_torch_tensor(doc_of(set, i), set->leaf[i].node, &t, NULL) != 0;
}

static bool is_sharded(const struct ofs_ranks *set,
    const struct ofs_ranks_group *g)
{
	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (ofs_torch_is_sharded(doc_of(set, i), set->leaf[i].node))
			return true;
	return false;
}

/* Plain values. */

struct value {
	struct ofs_ranks *set;
	uint32_t leaf;
};

/* Bytes are not read: the checksum of the archive, if it has any. */
static int storage_checksum(void *ctx, const struct ofs_pickle *doc,
    uint32_t node, uint64_t *hash, struct optimfs_error *err)
{
	const struct value *v = ctx;
	struct ofs_torch_tensor t;

	(void)err;
	if (ofs_torch_tensor(doc, node, &t, NULL) != 1)
		return 0;
	*hash = ofs_ranks_checksum(v->set, &v->set->leaf[v->leaf], &t);
	return *hash != 0;
}

/* The text of a value, or the reason why it has none; false when memory is
 * exhausted. */
static bool put_value(struct ofs_ranks *set, uint32_t i, struct ofs_buf *out)
{
	struct value v = { set, i };
	struct ofs_text_storages storages = { storage_checksum, NULL, &v };
	struct ofs_text_form form = { .storages = &storages };
	struct optimfs_error why = { 0 };

	*out = (struct ofs_buf){ 0 };
	if (ofs_text_value(doc_of(set, i), set->leaf[i].node, &form, out,
		&why) == -1)
		ofs_buf_printf(out, "%d %s", why.code, why.text);
	return !out->bad && why.code != ENOMEM;
}

static bool same_text(const struct ofs_buf *a, const struct ofs_buf *b)
{
	return a->len == b->len &&
	    (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Append "5 (rank 0), 6 (rank 1) ...". */
static void put_values(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct ofs_buf *out)
{
	for (uint32_t i = g->first; i < g->first + g->n && out->len < 300;
	     i++) {
		struct ofs_buf text;

		put_value(set, i, &text);
		if (text.len > 0 && text.data[text.len - 1] == '\n')
			text.len--;
		if (i > g->first)
			ofs_buf_puts(out, ", ");
		if (text.len > 0)
			ofs_buf_plain(out, (char *)text.data,
			    text.len < 40 ? text.len : 40);
		ofs_buf_printf(out, "%s (rank %d)", text.len > 40 ? "..." : "",
		    rank_of(set, i));
		ofs_buf_fini(&text);
	}
	ofs_buf_putc(out, '\0');
}

static int dispute_values(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	struct ofs_buf text = { 0 };
	struct optimfs_error why;

	if (ofs_ranks_is_own(set, g))
		return ofs_ranks_each(set, g, err);
	put_values(set, g, &text);
	optimfs_fail(&why, EPROTO,
	    "OFS674 ranks disagree: %s; .optimfs/rank/ has what each says",
	    text.bad ? "" : (char *)text.data);
	ofs_buf_fini(&text);
	return ofs_ranks_apart(set, g, &why, err);
}

static int add_first(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	const struct ofs_ranks_leaf *leaf = &set->leaf[g->first];

	return ofs_torch_leaf(&set->file[leaf->file].leaves, leaf->node,
	    leaf->path, err);
}

static int merge_values(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	struct ofs_buf first, other;
	bool done = put_value(set, g->first, &first), same = true;

	for (uint32_t i = g->first + 1; i < g->first + g->n && same && done;
	     i++) {
		done = put_value(set, i, &other);
		same = same_text(&first, &other);
		ofs_buf_fini(&other);
	}
	ofs_buf_fini(&first);
	if (!done)
		return ofs_no_memory(err);
	return same ? add_first(set, g, err) : dispute_values(set, g, err);
}

/* Plain tensors: each rank has the whole tensor. */

struct copy {
	struct ofs_torch_tensor t;
	struct ofs_extent at;
};

static int get_copy(struct ofs_ranks *set, uint32_t i, struct copy *c,
    struct optimfs_error *why)
{
	const struct ofs_ranks_leaf *leaf = &set->leaf[i];
	int is = ofs_ranks_tensor(set, leaf, leaf->node, &c->t, &c->at, why);

	if (is == 0)
		return optimfs_fail(why, EPROTO,
		    "OFS674 rank %d has no tensor here, others have; "
		    ".optimfs/rank/ has what each says",
		    rank_of(set, i));
	return is == 1 ? 0 : -1;
}

static int differ(int a, int b, const char *what, struct optimfs_error *why)
{
	return optimfs_fail(why, EPROTO,
	    "OFS674 tensors of rank %d and rank %d have different %s, and "
	    "nothing says how they belong together; .optimfs/rank/ has each",
	    a, b, what);
}

/* Can b be a copy of a? Bytes are not read. */
static int compare(struct ofs_ranks *set, uint32_t a, struct copy *x,
    uint32_t b, struct copy *y, struct optimfs_error *why)
{
	const char *what = NULL;

	if (x->t.dtype != y->t.dtype)
		what = "dtypes";
	else if (x->t.ndim != y->t.ndim ||
	    memcmp(x->t.shape, y->t.shape, x->t.ndim * sizeof(*x->t.shape)) !=
		0)
		what = "shapes";
	return what == NULL
	    ? 0
	    : differ(rank_of(set, a), rank_of(set, b), what, why);
}

static int note_copy(struct ofs_ranks *set, uint32_t i, struct copy *c,
    struct ofs_ranks_copies *copies, struct optimfs_error *err)
{
	const struct ofs_ranks_leaf *leaf = &set->leaf[i];

	return ofs_ranks_copies_add(copies, set, leaf, &c->t,
	    ofs_ranks_checksum(set, leaf, &c->t), OFS_NONE, err);
}

/* *doubt: only reading tells whether they are equal. Scalars are compared when
 * they are opened. *elements: only these differ. */
static int check_copies(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    struct copy *first, bool *doubt, bool *elements, struct optimfs_error *why)
{
	struct ofs_ranks_copies copies = { 0 };
	enum ofs_ranks_agree agree;
	struct copy c;
	int rank[2], ret = get_copy(set, g->first, first, why);

	if (ret == 0)
		ret = note_copy(set, g->first, first, &copies, why);
	for (uint32_t i = g->first + 1; i < g->first + g->n && ret == 0; i++)
		if (get_copy(set, i, &c, why) == -1 ||
		    compare(set, g->first, first, i, &c, why) == -1 ||
		    note_copy(set, i, &c, &copies, why) == -1)
			ret = -1;
	agree = ofs_ranks_copies_end(&copies, rank);
	*doubt = agree == OFS_RANKS_DOUBT && first->t.ndim > 0;
	*elements = ret == 0 && agree == OFS_RANKS_DIFFER;
	return *elements ? differ(rank[0], rank[1], "elements", why) : ret;
}

static int add_copies(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    const struct copy *first, bool doubt, struct optimfs_error *err)
{
	struct ofs_catalog *cat = set->cat;
	struct ofs_tensor t = { .ndim = first->t.ndim,
		.grid_ndim = first->t.ndim,
		.dtype = first->t.dtype,
		.error = OFS_NONE,
		.flags = (uint8_t)(OFS_TENSOR_COPIES |
		    (doubt ? OFS_TENSOR_DOUBT : 0)),
		.shard = cat->nshards };
	uint64_t numel;
	struct copy c;
	uint32_t ref;

	t.shape = t.grid =
	    ofs_catalog_dims(cat, first->t.shape, first->t.ndim, err);
	if (ofs_numel(first->t.shape, first->t.ndim, &numel) && numel > 0)
		t.nshards = g->n;
	for (uint32_t i = g->first; i < g->first + t.nshards; i++)
		if (get_copy(set, i, &c, err) == -1 ||
		    ofs_ranks_shard(set, &set->leaf[i], &c.t, &c.at, OFS_NONE,
			err) == -1)
			return -1;
	ref = ofs_catalog_tensor(cat, &t, err);
	if (ofs_catalog_add(cat, g->path, OFS_ENTRY_TENSOR, ref, OFS_KEY_STAYS,
		err) == -1)
		return -1;
	if (first->t.quantized &&
	    ofs_catalog_scale(cat,
		&(struct ofs_scale){ ref, first->t.scale, first->t.zero_point },
		err) == OFS_NONE)
		return -1;
	return 0;
}

/* Adds that of the first rank, and each below .optimfs/rank/. */
static int add_first_and_each(struct ofs_ranks *set,
    const struct ofs_ranks_group *g, struct optimfs_error *err)
{
	struct ofs_catalog *cat = set->cat;
	uint32_t first = cat->nvariants;

	ofs_catalog_note(cat, OFS_NOTE_WARNING, 0, err,
	    "OFS674 each rank has buffers of its own: those of rank %d are "
	    "shown; .optimfs/rank/ has each",
	    rank_of(set, g->first));
	if (ofs_ranks_variants(set, g, cat->nentries, err) == -1)
		return -1;
	return ofs_catalog_add(cat, g->path, cat->variants[first].kind,
	    cat->variants[first].ref, OFS_KEY_STAYS, err);
}

static int merge_tensors(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct copy first;
	bool doubt, elements;

	if (check_copies(set, g, &first, &doubt, &elements, &why) == -1 &&
	    why.code == ENOMEM)
		return optimfs_fail_with(err, &why);
	if (elements && set->local_buffers && !ofs_ranks_is_own(set, g))
		return add_first_and_each(set, g, err);
	if (why.code != 0)
		return why.code == EPROTO && ofs_ranks_is_own(set, g)
		    ? ofs_ranks_each(set, g, err)
		    : ofs_ranks_apart(set, g, &why, err);
	return add_copies(set, g, &first, doubt, err);
}

int ofs_ranks_merge_one(struct ofs_ranks *set, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	bool tensors = false;

	if (is_sharded(set, g))
		return ofs_ranks_join(set, g, err);
	if (g->n == 1)
		return add_first(set, g, err);
	for (uint32_t i = g->first; i < g->first + g->n && !tensors; i++)
		tensors = is_tensor(set, i);
	return tensors ? merge_tensors(set, g, err) : merge_values(set, g, err);
}

/* Keys of rank 0 that other ranks lack. */

/* Do ranks have different keys, like pipeline stages? */
static bool is_mpmd(const struct ofs_ranks *set)
{
	for (uint32_t i = 0; i < set->ngroups; i++)
		if (set->leaf[set->group[i].first].file != 0 &&
		    is_tensor(set, set->group[i].first))
			return true;
	return false;
}

static int note_key(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    const struct ofs_ranks_file *f, struct optimfs_error *err)
{
	uint32_t n;
	const uint32_t *part = ofs_catalog_components(set->cat, g->path, &n);
	struct ofs_buf name = { .limit = 1024 };
	int ret;

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(set->cat, part[i]);

		if (i > 0)
			ofs_buf_putc(&name, '.');
		ofs_buf_plain(&name, s.p, s.len);
	}
	ofs_buf_putc(&name, '\0');
	ret = ofs_catalog_note(set->cat, OFS_NOTE_MISSING, EUCLEAN, err,
	    "OFS182 rank %d has no %.300s, rank %d has", f->rank,
	    name.bad ? "such key" : (char *)name.data, set->file[0].rank);
	ofs_buf_fini(&name);
	return ret;
}

static int note_keys(struct ofs_ranks *set, const struct ofs_ranks_group *g,
    uint32_t *left, struct optimfs_error *err)
{
	uint32_t i = g->first;

	if (g->partial || set->leaf[i].file != 0 || !is_tensor(set, i))
		return 0;
	for (uint32_t f = 0; *left > 0 && f < set->nfiles; f++) {
		if (i < g->first + g->n && set->leaf[i].file == f) {
			i++;
			continue;
		}
		if (set->file[f].surplus || set->file[f].nleaves == 0)
			continue;
		--*left;
		if (note_key(set, g, &set->file[f], err) == -1)
			return -1;
	}
	return 0;
}

void ofs_ranks_ordered(struct ofs_ranks *set, uint32_t first, uint32_t end)
{
	const struct ofs_torch_file *f = &set->file[0].source;

	if (!f->is_zip || !f->zip.unordered)
		ofs_catalog_ordered(set->cat, first, end);
}

int ofs_ranks_merge(struct ofs_ranks *set, struct optimfs_error *err)
{
	uint32_t left = is_mpmd(set) ? 0 : MAX_NAMED;
	uint32_t first = set->cat->nentries, end = OFS_NONE;

	for (uint32_t i = 0; i < set->ngroups; i++) {
		struct ofs_ranks_group *g = &set->group[i];

		/* from here on the first file lacks them, and nothing says where
		 * they belong among its keys */
		if (end == OFS_NONE && set->leaf[g->first].file != 0)
			end = set->cat->nentries;
		if (g->taken)
			continue;
		if (ofs_ranks_merge_one(set, g, err) == -1 ||
		    note_keys(set, g, &left, err) == -1)
			return -1;
	}
	ofs_ranks_ordered(set, first,
	    end == OFS_NONE ? set->cat->nentries : end);
	return 0;
}
