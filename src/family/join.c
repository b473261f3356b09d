/* join.c - several tensors become one: q, k and v; gate and up; experts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "family/cut.h"
#include "family/family_impl.h"
#include "family/parts.h"
#include "pickle/pickle.h"
#include "read/fetch.h"
#include "read/locate.h"

/* Groups are found by the path that the result has. */
static bool same_path(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_renaming *r = ctx;

	return memcmp(&r->group[index].tree, key, n) == 0;
}

static uint32_t group_at(struct ofs_renaming *r, uint32_t tree, uint32_t entry,
    const struct ofs_family_rule *rule)
{
	uint32_t hash = ofs_map_hash(&tree, sizeof(tree));
	uint32_t i =
	    ofs_map_find(&r->groups, hash, same_path, r, &tree, sizeof(tree));

	if (i != OFS_NONE)
		return i;
	if (ofs_grow(r->group, r->ngroups, r->group_cap, r->err) == -1)
		return OFS_NONE;
	if (!ofs_map_add(&r->groups, hash, r->ngroups)) {
		ofs_no_memory(r->err);
		return OFS_NONE;
	}
	r->group[r->ngroups] =
	    (struct ofs_family_group){ tree, rule, OFS_NONE, 0, entry };
	return r->ngroups++;
}

int ofs_renaming_join(struct ofs_renaming *r, uint32_t entry, uint32_t at,
    const struct ofs_verdict *v)
{
	uint32_t n, name = ofs_renaming_part_name(r, v, 0, 0), tree, g;
	uint32_t *path;

	if (name == OFS_NONE)
		return -1;
	path = ofs_catalog_copy_components(r->base,
	    r->base->entries[entry].tree, &n, r->err);
	if (path == NULL)
		return -1;
	path[at] = name;
	tree = ofs_catalog_path(r->cat, path, n, r->err);
	free(path);
	g = tree == OFS_NONE ? OFS_NONE : group_at(r, tree, entry, v->rule);
	if (g == OFS_NONE ||
	    ofs_grow(r->member, r->nmembers, r->member_cap, r->err) == -1)
		return -1;
	r->member[r->nmembers] = (struct ofs_family_member){ entry, v->layer,
		v->part, r->group[g].member };
	r->group[g].member = r->nmembers++;
	r->group[g].nmembers++;
	r->group_of[entry] = g;
	return 0;
}

/* The members of a group in the order of layers and parts. */
struct joining {
	struct ofs_renaming *r;
	const struct ofs_family_group *g;
	struct ofs_family_member *v;
	uint64_t shape[OFS_MAX_DIMS]; /* of a part, rows first */
	unsigned ndim;
	struct ofs_family_cut *cut;
	size_t ncuts, cut_cap;
};

OFS_COMPARE_BY2(by_part, struct ofs_family_member, layer, part)

static int collect(struct joining *j)
{
	const struct ofs_family_group *g = j->g;
	uint32_t n = 0;

	j->v = ofs_alloc(g->nmembers, sizeof(*j->v), j->r->err);
	if (j->v == NULL)
		return -1;
	for (uint32_t i = g->member; i != OFS_NONE; i = j->r->member[i].next)
		j->v[n++] = j->r->member[i];
	qsort(j->v, n, sizeof(*j->v), by_part);
	for (uint32_t i = 0; i < n; i++)
		if (j->v[i].layer != i / g->rule->nright ||
		    j->v[i].part != i % g->rule->nright)
			break;
		else if (i + 1 == n && n % g->rule->nright == 0)
			return 0;
	return optimfs_fail(j->r->err, EOPNOTSUPP,
	    "OFS895 the parts beside it are not all there: %" PRIu32
	    " of them, and %u make a tensor",
	    n, g->rule->nright);
}

static const struct ofs_entry *entry_of(const struct joining *j, uint32_t i)
{
	return &j->r->base->entries[j->v[i].entry];
}

/* Values. */

static bool same_node(const struct ofs_pickle *a, uint32_t x,
    const struct ofs_pickle *b, uint32_t y)
{
	enum ofs_pk_kind kind = ofs_pk_kind(a, x);
	int64_t i, j;

	if (a == b && x == y)
		return true;
	if (kind != ofs_pk_kind(b, y))
		return false;
	if (kind == OFS_PK_FLOAT)
		return ofs_pk_float(a, x) == ofs_pk_float(b, y);
	return kind == OFS_PK_INT && ofs_pk_int(a, x, &i) &&
	    ofs_pk_int(b, y, &j) && i == j;
}

/* Values that have not been read yet. 1; 0; -1. */
static int same_item(struct joining *j, const struct ofs_item *a,
    const struct ofs_item *b)
{
	struct ofs_pickle *x = ofs_locate_item(j->r->reader, a, j->r->err);
	struct ofs_pickle *y =
	    x == NULL ? NULL : ofs_locate_item(j->r->reader, b, j->r->err);
	int ret = y == NULL
	    ? -1
	    : same_node(x, ofs_pickle_root(x), y, ofs_pickle_root(y));

	ofs_pickle_free(x);
	ofs_pickle_free(y);
	return ret;
}

