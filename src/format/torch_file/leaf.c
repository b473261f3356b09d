/* leaf.c - a leaf of a pickled object, added as an entry */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/leaf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "derive/packed.h"

/* The deepest nesting of values that are searched; more than the parser's
 * limit. */
#define MAX_DEPTH 256

int ofs_torch_leaves_init(struct ofs_torch_leaves *l, struct ofs_catalog *cat,
    const struct ofs_pickle *doc, const struct ofs_torch_archive *at,
    struct optimfs_error *err)
{
	*l = (struct ofs_torch_leaves){ .cat = cat, .doc = doc, .at = at };
	if (at != NULL)
		l->nuse = at->zip != NULL ? at->zip->n : at->nstorage;
	l->use = calloc(l->nuse + 1, sizeof(*l->use));
	l->known = calloc(ofs_pickle_nodes(doc), sizeof(*l->known));
	if (l->use == NULL || l->known == NULL)
		return ofs_no_memory(err);
	return 0;
}

void ofs_torch_leaves_fini(struct ofs_torch_leaves *l)
{
	free(l->use);
	free(l->known);
	free(l->placed);
}

static const char *where(const struct ofs_torch_leaves *l)
{
	return l->at == NULL ? "pickle"
			     : l->cat->objects[l->at->at.object].path;
}

/* Find the extent and the number of the storage with this key; false when there
 * is none. */
static bool find_record(const struct ofs_torch_leaves *l, struct ofs_str key,
    struct ofs_extent *at, uint32_t *number)
{
	const struct ofs_zip *zip = l->at->zip;
	const struct ofs_zip_record *r = ofs_torch_record(zip, key);

	if (r == NULL)
		return false;
	*at = l->at->at;
	at->off += r->header;
	at->len = r->size;
	at->encoding = OFS_TORCH_RECORD;
	at->tag = ofs_zip_tag(zip, r);
	*number = (uint32_t)(r - zip->record);
	return true;
}

static int compare_key(const void *key, const void *item)
{
	const struct ofs_torch_storage *s = item;

	return ofs_str_compare(*(const struct ofs_str *)key, s->key);
}

static bool find_storage(const struct ofs_torch_leaves *l, struct ofs_str key,
    struct ofs_extent *at, uint32_t *number)
{
	const struct ofs_torch_storage *s;

	if (l->at->zip != NULL)
		return find_record(l, key, at, number);
	s = ofs_search(&key, l->at->storage, l->at->nstorage, sizeof(*s),
	    compare_key);
	if (s == NULL)
		return false;
	*at = l->at->at;
	at->off = s->off;
	at->len = s->len;
	at->encoding = OFS_RAW;
	*number = (uint32_t)(s - l->at->storage);
	return true;
}

static int missing(const struct ofs_torch_leaves *l, struct ofs_str key,
    struct optimfs_error *err)
{
	int n = (int)(key.len > 100 ? 100 : key.len);

	if (l->at != NULL && l->at->storage != NULL)
		return optimfs_fail(err, EIO,
		    "OFS672 storage '%.*s' is not in the stream, or has "
		    "another size than the object says",
		    n, key.p);
	return optimfs_fail(err, EIO,
	    "OFS434 storage '%.*s' is missing from the %s", n, key.p,
	    l->at != NULL && l->at->zip != NULL ? "archive" : "pickle");
}

int ofs_torch_place(struct ofs_torch_leaves *l,
    const struct ofs_torch_tensor *t, struct ofs_extent *at, uint32_t *number,
    struct optimfs_error *err)
{
	*number = OFS_NONE;
	if (l->at == NULL || !find_storage(l, t->key, at, number))
		return missing(l, t->key, err);
	if (l->at->at.codec != OFS_PLAIN)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS533 tensor inside a compressed value");
	return ofs_torch_check(t, at->len, err);
}

/* Record a use of a storage; a conflict with an earlier one is OFS435. */
static void note_use(struct ofs_torch_use *u, const struct ofs_torch_tensor *t)
{
	uint8_t dtype = t->typed ? t->dtype : OFS_DTYPE_NONE;

	if (u->seen && (u->dtype != dtype || u->bytes != t->storage_bytes))
		u->conflict = true;
	u->seen = true;
	u->dtype = dtype;
	u->bytes = t->storage_bytes;
}

static uint32_t add_view(struct ofs_torch_leaves *l,
    const struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	struct ofs_view v = { .offset = t->offset, .fix = t->fix };
	uint64_t stride[OFS_MAX_DIMS];

	for (unsigned i = 0; i < t->ndim; i++)
		stride[i] = (uint64_t)t->stride[i];
	v.numel = t->storage_bytes / ofs_dtype_size(t->dtype);
	v.stride = ofs_catalog_dims(l->cat, stride, t->ndim, err);
	return ofs_catalog_view(l->cat, &v, err);
}

