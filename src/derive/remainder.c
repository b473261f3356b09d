/* remainder.c - float32 of which a bfloat16 weight is the upper half */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/remainder.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "base/str.h"
#include "derive/derive.h"
#include "read/fetch.h"

#define BLOCK 65536u

struct halves {
	uint32_t weight, remainder; /* tensors */
};

/* The weight was rounded to nearest: if the lower half is negative as an int16,
 * it was rounded up, and the upper half is one less. */
static void join_halves(const uint8_t *weight, const uint8_t *remainder,
    size_t n, uint8_t *out)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t w = (uint32_t)ofs_get_le(weight + 2 * i, 2);
		uint32_t r = (uint32_t)ofs_get_le(remainder + 2 * i, 2);

		ofs_put_le(out + 4 * i, (w - (r >> 15)) << 16 | r, 4);
	}
}

static int read_halves(struct ofs_reader *r, const struct ofs_derived *d,
    const void *prepared, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	const struct halves *h = d->ctx;
	const struct ofs_tensor *t = r->cat->tensors;
	size_t most = count < BLOCK ? (size_t)count : BLOCK, n;
	uint8_t *both = malloc(4 * most), *out = buf;
	int ret = 0;

	(void)prepared;
	if (both == NULL)
		return ofs_no_memory(err);
	for (; count > 0 && ret == 0; first += n, count -= n, out += 4 * n) {
		n = count < most ? (size_t)count : most;
		ret = ofs_fetch_elements(r, &t[h->weight], first, n, both, err);
		if (ret == 0)
			ret = ofs_fetch_elements(r, &t[h->remainder], first, n,
			    both + 2 * n, err);
		if (ret == 0)
			join_halves(both, both + 2 * n, n, out);
	}
	free(both);
	return ret;
}

static const struct ofs_derived_ops join_ops = {
	.name = "join",
	.read = read_halves,
};

static int derive(struct ofs_catalog *cat, const struct halves *halves,
    uint32_t *tensor, struct optimfs_error *err)
{
	struct halves *h = ofs_arena_alloc(&cat->arena, sizeof(*h));
	struct ofs_tensor t = cat->tensors[halves->remainder];

	if (h == NULL)
		return ofs_no_memory(err);
	*h = *halves;
	t.dtype = OFS_FLOAT32;
	*tensor = ofs_catalog_tensor(cat, &t, err);
	return *tensor == OFS_NONE
	    ? -1
	    : ofs_derive_tensor(cat, *tensor,
		  &(struct ofs_derived){ .ops = &join_ops, .ctx = h }, err);
}

struct finding {
	uint32_t *model; /* tensors of model/, by the string of their name */
	bool *taken;     /* of each tree path: an entry has it */
	uint32_t npaths;
};

/* The components of the tree path of a remainder; NULL: the entry is none. */
static const uint32_t *remainder_path(const struct ofs_catalog *cat,
    const struct ofs_entry *e, uint32_t *n)
{
	const struct ofs_tensor *t = ofs_entry_tensor(cat, e);
	const uint32_t *c;

	if (t == NULL || e->tree == OFS_NONE || t->dtype != OFS_INT16 ||
	    t->error != OFS_NONE)
		return NULL;
	c = ofs_catalog_components(cat, e->tree, n);
	return *n >= 3 &&
		ofs_catalog_string_is(cat, c[*n - 1], "fp32_remainder")
	    ? c
	    : NULL;
}

static bool has_remainder(const struct ofs_catalog *cat)
{
	uint32_t n;

	for (uint32_t i = 0; i < cat->nentries; i++)
		if (remainder_path(cat, &cat->entries[i], &n) != NULL)
			return true;
	return false;
}

static void list_entries(const struct ofs_catalog *cat, struct finding *f)
{
	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		const uint32_t *c;
		uint32_t n;

		if (e->tree == OFS_NONE)
			continue;
		f->taken[e->tree] = true;
		c = ofs_catalog_components(cat, e->tree, &n);
		if (n == 2 && e->kind == OFS_ENTRY_TENSOR &&
		    ofs_catalog_string_is(cat, c[0], "model"))
			f->model[OFS_PATH_STR(c[1])] = e->ref;
	}
}

/* Is the entry the lower half of a weight of the model? */
static bool is_half(const struct ofs_catalog *cat, const struct ofs_entry *e,
    const struct finding *f, struct halves *h)
{
	uint32_t n;
	const uint32_t *c = remainder_path(cat, e, &n);
	const struct ofs_tensor *t, *w;

	if (c == NULL)
		return false;
	h->weight = f->model[OFS_PATH_STR(c[n - 2])];
	h->remainder = e->ref;
	if (h->weight == OFS_NONE)
		return false;
	t = &cat->tensors[h->remainder];
	w = &cat->tensors[h->weight];
	return w->dtype == OFS_BFLOAT16 && w->error == OFS_NONE &&
	    ofs_tensor_has_shape(cat, w, ofs_tensor_shape(cat, t), t->ndim);
}

/* The same path, with the name of the whole. */
static uint32_t whole_path(struct ofs_catalog *cat, uint32_t path,
    struct optimfs_error *err)
{
	uint32_t n, *c = ofs_catalog_copy_components(cat, path, &n, err), at;

	if (c == NULL)
		return OFS_NONE;
	at = ofs_catalog_below(cat, c, n - 1, ofs_str_of("fp32"), err);
	free(c);
	return at;
}

/* Adds the whole, unless that is stored, too, as in what was converted. */
static int add_whole(struct ofs_catalog *cat, const struct finding *f,
    uint32_t i, const struct halves *h, struct optimfs_error *err)
{
	struct ofs_entry e = cat->entries[i];

	e.key = OFS_KEY_FIXED;
	e.path = whole_path(cat, e.path, err);
	e.tree = whole_path(cat, e.tree, err);
	if (e.path == OFS_NONE || e.tree == OFS_NONE)
		return -1;
	if (e.tree < f->npaths && f->taken[e.tree])
		return 0;
	return derive(cat, h, &e.ref, err) == -1 ||
		ofs_catalog_entry(cat, &e, err) == OFS_NONE
	    ? -1
	    : 0;
}

static int find_all(struct ofs_catalog *cat, struct finding *f,
    struct optimfs_error *err)
{
	uint32_t n = cat->nentries;
	struct halves h;

	memset(f->model, 0xff, cat->nstrs * sizeof(*f->model));
	list_entries(cat, f);
	for (uint32_t i = 0; i < n; i++)
		if (is_half(cat, &cat->entries[i], f, &h) &&
		    add_whole(cat, f, i, &h, err) == -1)
			return -1;
	return 0;
}

int ofs_remainder_find(struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct finding f = { .npaths = cat->npaths };
	int ret = -1;

	if (!has_remainder(cat))
		return 0;
	f.model = ofs_alloc(cat->nstrs, sizeof(*f.model), err);
	f.taken = ofs_alloc(cat->npaths, sizeof(*f.taken), err);
	if (f.model != NULL && f.taken != NULL)
		ret = find_all(cat, &f, err);
	free(f.model);
	free(f.taken);
	return ret;
}