static int read_single(struct joining *j, uint32_t i, uint8_t out[64])
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(j->r->base, entry_of(j, i));

	memset(out, 0, 64);
	return ofs_fetch_elements(j->r->reader, t, 0, 1, out, j->r->err);
}

/* Is what the first member has the same in member i? 1; 0; -1. */
static int is_same(struct joining *j, uint32_t i)
{
	const struct ofs_catalog *base = j->r->base;
	const struct ofs_entry *a = entry_of(j, 0), *b = entry_of(j, i);
	uint8_t x[64], y[64];

	if (a->kind != b->kind)
		return 0;
	if (a->kind == OFS_ENTRY_VALUE)
		return same_node(base->values[a->ref].doc,
		    base->values[a->ref].node, base->values[b->ref].doc,
		    base->values[b->ref].node);
	if (a->kind == OFS_ENTRY_ITEM)
		return same_item(j, &base->items[a->ref], &base->items[b->ref]);
	if (base->tensors[a->ref].dtype != base->tensors[b->ref].dtype)
		return 0;
	if (read_single(j, 0, x) == -1 || read_single(j, i, y) == -1)
		return -1;
	return memcmp(x, y, sizeof(x)) == 0;
}

/* A step, or a value: all parts have the same. */
static int join_equal(struct joining *j)
{
	const struct ofs_entry *e = entry_of(j, 0);

	for (uint32_t i = 1; i < j->g->nmembers; i++) {
		int same = is_same(j, i);

		if (same == 0)
			optimfs_fail(j->r->err, EOPNOTSUPP,
			    "OFS895 the parts beside it have another one, and "
			    "one tensor can have only one");
		if (same != 1)
			return -1;
	}
	return ofs_renaming_add(j->r, e, j->g->tree, e->kind, e->ref);
}

/* Tensors. */

static int64_t stack_of(const struct joining *j)
{
	return j->g->rule->stacks ? OFS_SIDE_ALL : OFS_SIDE_PLAIN;
}

static struct ofs_family_side side_of(const struct joining *j)
{
	return (struct ofs_family_side){ stack_of(j), j->g->rule->transpose,
		j->g->rule->alternate };
}

/* The whole, or a layer of it. */
static struct ofs_family_side whole_of(const struct joining *j, uint32_t layer)
{
	return (struct ofs_family_side){
		j->g->rule->stacked ? (int64_t)layer : stack_of(j), false, false
	};
}

/* Member i must be as the first one, but for its rows. */
static int check_shape(struct joining *j, uint32_t i, uint64_t *rows)
{
	const struct ofs_catalog *base = j->r->base;
	const struct ofs_tensor *t = ofs_entry_tensor(base, entry_of(j, i));
	const struct ofs_tensor *first = ofs_entry_tensor(base, entry_of(j, 0));
	uint64_t shape[OFS_MAX_DIMS];
	unsigned n;

	if (t != NULL && t->ndim > j->g->rule->stacks &&
	    t->dtype == first->dtype) {
		n = ofs_side_shape(base, t, side_of(j), shape);
		if (i == 0) {
			memcpy(j->shape, shape, sizeof(shape));
			j->ndim = n;
		}
		*rows = shape[0];
		if (n == j->ndim && n + j->g->rule->stacked <= OFS_MAX_DIMS &&
		    (!j->g->rule->transpose || n - j->g->rule->stacks == 2) &&
		    memcmp(shape + 1, j->shape + 1, (n - 1) * sizeof(*shape)) ==
			0)
			return 0;
	}
	return optimfs_fail(j->r->err, EOPNOTSUPP,
	    "OFS894 it has not the type and the shape to be joined with the "
	    "parts beside it");
}

/* The rows of the whole, from those of the parts of a layer. */
static int whole_rows(struct joining *j, uint64_t *rows)
{
	uint64_t n;

	*rows = 0;
	for (uint32_t i = 0; i < j->g->rule->nright; i++) {
		if (check_shape(j, i, &n) == -1)
			return -1;
		*rows += n; /* no overflow: they are stored */
	}
	if (j->g->rule->vocab && j->r->facts.vocab > *rows)
		*rows = j->r->facts.vocab; /* the rest are zeros */
	return 0;
}

