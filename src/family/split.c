/* split.c - a tensor becomes several: linear_qkv, linear_fc1, experts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "family/cut.h"
#include "family/family_impl.h"
#include "family/parts.h"

/* More experts than any model has; a hostile shape would make as many names. */
#define LAYERS_MAX 65536u

/* An entry that is split, and where its name is in its path. */
struct splitting {
	struct ofs_renaming *r;
	const struct ofs_entry *e;
	const struct ofs_verdict *v;
	uint32_t at, name;
	uint32_t *path, npath; /* a copy, in which the name changes */
};

/* The tree path with the name of a part; OFS_NONE. */
static uint32_t part_path(struct splitting *s, uint64_t layer, unsigned part)
{
	uint32_t name = ofs_renaming_part_name(s->r, s->v, layer, part);

	if (name == OFS_NONE)
		return OFS_NONE;
	s->path[s->at] = name;
	return ofs_catalog_path(s->r->cat, s->path, s->npath, s->r->err);
}

/* What has no rows to be cut goes to every part. */
static int add_copy(struct splitting *s, uint32_t tree, bool first)
{
	uint32_t ref = s->e->ref;

	if (s->e->kind == OFS_ENTRY_TENSOR && !first)
		ref = ofs_renaming_twin(s->r, ref);
	if (ref == OFS_NONE)
		return -1;
	return ofs_renaming_add(s->r, s->e, tree, s->e->kind, ref);
}

static int cut_part(struct splitting *s, uint64_t layer, unsigned part,
    uint32_t *tensor)
{
	struct ofs_renaming *r = s->r;
	const struct ofs_family_rule *rule = s->v->rule;
	int64_t stack = rule->stacks ? OFS_SIDE_ALL : OFS_SIDE_PLAIN;
	struct ofs_family_side from = { rule->stacked ? (int64_t)layer : stack,
		false, false };
	struct ofs_family_side into = { stack, rule->transpose,
		rule->alternate };
	uint64_t shape[OFS_MAX_DIMS], placed[OFS_MAX_DIMS];
	unsigned n =
	    ofs_side_shape(r->cat, &r->cat->tensors[s->e->ref], from, shape);
	unsigned axes = n - rule->stacks; /* of a matrix */
	struct ofs_family_rows rows = { 0 };
	struct ofs_family_cut *cuts = NULL;
	int ret = -1;

	*tensor = OFS_NONE;
	if (n <= rule->stacks || (rule->transpose && axes != 2))
		return optimfs_fail(r->err, EOPNOTSUPP,
		    "OFS894 a tensor of %u dimensions, where the rule expects "
		    "%s",
		    n + rule->stacked, n <= rule->stacks ? "more" : "a matrix");
	if (ofs_part_rows(rule, &r->facts, part, shape[0], &rows, r->err) == 0)
		cuts = ofs_alloc(rows.n + 1, sizeof(*cuts), r->err);
	for (size_t i = 0; cuts != NULL && i < rows.n; i++)
		cuts[i] = (struct ofs_family_cut){ s->e->ref, rows.v[i].row,
			rows.v[i].n, rows.v[i].to, from, into };
	if (cuts != NULL) {
		cuts->tensor = s->e->ref; /* also without rows */
		cuts->into = into;
		shape[0] = rows.total;
		ofs_side_place(into, shape, n, placed);
		*tensor =
		    ofs_cut_tensor(r->cat, cuts, rows.n, placed, n, r->err);
		ret = *tensor == OFS_NONE ? -1 : 0;
	}
	free(cuts);
	ofs_rows_fini(&rows);
	return ret;
}

/* Has the tensor the shape of its parameter? A state may have another one. */
static bool has_shape(const struct splitting *s)
{
	const struct ofs_catalog *base = s->r->base;
	const struct ofs_tensor *t = &base->tensors[s->e->ref], *p;
	uint32_t known = s->r->shape_of[s->name];

	if (known == OFS_NONE)
		return true;
	p = &base->tensors[known];
	return ofs_tensor_has_shape(base, t, ofs_tensor_shape(base, p),
	    p->ndim);
}

/* Does a vocabulary have no padding, as far as is known? */
static bool is_unpadded(const struct splitting *s)
{
	const struct ofs_tensor *t = ofs_entry_tensor(s->r->base, s->e);
	uint64_t words = s->r->facts.vocab;

	return s->v->rule->vocab && !s->v->rule->transpose && t != NULL &&
	    t->ndim > 0 &&
	    (words == 0 || words == *ofs_tensor_shape(s->r->base, t));
}

static bool is_cut(const struct splitting *s)
{
	return !is_unpadded(s) && !ofs_renaming_is_whole(s->v->rule) &&
	    s->e->kind == OFS_ENTRY_TENSOR &&
	    !ofs_renaming_is_single(s->r->base,
		&s->r->base->tensors[s->e->ref]);
}

static int split_layer(struct splitting *s, uint64_t layer)
{
	bool cut = is_cut(s);

	for (unsigned i = 0; i < s->v->rule->nright; i++) {
		uint32_t tree = part_path(s, layer, i), tensor;
		int ret;

		if (tree == OFS_NONE)
			return -1;
		if (!cut)
			ret = add_copy(s, tree, layer == 0 && i == 0);
		else if (cut_part(s, layer, i, &tensor) == -1)
			ret = -1;
		else
			ret = ofs_renaming_add(s->r, s->e, tree,
			    OFS_ENTRY_TENSOR, tensor);
		if (ret == -1)
			return -1;
	}
	return 0;
}

static int split_all(struct splitting *s)
{
	uint64_t n = ofs_renaming_layers(s->r, s->v, s->name);

	if (n == 0 || n > LAYERS_MAX)
		return optimfs_fail(s->r->err, EOPNOTSUPP,
		    n == 0 ? "OFS894 its parameter has no shape that says how "
			     "many layers it has"
			   : "OFS894 a stack of more than 65536 layers");
	if (is_cut(s) && !has_shape(s))
		return optimfs_fail(s->r->err, EOPNOTSUPP,
		    "OFS895 it has another shape than its parameter, and "
		    "cannot be cut as that is (the option only=model leaves "
		    "the optimizer out)");
	for (uint64_t i = 0; i < n; i++)
		if (split_layer(s, i) == -1)
			return -1;
	return 0;
}

int ofs_renaming_split(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t at, const struct ofs_verdict *v)
{
	struct splitting s = { .r = r, .e = e, .v = v, .at = at };
	int ret;

	s.path =
	    ofs_catalog_copy_components(r->base, e->tree, &s.npath, r->err);
	if (s.path == NULL)
		return -1;
	s.name = OFS_PATH_STR(s.path[at]);
	ret = split_all(&s);
	free(s.path);
	return ret;
}
