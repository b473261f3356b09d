/* ids_shapes.c - shapes of the model, and what states say about them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids.h"
#include "naming/moments.h"
#include "pickle/pickle.h"

static const struct ofs_tensor *tensor(const struct naming *c, uint32_t entry)
{
	return &c->cat->tensors[c->cat->entries[entry].ref];
}

static struct ofs_shape shape(const struct naming *c, uint32_t entry)
{
	const struct ofs_tensor *t = tensor(c, entry);

	return (struct ofs_shape){ ofs_tensor_shape(c->cat, t), t->ndim };
}

/* Equal runs of dimensions share one index. */
uint64_t ofs_ids_shape(const struct naming *c, uint32_t entry)
{
	const struct ofs_tensor *t = tensor(c, entry);

	return t->ndim == 0 ? 0 : (uint64_t)t->shape << 8 | t->ndim;
}

bool ofs_ids_same(const struct naming *c, uint32_t entry,
    const struct ofs_ids_state *s)
{
	return s->entry != OFS_NONE &&
	    ofs_ids_shape(c, entry) == ofs_ids_shape(c, s->entry);
}

bool ofs_ids_fit(const struct naming *c, uint32_t entry,
    const struct ofs_ids_state *s)
{
	if (s->entry == OFS_NONE)
		return ofs_ids_tells(s) &&
		    ofs_factors_fit(shape(c, entry), shape(c, s->row),
			shape(c, s->col));
	return ofs_ids_same(c, entry, s) ||
	    (!s->whole &&
		ofs_moment_fits(shape(c, entry), shape(c, s->entry),
		    s->projected));
}

void ofs_ids_print(const struct naming *c, uint32_t entry, char text[64])
{
	struct ofs_shape s = shape(c, entry);
	struct ofs_buf b = { .limit = 60 };

	ofs_buf_numbers(&b, s.v, s.n, ",");
	text[0] = '\0';
	if (b.len > 0)
		memcpy(text, b.data, b.len);
	text[b.len] = '\0';
	ofs_buf_fini(&b);
}

void ofs_ids_print_state(const struct naming *c, const struct ofs_ids_state *s,
    char text[64])
{
	ofs_ids_print(c, s->entry == OFS_NONE ? s->row : s->entry, text);
}

/* The model. */

struct tensors {
	struct ofs_ids_tensor *v;
	uint32_t n, cap;
};

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
static void drop_statistics(const struct naming *c, struct tensors *t)
{
	static const char *const names[] = { "running_mean", "running_var",
		"num_batches_tracked" };
	struct ofs_str key[3];
	uint32_t n[3];

	if (t->n < 3)
		return;
	for (uint32_t i = 0; i < 3; i++) {
		key[i] = ofs_catalog_string(c->cat, t->v[t->n - 3 + i].name);
		if (!ends_with(key[i], names[i], &n[i]) || n[i] != n[0] ||
		    memcmp(key[i].p, key[0].p, n[0]) != 0)
			return;
	}
	t->n -= 3;
}

static int add_tensor(struct naming *c, struct tensors *t, uint32_t entry,
    struct naming_name fqn, struct optimfs_error *err)
{
	uint32_t name = ofs_naming_listed(c, SCOPE_MODEL, fqn, NULL, err);

	if (name == OFS_NONE || ofs_grow(t->v, t->n, t->cap, err) == -1)
		return -1;
	t->v[t->n++] = (struct ofs_ids_tensor){ name, entry };
	drop_statistics(c, t);
	return 0;
}

int ofs_ids_tensors(struct naming *c, struct ofs_ids_tensor **v, uint32_t *n,
    enum ofs_evidence *order, struct optimfs_error *err)
{
	struct tensors t = { 0 };
	uint32_t first = OFS_NONE, last = 0;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		const struct ofs_entry *e = &c->cat->entries[i];
		struct naming_rest rest;
		struct naming_name fqn;

		if (e->kind != OFS_ENTRY_TENSOR ||
		    !ofs_naming_in_model(c, i, &rest) || ofs_naming_tied(c, i))
			continue;
		fqn = ofs_naming_fqn(c, rest);
		if (fqn.s.p == NULL)
			continue;
		if (first == OFS_NONE)
			first = i;
		last = i;
		if (add_tensor(c, &t, i, fqn, err) == -1) {
			free(t.v);
			return -1;
		}
	}
	*order = first == OFS_NONE ? OFS_UNORDERED
				   : ofs_catalog_evidence(c->cat, first, last);
	*v = t.v;
	*n = t.n;
	return 0;
}

/* States. */

struct states {
	struct ofs_ids_state *v;
	uint32_t n, cap;
};

