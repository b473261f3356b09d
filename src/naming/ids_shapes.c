/* ids_shapes.c - tensors with the shape of their parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids.h"

static int add(struct ofs_shapes *s, uint32_t key, uint32_t entry,
    struct optimfs_error *err)
{
	if (ofs_grow(s->v, s->n, s->cap, err) == -1)
		return -1;
	s->v[s->n++] = (struct ofs_shaped){ key, entry };
	return 0;
}

OFS_COMPARE_BY2(by_key, struct ofs_shaped, key, entry)

void ofs_shapes_sort(struct ofs_shapes *s)
{
	if (s->n > 0)
		qsort(s->v, s->n, sizeof(*s->v), by_key);
}

static const struct ofs_tensor *tensor(const struct naming *c, uint32_t entry)
{
	return &c->cat->tensors[c->cat->entries[entry].ref];
}

bool ofs_shapes_same(const struct naming *c, uint32_t a, uint32_t b)
{
	const struct ofs_tensor *x = tensor(c, a), *y = tensor(c, b);

	/* equal runs of dimensions share one index */
	return x->ndim == y->ndim && (x->ndim == 0 || x->shape == y->shape);
}

void ofs_shapes_print(const struct naming *c, uint32_t entry, char text[64])
{
	const struct ofs_tensor *t = tensor(c, entry);
	struct ofs_buf b = { .limit = 60 };

	ofs_buf_numbers(&b, ofs_tensor_shape(c->cat, t), t->ndim, ",");
	text[0] = '\0';
	if (b.len > 0)
		memcpy(text, b.data, b.len);
	text[b.len] = '\0';
	ofs_buf_fini(&b);
}

/* Does key end with name? *n = the length of the prefix before it. */
static bool ends_with(struct ofs_str key, const char *name, uint32_t *n)
{
	if (!ofs_str_ends(key, name))
		return false;
	*n = key.len - (uint32_t)strlen(name);
	return true;
}

/* Statistics of a normalization layer are buffers, which no optimizer has. They
 * are adjacent in a state dict, in this order (_NormBase of
 * torch/nn/modules/batchnorm.py, PyTorch 2.11). */
static void drop_statistics(const struct naming *c, struct ofs_shapes *s)
{
	static const char *const names[] = { "running_mean", "running_var",
		"num_batches_tracked" };
	struct ofs_str key[3];
	uint32_t n[3];

	if (s->n < 3)
		return;
	for (uint32_t i = 0; i < 3; i++) {
		key[i] = ofs_catalog_string(c->cat, s->v[s->n - 3 + i].key);
		if (!ends_with(key[i], names[i], &n[i]) || n[i] != n[0] ||
		    memcmp(key[i].p, key[0].p, n[0]) != 0)
			return;
	}
	s->n -= 3;
}

int ofs_shapes_of_model(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err)
{
	struct naming_rest rest;
	struct naming_name fqn;
	uint32_t name;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		if (c->cat->entries[i].kind != OFS_ENTRY_TENSOR ||
		    !ofs_naming_in_model(c, i, &rest) || ofs_naming_tied(c, i))
			continue;
		fqn = ofs_naming_fqn(c, rest);
		if (fqn.s.p == NULL)
			continue;
		name = ofs_naming_listed(c, SCOPE_MODEL, fqn, NULL, err);
		if (name == OFS_NONE || add(s, name, i, err) == -1)
			return -1;
		drop_statistics(c, s);
	}
	return 0;
}

int ofs_shapes_of_state(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err)
{
	struct naming_key key;
	uint32_t id, n = 0;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		bool usable;

		if (c->slot[i].root != c->ids_root ||
		    (c->slot[i].at & SLOT_UNMATCHED) != 0)
			continue;
		key = ofs_naming_key(c, i);
		if (key.kind != NAMING_STATE || !ofs_str_number(key.id.s, &id))
			continue;
		usable = c->cat->entries[i].kind == OFS_ENTRY_TENSOR &&
		    (ofs_naming_classify(ofs_naming_last(c, &key)) &
			TOKEN_SHAPED) != 0;
		if (add(s, id, usable ? i : OFS_NONE, err) == -1)
			return -1;
	}
	ofs_shapes_sort(s);
	for (uint32_t i = 0; i < s->n; i++)
		if (n == 0 || s->v[n - 1].key != s->v[i].key)
			s->v[n++] = s->v[i];
	s->n = n;
	return 0;
}
