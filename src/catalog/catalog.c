/* catalog.c - a catalog from its first tensor to its end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/catalog.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/catalog_impl.h"
#include "catalog/check.h"
#include "catalog/shards.h"
#include "pickle/pickle.h"

static void release_build(struct ofs_catalog *cat)
{
	struct ofs_catalog_build *b = cat->build;

	if (b == NULL)
		return;
	ofs_map_fini(&b->strs);
	ofs_map_fini(&b->paths);
	ofs_map_fini(&b->dims);
	ofs_map_fini(&b->notes);
	free(b);
	cat->build = NULL;
}

int ofs_catalog_leave(struct ofs_catalog *cat, const char *path,
    enum ofs_left_kind kind, const char *why, struct optimfs_error *err)
{
	struct ofs_left left = {
		.path = ofs_arena_strndup(&cat->arena, path, strlen(path)),
		.why = ofs_arena_strndup(&cat->arena, why, strlen(why)),
		.kind = kind,
	};

	if (left.path == NULL || left.why == NULL)
		ofs_catalog_no_memory(cat, err);
	return ofs_catalog_append(cat, OFS_LEFTS, &left, 1, err) == OFS_NONE
	    ? -1
	    : 0;
}

void ofs_catalog_free(struct ofs_catalog *cat)
{
	if (cat == NULL)
		return;
	release_build(cat);
	for (uint32_t i = 0; i < cat->nkept; i++)
		cat->kept[i].release(cat->kept[i].p);
	for (uint32_t i = 0; i < cat->ndocs; i++)
		ofs_pickle_free(cat->docs[i]);
	ofs_catalog_drop(cat);
	ofs_map_fini(&cat->by_path);
	ofs_arena_fini(&cat->arena);
	ofs_dir_close(&cat->dir);
	free(cat);
}

int ofs_catalog_keep(struct ofs_catalog *cat, void *p, void (*release)(void *p),
    struct optimfs_error *err)
{
	const struct ofs_kept kept = { p, release };

	if (ofs_catalog_append(cat, OFS_KEPT, &kept, 1, err) != OFS_NONE)
		return 0;
	release(p);
	return -1;
}

static bool init_arrays(struct ofs_catalog *cat)
{
	for (enum ofs_catalog_array a = 0; a < OFS_NARRAYS; a++)
		if (!ofs_catalog_reserve(cat, a, 1))
			return false;
	return true;
}

struct ofs_catalog *ofs_catalog_new(struct ofs_dir *dir,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = calloc(1, sizeof(*cat));

	if (cat == NULL ||
	    (cat->build = calloc(1, sizeof(*cat->build))) == NULL)
		goto fail;
	cat->dir.fd = -1;
	if (!init_arrays(cat))
		goto fail;
	cat->dir = *dir;
	*dir = (struct ofs_dir){ .fd = -1 };
	ofs_access_init(cat, &cat->access);
	return cat;
fail:
	ofs_catalog_free(cat);
	ofs_no_memory(err);
	return NULL;
}

/* The functions that add one item to an array. */
#define ADD(name, array, type)                                              \
 uint32_t ofs_catalog_##name(struct ofs_catalog *cat, const struct type *v, \
     struct optimfs_error *err)                                             \
 {                                                                          \
  return ofs_catalog_append(cat, array, v, 1, err);                         \
 }

ADD(shard, OFS_SHARDS, ofs_shard)
ADD(view, OFS_VIEWS, ofs_view)
ADD(tensor, OFS_TENSORS, ofs_tensor)
ADD(item, OFS_ITEMS, ofs_item)
ADD(entry, OFS_ENTRIES, ofs_entry)
ADD(variant, OFS_VARIANTS, ofs_variant)
ADD(scale, OFS_SCALES, ofs_scale)
ADD(inner, OFS_INNER, ofs_inner_storage)
ADD(pickled, OFS_PICKLED, ofs_pickled_tensor)
ADD(derived, OFS_DERIVATIONS, ofs_derived)
ADD(low_bit, OFS_LOW_BITS, ofs_low_bit)