int ofs_torch_view(struct ofs_torch_leaves *l, struct ofs_torch_tensor *t,
    uint32_t *view, struct optimfs_error *err)
{
	*view = OFS_NONE;
	if ((l->at->big_endian ||
		(l->at->zip != NULL && l->at->zip->big_endian)) &&
	    ofs_dtype_swap(t->dtype) > 1)
		t->fix |= OFS_FIX_SWAP;
	if (ofs_torch_is_plain(t))
		return 0;
	*view = add_view(l, t, err);
	return *view == OFS_NONE ? -1 : 0;
}

static int add_shard(struct ofs_torch_leaves *l, struct ofs_torch_tensor *t,
    const struct ofs_extent *at, struct optimfs_error *err)
{
	struct ofs_shard s = { .at = *at, .box = OFS_NONE };

	if (ofs_torch_view(l, t, &s.view, err) == -1)
		return -1;
	return ofs_catalog_shard(l->cat, &s, err) == OFS_NONE ? -1 : 0;
}

int ofs_torch_use(struct ofs_torch_leaves *l, const struct ofs_torch_tensor *t,
    uint32_t number, uint32_t tensor, struct optimfs_error *err)
{
	note_use(&l->use[number], t);
	if (ofs_grow(l->placed, l->nplaced, l->cap, err) == -1)
		return -1;
	l->placed[l->nplaced++] = (struct ofs_torch_placed){ tensor, number };
	return 0;
}

static int add_entry(struct ofs_torch_leaves *l, uint32_t path, uint8_t kind,
    uint32_t ref, struct optimfs_error *err)
{
	/* a legacy stream gets no new tensor */
	bool stays =
	    kind == OFS_ENTRY_TENSOR && l->at != NULL && l->at->zip == NULL;

	return ofs_catalog_add(l->cat, path, kind, ref,
	    stays ? OFS_KEY_STAYS : OFS_KEY_FREE, err);
}

/* why, when not NULL, is the error of the tensor. */
static int add_tensor(struct ofs_torch_leaves *l, struct ofs_torch_tensor *t,
    const struct optimfs_error *why, uint32_t *ref, struct optimfs_error *err)
{
	struct ofs_tensor x = { .ndim = t->ndim,
		.grid_ndim = t->ndim,
		.dtype = t->dtype,
		.error = OFS_NONE };
	struct optimfs_error reason = { 0 };
	struct ofs_extent at;
	uint32_t number = OFS_NONE;
	uint64_t numel;

	x.shape = x.grid = ofs_catalog_dims(l->cat, t->shape, t->ndim, err);
	if (why == NULL && ofs_torch_place(l, t, &at, &number, &reason) == -1)
		why = &reason;
	x.shard = l->cat->nshards;
	if (why != NULL) {
		x.error = ofs_catalog_error(l->cat, why, err);
	} else if (ofs_numel(t->shape, t->ndim, &numel) && numel > 0) {
		x.nshards = 1;
		if (add_shard(l, t, &at, err) == -1)
			return -1;
	}
	*ref = ofs_catalog_tensor(l->cat, &x, err);
	if (*ref == OFS_NONE)
		return -1;
	if (why == NULL && t->quantized &&
	    ofs_catalog_scale(l->cat,
		&(struct ofs_scale){ *ref, t->scale, t->zero_point },
		err) == OFS_NONE)
		return -1;
	return number == OFS_NONE ? 0 : ofs_torch_use(l, t, number, *ref, err);
}

int ofs_torch_damaged(struct ofs_torch_leaves *l,
    const struct optimfs_error *why, uint32_t *ref, struct optimfs_error *err)
{
	struct ofs_item item = { 0 };

	if (l->at != NULL)
		item.at = l->at->at;
	item.error = ofs_catalog_error(l->cat, why, err);
	*ref = ofs_catalog_item(l->cat, &item, err);
	return *ref == OFS_NONE ? -1 : 0;
}

/* Add the storage that a persistent id is for, so that a value with it can be
 * copied. */
static int add_inner(struct ofs_torch_leaves *l, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_inner_storage s = { .doc = l->doc, .node = node };
	struct ofs_torch_tensor t;

	if (ofs_torch_tensor(l->doc, node, &t, NULL) != 1)
		return 0;
	if (add_tensor(l, &t, NULL, &s.tensor, err) == -1)
		return -1;
	l->cat->tensors[s.tensor].flags |= OFS_TENSOR_INNER;
	return ofs_catalog_inner(l->cat, &s, err) == OFS_NONE ? -1 : 0;
}

/* A node of a value, and its next reference. */
struct level {
	uint32_t node, next;
};