static int cut_member(struct joining *j, uint32_t i, uint64_t whole)
{
	const struct ofs_family_rule *rule = j->g->rule;
	struct ofs_facts facts = j->r->facts;
	struct ofs_family_side into = whole_of(j, j->v[i].layer);
	struct ofs_family_rows rows = { 0 };
	uint64_t n;
	int ret = -1;

	if (check_shape(j, i, &n) == -1)
		return -1;
	if (rule->vocab)
		facts.vocab = n;
	if (ofs_part_rows(rule, &facts, j->v[i].part, whole, &rows,
		j->r->err) == 0)
		ret = rows.total == n
		    ? 0
		    : optimfs_fail(j->r->err, EOPNOTSUPP,
			  "OFS894 it has %" PRIu64 " rows, not %" PRIu64
			  " as the parts beside it say",
			  n, rows.total);
	for (size_t k = 0; k < rows.n && ret == 0; k++) {
		ret = ofs_grow(j->cut, j->ncuts, j->cut_cap, j->r->err);
		if (ret == 0)
			j->cut[j->ncuts++] =
			    (struct ofs_family_cut){ entry_of(j, i)->ref,
				    rows.v[k].to, rows.v[k].n, rows.v[k].row,
				    side_of(j), into };
	}
	ofs_rows_fini(&rows);
	return ret;
}

static uint32_t cut_together(struct joining *j, uint64_t whole)
{
	const struct ofs_family_rule *rule = j->g->rule;
	uint64_t shape[OFS_MAX_DIMS + 1], rows = j->shape[0];
	uint32_t tensor;

	j->shape[0] = whole;
	shape[0] = j->g->nmembers / rule->nright;
	ofs_side_place(whole_of(j, 0), j->shape, j->ndim, shape);
	if (j->ncuts == 0)
		return entry_of(j, 0)->ref;
	tensor = ofs_cut_tensor(j->r->cat, j->cut, j->ncuts, shape,
	    j->ndim + rule->stacked, j->r->err);
	if (tensor != OFS_NONE && rule->vocab && whole > rows)
		j->r->cat->tensors[tensor].flags |= OFS_TENSOR_ZERO;
	return tensor;
}

/* The tensor of the name that the rule compares rows with; NULL: there is none. */
static const struct ofs_tensor *tensor_of_rows(const struct joining *j,
    char name[OFS_FAMILY_NAME])
{
	const struct ofs_catalog *base = j->r->base;
	const struct ofs_entry *e = entry_of(j, 0);
	const struct ofs_family_rule *rule = j->g->rule;
	uint32_t star[OFS_FAMILY_STARS], n, at, known;
	const uint32_t *c = ofs_catalog_components(base, e->tree, &n);
	unsigned stars;

	at = ofs_renaming_name_at(base, e);
	if (rule->rows.p == NULL || at == OFS_NONE ||
	    !ofs_family_match(rule->right[j->v[0].part],
		ofs_catalog_string(base, OFS_PATH_STR(c[at])), star, &stars) ||
	    !ofs_family_expand(rule->rows, star, name))
		return NULL;
	at = ofs_catalog_str(j->r->cat, name, strlen(name), j->r->err);
	known = at < base->nstrs ? j->r->shape_of[at] : OFS_NONE;
	return known == OFS_NONE ? NULL : &base->tensors[known];
}

static int check_rows(const struct joining *j, uint64_t rows)
{
	char name[OFS_FAMILY_NAME];
	const struct ofs_tensor *t = tensor_of_rows(j, name);
	uint64_t n;

	if (t == NULL || t->ndim == 0)
		return 0;
	n = ofs_tensor_shape(j->r->base, t)[t->ndim - 1];
	return n == rows
	    ? 0
	    : optimfs_fail(j->r->err, EOPNOTSUPP,
		  "OFS894 it has %" PRIu64 " rows, and %.200s has %" PRIu64
		  ": its axes are not in the order that the rule expects",
		  rows, name, n);
}

static int join_tensors(struct joining *j)
{
	uint64_t whole;
	uint32_t tensor;

	if (whole_rows(j, &whole) == -1 || check_rows(j, whole) == -1)
		return -1;
	for (uint32_t i = 0; i < j->g->nmembers; i++)
		if (cut_member(j, i, whole) == -1)
			return -1;
	tensor = cut_together(j, whole);
	if (tensor == OFS_NONE)
		return -1;
	return ofs_renaming_add(j->r, entry_of(j, 0), j->g->tree,
	    OFS_ENTRY_TENSOR, tensor);
}

int ofs_renaming_joined(struct ofs_renaming *r, struct ofs_family_group *g)
{
	struct joining j = { .r = r, .g = g };
	const struct ofs_entry *e = &r->base->entries[g->first];
	const struct ofs_tensor *t = ofs_entry_tensor(r->base, e);
	int ret = collect(&j);

	if (ret == 0 && ofs_renaming_is_whole(g->rule))
		ret = ofs_renaming_add(r, e, g->tree, e->kind, e->ref);
	else if (ret == 0 && (t == NULL || ofs_renaming_is_single(r->base, t)))
		ret = join_equal(&j);
	else if (ret == 0)
		ret = join_tensors(&j);
	free(j.v);
	free(j.cut);
	return ret;
}