int ofs_catalog_expect(struct ofs_catalog *cat, uint32_t ntensors,
    uint32_t nshards, struct optimfs_error *err)
{
	struct ofs_catalog_build *b = cat->build;

	if (!ofs_catalog_reserve(cat, OFS_SHARDS,
		(uint64_t)cat->nshards + nshards) ||
	    !ofs_catalog_reserve(cat, OFS_TENSORS,
		(uint64_t)cat->ntensors + ntensors) ||
	    !ofs_catalog_reserve(cat, OFS_ENTRIES,
		(uint64_t)cat->nentries + ntensors) ||
	    !ofs_catalog_reserve(cat, OFS_STRS,
		(uint64_t)cat->nstrs + ntensors) ||
	    !ofs_map_reserve(&b->strs, b->strs.n + ntensors) ||
	    !ofs_map_reserve(&b->paths, b->paths.n + ntensors))
		return ofs_no_memory(err);
	return 0;
}

uint32_t ofs_catalog_value(struct ofs_catalog *cat,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err)
{
	struct ofs_value v = { doc, node, OFS_NONE };

	return ofs_catalog_append(cat, OFS_VALUES, &v, 1, err);
}

int ofs_catalog_add(struct ofs_catalog *cat, uint32_t path,
    enum ofs_entry_kind kind, uint32_t ref, enum ofs_entry_key key,
    struct optimfs_error *err)
{
	struct ofs_entry e = {
		.path = path,
		.tree = OFS_NONE,
		.ref = ref,
		.kind = (uint8_t)kind,
		.key = (uint8_t)key,
	};

	if (path == OFS_NONE || ref == OFS_NONE)
		return -1;
	return ofs_catalog_entry(cat, &e, err) == OFS_NONE ? -1 : 0;
}

void ofs_catalog_ordered(struct ofs_catalog *cat, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++)
		cat->entries[i].order =
		    i == first ? OFS_ORDER_FIRST : OFS_ORDER_NEXT;
}

static struct ofs_str last_key(const struct ofs_catalog *cat, uint32_t entry)
{
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(cat, cat->entries[entry].path, &n);

	return n == 0 ? (struct ofs_str){ "", 0 }
		      : ofs_catalog_string(cat, OFS_PATH_STR(c[n - 1]));
}

enum ofs_evidence ofs_catalog_evidence(const struct ofs_catalog *cat,
    uint32_t first, uint32_t last)
{
	struct ofs_str before = last_key(cat, first);
	bool sorted = true;

	if (cat->entries[first].order == OFS_ORDER_NONE)
		return OFS_UNORDERED;
	for (uint32_t i = first + 1; i <= last; i++) {
		struct ofs_str key = last_key(cat, i);

		if (cat->entries[i].order != OFS_ORDER_NEXT)
			return OFS_UNORDERED;
		sorted = sorted && ofs_str_compare(before, key) <= 0;
		before = key;
	}
	return sorted ? OFS_SORTED : OFS_IN_ORDER;
}

uint32_t ofs_catalog_alias(struct ofs_catalog *cat, uint32_t path,
    uint32_t target, struct optimfs_error *err)
{
	struct ofs_alias a = { path, target };

	return ofs_catalog_append(cat, OFS_ALIASES, &a, 1, err);
}

uint32_t ofs_catalog_doc(struct ofs_catalog *cat, struct ofs_pickle *doc,
    struct optimfs_error *err)
{
	uint32_t i = ofs_catalog_append(cat, OFS_DOCS, &doc, 1, err);

	if (i != OFS_NONE && doc != NULL)
		cat->parsed += ofs_pickle_memory(doc);
	return i;
}

uint32_t ofs_catalog_pickle(struct ofs_catalog *cat, uint8_t *bytes, uint64_t n,
    struct optimfs_error *err)
{
	struct ofs_pickle *doc =
	    ofs_pickle_parse(bytes, n, true, NULL, NULL, err);

	if (doc == NULL)
		return OFS_NONE;
	if (ofs_catalog_doc(cat, doc, err) == OFS_NONE) {
		ofs_pickle_free(doc);
		return OFS_NONE;
	}
	return ofs_catalog_value(cat, doc, ofs_pickle_root(doc), err);
}