/* Reference i of a node: arguments, state, items. OFS_NONE for some that do not
 * exist; false after the last. */
static bool reference(const struct ofs_pickle *doc, uint32_t node, uint32_t i,
    uint32_t *to)
{
	switch (i) {
	case 0:
		*to = ofs_pk_args(doc, node);
		return true;
	case 1:
		*to = ofs_pk_kwargs(doc, node);
		return true;
	case 2:
		*to = ofs_pk_state(doc, node);
		return true;
	default:
		i -= 3;
	}
	*to = ofs_pk_kind(doc, node) == OFS_PK_DICT ? ofs_pk_val(doc, node, i)
						    : ofs_pk_item(doc, node, i);
	return i < ofs_pk_len(doc, node);
}

/* Is node to be searched? 0: it was, or is a storage, which is added. */
static int is_new(struct ofs_torch_leaves *l, uint32_t node,
    struct optimfs_error *err)
{
	uint8_t *known = &l->known[node];

	if ((*known & OFS_TORCH_SEARCHED) != 0)
		return 0;
	*known |= OFS_TORCH_SEARCHED;
	if (ofs_pk_kind(l->doc, node) != OFS_PK_PERSID)
		return 1;
	*known |= OFS_TORCH_HIDES;
	return add_inner(l, node, err);
}

/* Find the storages inside a value. */
static int search(struct ofs_torch_leaves *l, uint32_t root,
    struct optimfs_error *err)
{
	struct level stack[MAX_DEPTH] = { { root, 0 } };
	int depth = is_new(l, root, err);

	while (depth > 0) {
		struct level *top = &stack[depth - 1];
		uint32_t to;
		int more;

		if (!reference(l->doc, top->node, top->next, &to)) {
			depth--;
			continue;
		}
		more = to == OFS_NONE || depth == MAX_DEPTH
		    ? 0
		    : is_new(l, to, err);
		if (more == -1)
			return -1;
		if (more == 1) {
			/* the reference is seen again when it was searched */
			stack[depth++] = (struct level){ to, 0 };
			continue;
		}
		if (to != OFS_NONE)
			l->known[top->node] |= l->known[to] & OFS_TORCH_HIDES;
		top->next++;
	}
	return depth;
}

static bool hides_tensor(const struct ofs_torch_leaves *l, uint32_t node)
{
	return (l->known[node] & OFS_TORCH_HIDES) != 0;
}

static int note_hidden(struct ofs_torch_leaves *l, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_str m, n;

	ofs_torch_class(l->doc, node, &m, &n);
	if (n.len == 0) { /* for example a list */
		n.p = ofs_pk_kind_name(l->doc, node);
		n.len = (uint32_t)strlen(n.p);
	}
	return ofs_catalog_note(l->cat, OFS_NOTE_WARNING, EOPNOTSUPP, err,
	    "OFS421 %s: tensors inside values of class %.*s%s%.*s are not "
	    "shown",
	    where(l), OFS_STR_ARGS(m, 100), m.len > 0 ? "." : "",
	    OFS_STR_ARGS(n, 100));
}

/* A value with tensors that only the checkpoint's own code could find gets no
 * text: it would silently omit them. */
static bool has_no_text(const struct ofs_torch_leaves *l, uint32_t node,
    struct optimfs_error *why)
{
	struct ofs_pk_global g = { 0 };
	struct ofs_str m, n;

	if (ofs_pk_kind(l->doc, node) != OFS_PK_OBJECT ||
	    !hides_tensor(l, node))
		return false;
	ofs_torch_class(l->doc, node, &m, &n);
	g.module = m;
	g.name = n;
	if (n.len == 0 || ofs_pk_global_allowed(&g))
		return false;
	optimfs_fail(why, EPERM,
	    "OFS110 a tensor is inside an object of class %.*s.%.*s, which is "
	    "not on the allow-list: optimfs runs nothing that a file names",
	    OFS_STR_ARGS(m, 60), OFS_STR_ARGS(n, 60));
	return true;
}

/* Add a value; *why is set if it is a tensor without a description. */
static int add_value(struct ofs_torch_leaves *l, uint32_t node,
    struct optimfs_error *why, uint8_t *kind, uint32_t *ref,
    struct optimfs_error *err)
{
	struct ofs_item *item;

	if (search(l, node, err) == -1)
		return -1;
	l->values = true;
	if (why->code != 0 || has_no_text(l, node, why)) {
		*kind = OFS_ENTRY_ITEM;
		if (ofs_torch_damaged(l, why, ref, err) == -1)
			return -1;
		item = &l->cat->items[*ref];
		item->doc = l->doc;
		item->node = node;
		return 0;
	}
	if (hides_tensor(l, node) && note_hidden(l, node, err) == -1)
		return -1;
	*kind = OFS_ENTRY_VALUE;
	*ref = ofs_catalog_value(l->cat, l->doc, node, err);
	return *ref == OFS_NONE ? -1 : 0;
}