static bool is_projection(const struct naming *c, const struct naming_key *key)
{
	if (key->tail.p != NULL)
		return ofs_is_projection(key->tail);
	return key->nmore > 0 &&
	    ofs_is_projection(ofs_catalog_string(c->cat, key->more[0]));
}

/* What one entry of a state says. */
static struct ofs_ids_state one_state(const struct naming *c, uint32_t entry,
    const struct naming_key *key, uint32_t id)
{
	uint32_t word = ofs_naming_classify(ofs_naming_last(c, key));
	bool is = c->cat->entries[entry].kind == OFS_ENTRY_TENSOR;

	return (struct ofs_ids_state){
		.id = id,
		.entry = is && (word & TOKEN_SHAPED) != 0 ? entry : OFS_NONE,
		.row = is && (word & TOKEN_ROWS) != 0 ? entry : OFS_NONE,
		.col = is && (word & TOKEN_COLUMNS) != 0 ? entry : OFS_NONE,
		.whole = is && (word & TOKEN_MASTER) != 0,
		.projected = is_projection(c, key),
	};
}

/* Joins what two entries say. The weights say most; of two moments the larger
 * one does. */
static void join(const struct naming *c, struct ofs_ids_state *s,
    const struct ofs_ids_state *more)
{
	s->projected |= more->projected;
	if (s->row == OFS_NONE)
		s->row = more->row;
	if (s->col == OFS_NONE)
		s->col = more->col;
	if (more->entry == OFS_NONE || s->whole)
		return;
	if (s->entry == OFS_NONE || more->whole ||
	    ofs_tensor_numel(c->cat, tensor(c, more->entry)) >
		ofs_tensor_numel(c->cat, tensor(c, s->entry))) {
		s->entry = more->entry;
		s->whole = more->whole;
	}
}

OFS_COMPARE_KEY(compare_id, uint32_t, struct ofs_ids_state, id)

/* The moments of a group with a rank are projected. */
static void mark_group(struct states *s, const struct ofs_value *ids)
{
	for (uint32_t i = 0; i < ofs_pk_len(ids->doc, ids->node); i++) {
		struct ofs_ids_state *found;
		uint32_t id;
		int64_t v;

		if (!ofs_pk_int(ids->doc, ofs_pk_item(ids->doc, ids->node, i),
			&v) ||
		    v < 0 || v >= OFS_NONE)
			continue;
		id = (uint32_t)v;
		found = (struct ofs_ids_state *)(uintptr_t)ofs_search(&id, s->v,
		    s->n, sizeof(*s->v), compare_id);
		if (found != NULL)
			found->projected = true;
	}
}

static int mark_low_rank(struct naming *c, uint32_t root, struct states *s,
    struct optimfs_error *err)
{
	struct ofs_ids_groups g;
	int ret = ofs_ids_groups(c, root, &g, err);

	for (uint32_t i = 0; i < g.n && ret == 0; i++)
		if (g.v[i].low_rank && g.v[i].ids != NULL)
			mark_group(s, g.v[i].ids);
	free(g.v);
	return ret;
}

static int collect(struct naming *c, uint32_t root, struct states *s,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		struct naming_key key;
		uint32_t id;

		if (c->slot[i].root != root ||
		    (c->slot[i].at & SLOT_UNMATCHED) != 0)
			continue;
		key = ofs_naming_key(c, i);
		if (key.kind != NAMING_STATE || !ofs_str_number(key.id.s, &id))
			continue;
		if (ofs_grow(s->v, s->n, s->cap, err) == -1)
			return -1;
		s->v[s->n++] = one_state(c, i, &key, id);
	}
	return 0;
}

OFS_COMPARE_BY2(by_id, struct ofs_ids_state, id, entry)

int ofs_ids_states(struct naming *c, uint32_t root, struct ofs_ids_state **v,
    uint32_t *n, struct optimfs_error *err)
{
	struct states s = { 0 };
	uint32_t kept = 0;

	if (collect(c, root, &s, err) == -1)
		goto fail;
	if (s.n > 0)
		qsort(s.v, s.n, sizeof(*s.v), by_id);
	for (uint32_t i = 0; i < s.n; i++)
		if (kept == 0 || s.v[kept - 1].id != s.v[i].id)
			s.v[kept++] = s.v[i];
		else
			join(c, &s.v[kept - 1], &s.v[i]);
	s.n = kept;
	if (mark_low_rank(c, root, &s, err) == -1)
		goto fail;
	*v = s.v;
	*n = s.n;
	return 0;
fail:
	free(s.v);
	return -1;
}