static int by_node(const void *va, const void *vb)
{
	const struct ofs_inner_storage *a = va, *b = vb;
	uintptr_t x = (uintptr_t)a->doc, y = (uintptr_t)b->doc;

	if (x != y)
		return x < y ? -1 : 1;
	return (a->node > b->node) - (a->node < b->node);
}

OFS_COMPARE_BY(by_entry, struct ofs_low_bit, entry)

const struct ofs_low_bit *ofs_low_bit_of(const struct ofs_catalog *cat,
    uint32_t entry)
{
	const struct ofs_low_bit key = { .entry = entry };

	return ofs_search(&key, cat->low_bits, cat->nlow_bits, sizeof(key),
	    by_entry);
}

/* The bytes of all names that are accepted, and more for each entry. A pickle
 * can share the parts of names, so that they are much longer than the pickle. */
#define NAMES_MAX  (UINT64_C(32) << 20)
#define NAMES_MEAN 256

static int check_names(const struct ofs_catalog *cat, struct optimfs_error *err)
{
	uint64_t max = NAMES_MAX + NAMES_MEAN * (uint64_t)cat->nentries;
	uint64_t left = max;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		uint32_t n;
		const uint32_t *c =
		    ofs_catalog_components(cat, cat->entries[i].path, &n);

		for (uint32_t k = 0; k < n; k++) {
			size_t len = ofs_catalog_string(cat, c[k]).len;

			if (len >= left)
				return optimfs_fail(err, E2BIG,
				    "OFS444 its entries share long keys: the names of "
				    "all %" PRIu32 " have more than %" PRIu64
				    " bytes",
				    cat->nentries, max);
			left -= len + 1;
		}
	}
	return 0;
}

int ofs_catalog_finish(struct ofs_catalog *cat, struct optimfs_error *err)
{
	if (ofs_catalog_failed(cat, err) || check_names(cat, err) == -1 ||
	    ofs_catalog_check(cat, err) == -1)
		return -1;
	qsort(cat->inner, cat->ninner, sizeof(*cat->inner), by_node);
	qsort(cat->low_bits, cat->nlow_bits, sizeof(*cat->low_bits), by_entry);
	ofs_catalog_seal(cat);
	return 0;
}

void ofs_catalog_seal(struct ofs_catalog *cat)
{
	ofs_catalog_shrink(cat);
	release_build(cat);
}

/* Reading. */

const uint32_t *ofs_catalog_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n)
{
	*n = cat->paths[path];
	return cat->paths + path + 1;
}

uint32_t *ofs_catalog_copy_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n, struct optimfs_error *err)
{
	const uint32_t *c = ofs_catalog_components(cat, path, n);
	uint32_t *copy = malloc((*n + 1ull) * sizeof(*copy));

	if (copy == NULL)
		ofs_no_memory(err);
	else
		memcpy(copy, c, *n * sizeof(*copy));
	return copy;
}

void ofs_catalog_join(const struct ofs_catalog *cat, const uint32_t *c,
    uint32_t n, struct ofs_buf *out)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, c[i]);

		if (i > 0)
			ofs_buf_putc(out, '.');
		ofs_buf_put(out, s.p, s.len);
	}
}

uint32_t ofs_catalog_inner_tensor(const struct ofs_catalog *cat,
    const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_inner_storage key = { .doc = doc, .node = node };
	const struct ofs_inner_storage *s =
	    ofs_search(&key, cat->inner, cat->ninner, sizeof(key), by_node);

	return s == NULL ? OFS_NONE : s->tensor;
}

OFS_COMPARE_BY(by_name, struct ofs_flat_param, name)

void ofs_catalog_set_flat(struct ofs_catalog *cat, struct ofs_flat_param *v,
    uint32_t n)
{
	uint32_t kept = 0;

	qsort(v, n, sizeof(*v), by_name);
	for (uint32_t i = 0; i < n; i++)
		if (kept == 0 || v[kept - 1].name != v[i].name)
			v[kept++] = v[i];
	cat->flat = v;
	cat->nflat = kept;
}