static int note_quantized(struct ofs_torch_leaves *l, struct optimfs_error *err)
{
	if (l->quantized)
		return 0;
	l->quantized = true;
	return ofs_catalog_note(l->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS535 %s: quantized tensors are shown as the integers that "
	    "are stored: see user.optimfs.scale and .zero_point",
	    where(l));
}

/* Add a tensor of a kind that is not read, but copied with its storages. */
static int add_pickled(struct ofs_torch_leaves *l, uint32_t node,
    struct ofs_torch_tensor *t, const struct optimfs_error *why, uint32_t *ref,
    struct optimfs_error *err)
{
	struct ofs_pickled_tensor p = { .doc = l->doc, .node = node };

	if (search(l, node, err) == -1 || add_tensor(l, t, why, ref, err) == -1)
		return -1;
	l->values = true;
	p.tensor = *ref;
	return ofs_catalog_pickled(l->cat, &p, err) == OFS_NONE ? -1 : 0;
}

int ofs_torch_leaf_ref(struct ofs_torch_leaves *l, uint32_t node, uint8_t *kind,
    uint32_t *ref, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_torch_tensor t;
	int is = ofs_torch_tensor(l->doc, node, &t, &why);
	bool value = is == 0 ||
	    (is == -1 && t.dtype == OFS_DTYPE_NONE && why.code == EOPNOTSUPP);

	if (value)
		return add_value(l, node, &why, kind, ref, err);
	*kind = OFS_ENTRY_ITEM;
	if (is == -1 && t.dtype == OFS_DTYPE_NONE)
		return ofs_torch_damaged(l, &why, ref, err);
	*kind = OFS_ENTRY_TENSOR;
	if (is == -1 && why.code == EOPNOTSUPP)
		return add_pickled(l, node, &t, &why, ref, err);
	if (is == 1 && t.quantized && note_quantized(l, err) == -1)
		return -1;
	return add_tensor(l, &t, is == 1 ? NULL : &why, ref, err);
}

/* The last entry is a packed tensor: adds what it is in float32. */
static int add_packed(struct ofs_torch_leaves *l, struct ofs_torch_packed *t,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = l->cat;
	struct ofs_low_bit low = { .entry = cat->nentries - 1,
		.name = OFS_NONE };
	struct ofs_packed p = { .factor = OFS_NONE,
		.table = OFS_NONE,
		.nibbles = t->nibbles,
		.high_first = true,
		.rows = 1,
		.cols = t->numel,
		.block_rows = 1,
		.block_cols = t->block };
	struct ofs_tensor x;

	if (add_tensor(l, &t->codes, NULL, &p.codes, err) == -1 ||
	    add_tensor(l, &t->scale, NULL, &p.scale, err) == -1 ||
	    (t->has_table &&
		add_tensor(l, &t->table, NULL, &p.table, err) == -1))
		return -1;
	x = cat->tensors[p.codes];
	x.dtype = OFS_FLOAT32;
	x.ndim = x.grid_ndim = t->ndim;
	x.shape = x.grid = ofs_catalog_dims(cat, t->shape, t->ndim, err);
	low.tensor = ofs_catalog_tensor(cat, &x, err);
	return low.tensor == OFS_NONE ||
		ofs_packed_derive(cat, low.tensor, &p, err) == -1 ||
		ofs_catalog_low_bit(cat, &low, err) == OFS_NONE
	    ? -1
	    : 0;
}

int ofs_torch_leaf(struct ofs_torch_leaves *l, uint32_t node, uint32_t path,
    struct optimfs_error *err)
{
	struct ofs_torch_packed packed;
	uint32_t ref;
	uint8_t kind;

	if (ofs_torch_leaf_ref(l, node, &kind, &ref, err) == -1 ||
	    add_entry(l, path, kind, ref, err) == -1)
		return -1;
	return kind == OFS_ENTRY_ITEM && ofs_torch_packed(l->doc, node, &packed)
	    ? add_packed(l, &packed, err)
	    : 0;
}

int ofs_torch_leaves_end(struct ofs_torch_leaves *l, struct optimfs_error *err)
{
	struct optimfs_error why;
	uint32_t note;

	optimfs_fail(&why, EUCLEAN,
	    "OFS435 tensors disagree about the type or size of the storage "
	    "they share");
	for (size_t i = 0; i < l->nplaced; i++) {
		if (!l->use[l->placed[i].storage].conflict)
			continue;
		note = ofs_catalog_error(l->cat, &why, err);
		if (note == OFS_NONE)
			return -1;
		l->cat->tensors[l->placed[i].tensor].error = note;
	}
	return 0;
}