const struct ofs_flat_param *ofs_catalog_flat(const struct ofs_catalog *cat,
    uint32_t name)
{
	struct ofs_flat_param key = { .name = name };

	return ofs_search(&key, cat->flat, cat->nflat, sizeof(key), by_name);
}

void ofs_note_error(const struct ofs_note *n, struct optimfs_error *e)
{
	*e = (struct optimfs_error){ n->code, n->number, n->how, n->lost,
		n->nlost, "" };
	strncpy(e->text, n->text, sizeof(e->text) - 1);
}

int ofs_catalog_fail(const struct ofs_catalog *cat, uint32_t note,
    struct optimfs_error *err)
{
	if (err != NULL)
		ofs_note_error(&cat->notes[note], err);
	return -1;
}

uint32_t ofs_entry_error(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	switch (e->kind) {
	case OFS_ENTRY_TENSOR:
		return cat->tensors[e->ref].error;
	case OFS_ENTRY_ITEM:
		return cat->items[e->ref].error;
	default:
		return OFS_NONE;
	}
}

int ofs_entry_sound(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	uint32_t error = ofs_entry_error(cat, e);

	return error == OFS_NONE ? 0 : ofs_catalog_fail(cat, error, err);
}

uint64_t ofs_tensor_numel(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t n, bytes;

	/* off_t is signed, and an element has at least one byte */
	if (!ofs_numel(ofs_tensor_shape(cat, t), t->ndim, &n) ||
	    !ofs_mul_u64(n, ofs_dtype_size(t->dtype), &bytes) ||
	    bytes > INT64_MAX || n > INT64_MAX)
		return 0;
	return n;
}

bool ofs_tensor_has_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *shape, unsigned ndim)
{
	return t->ndim == ndim &&
	    (ndim == 0 ||
		memcmp(ofs_tensor_shape(cat, t), shape,
		    ndim * sizeof(*shape)) == 0);
}

uint64_t ofs_tensor_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	return ofs_tensor_numel(cat, t) * ofs_dtype_size(t->dtype);
}

const struct ofs_tensor *ofs_entry_tensor(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	if (e == NULL || e->kind != OFS_ENTRY_TENSOR)
		return NULL;
	return &cat->tensors[e->ref];
}

bool ofs_tensor_rounded(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	const struct ofs_view *v =
	    t->nshards > 0 ? ofs_shard_view(cat, &cat->shards[t->shard]) : NULL;

	return v != NULL && (v->fix & OFS_FIX_ROUND) != 0;
}

OFS_COMPARE_KEY(by_tensor, uint32_t, struct ofs_pickled_tensor, tensor)

bool ofs_entry_is_pickled(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle **doc, uint32_t *node)
{
	const struct ofs_pickled_tensor *t = NULL;
	const struct ofs_item *item = NULL;

	if (e->kind == OFS_ENTRY_TENSOR)
		t = ofs_search(&e->ref, cat->pickled, cat->npickled, sizeof(*t),
		    by_tensor);
	else if (e->kind == OFS_ENTRY_ITEM && cat->items[e->ref].doc != NULL)
		item = &cat->items[e->ref];
	if (t == NULL && item == NULL)
		return false;
	if (doc != NULL) {
		*doc = t != NULL ? t->doc : item->doc;
		*node = t != NULL ? t->node : item->node;
	}
	return true;
}

bool ofs_entry_is_text(const struct ofs_catalog *cat, uint32_t entry)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(cat, &cat->entries[entry]);

	return t == NULL || t->ndim == 0;
}

void ofs_shard_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, uint64_t *offsets, uint64_t *sizes)
{
	size_t n = t->grid_ndim;

	if (n == 0)
		return;
	if (s->box == OFS_NONE) {
		memset(offsets, 0, n * sizeof(*offsets));
		memcpy(sizes, cat->dims + t->grid, n * sizeof(*sizes));
		return;
	}
	memcpy(offsets, cat->dims + s->box, n * sizeof(*offsets));
	memcpy(sizes, cat->dims + s->box + n, n * sizeof(*sizes));
}
