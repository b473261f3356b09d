/* ids_model.c - names for IDs from the tensors of the model */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "naming/ids.h"
#include "naming/ids_order.h"
#include "pickle/pickle.h"

/* An optimizer numbers its parameters in the order in which the model has them,
 * group after group. Two things may tell which tensor of the model an ID is, and
 * both must leave exactly one answer.
 *
 * If the model is in one file that keeps the order of its state dict (a pickle
 * does), then by shape the states of a group, sorted by ID, must be a
 * subsequence of the model's tensors (ids_order.h). The groups of IDs are known
 * where params is a value; else all IDs are one group.
 *
 * Other files sort their keys: safetensors by type and name, an index of DCP by
 * rank; and a pickle whose names are sorted may be one that was made of what
 * safetensors returned. (A layer has weight before bias, q before k: models whose
 * own order is sorted are small.) From the order of a sorted list anything would
 * follow, and nothing would be wrong with its shapes. There only the shapes count: a state that fits one
 * tensor takes it away from the others, until each has one. Two tensors of one
 * shape with two states of this shape may always be exchanged. */

struct member {
	struct ofs_ids_state s;
	uint32_t group;
	uint32_t at; /* index in the tensors of the model; OFS_NONE */
	/* its candidates of by_shape: the tensors of its own shape, if there are
	 * any and it is not projected */
	uint32_t first, end;
	bool exact;
};

struct match {
	struct naming *c;
	struct ofs_ids_tensor *model;
	struct shaped {
		uint64_t shape; /* equal for equal ones */
		uint32_t at;
	} * by_shape; /* sorted */
	uint32_t nmodel;
	enum ofs_evidence order;
	uint64_t work;    /* comparisons of shapes, without an order */
	struct member *v; /* sorted by group and ID */
	uint32_t n;
	uint32_t *owner; /* ID of each tensor of the model; OFS_NONE */
	uint32_t *group; /* of each ID; OFS_NONE */
	uint32_t nids;
	const char *hint; /* for messages */
};

static const char *name_at(const struct match *m, uint32_t at)
{
	return ofs_catalog_string(m->c->cat, m->model[at].name).p;
}

static bool fits(const struct match *m, uint32_t at, const struct member *k)
{
	return k->exact ? ofs_ids_same(m->c, m->model[at].entry, &k->s)
			: ofs_ids_fit(m->c, m->model[at].entry, &k->s);
}

OFS_COMPARE_BY2(by_shape, struct shaped, shape, at)

static int sort_shapes(struct match *m, struct optimfs_error *err)
{
	m->by_shape = malloc(m->nmodel * sizeof(*m->by_shape) + 1);
	if (m->by_shape == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < m->nmodel; i++)
		m->by_shape[i] =
		    (struct shaped){ ofs_ids_shape(m->c, m->model[i].entry),
			    i };
	if (m->nmodel > 0)
		qsort(m->by_shape, m->nmodel, sizeof(*m->by_shape), by_shape);
	return 0;
}

static void find_candidates(const struct match *m, struct member *k)
{
	struct shaped key = { .at = 0 };

	k->end = m->nmodel;
	if (k->s.entry == OFS_NONE || (k->s.projected && !k->s.whole))
		return;
	key.shape = ofs_ids_shape(m->c, k->s.entry);
	k->first = (uint32_t)ofs_lower_bound(&key, m->by_shape, m->nmodel,
	    sizeof(key), by_shape);
	for (k->end = k->first;
	     k->end < m->nmodel && m->by_shape[k->end].shape == key.shape;
	     k->end++)
		;
	k->exact = k->first < k->end || k->s.whole;
	if (!k->exact) {
		k->first = 0;
		k->end = m->nmodel;
	}
}

/* range: of the members before k in the order of the model; or NULL. */
static int no_fit(const struct match *m, uint32_t k,
    const struct ofs_ids_range *range, struct optimfs_error *err)
{
	bool after =
	    range != NULL && k > 0 && m->v[k - 1].group == m->v[k].group;
	char shape[64];

	ofs_ids_print_state(m->c, &m->v[k].s, shape);
	return optimfs_fail(err, EINVAL,
	    "OFS636 ids=model: the state of ID %u has shape [%s], which no "
	    "tensor of the model has%s%.150s%s%s",
	    m->v[k].s.id, shape, after ? " after " : "",
	    after ? name_at(m, range[k - 1].first) : "",
	    range == NULL || m->v[0].group != m->v[m->n - 1].group
		? ", or another ID must be that one"
		: "",
	    range == NULL ? "" : m->hint);
}

/* The order of the model. */

static bool fits_member(const void *ctx, uint32_t k, uint32_t at)
{
	const struct match *m = ctx;

	return fits(m, at, &m->v[k]);
}

/* The numbers of members of each group, malloc'ed. */
static uint32_t *group_sizes(const struct match *m, uint32_t *ngroups,
    struct optimfs_error *err)
{
	uint32_t *size = ofs_alloc(m->n, sizeof(*size), err);

	*ngroups = 0;
	for (uint32_t k = 0; k < m->n && size != NULL; k++) {
		if (k == 0 || m->v[k].group != m->v[k - 1].group)
			++*ngroups;
		size[*ngroups - 1]++;
	}
	return size;
}

static int take_ranges(struct match *m, const struct ofs_ids_range *range,
    struct optimfs_error *err)
{
	for (uint32_t k = 0; k < m->n; k++) {
		if (range[k].first != range[k].last)
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u may be %.100s or %.100s%s",
			    m->v[k].s.id, name_at(m, range[k].first),
			    name_at(m, range[k].last), m->hint);
		m->v[k].at = range[k].first;
		m->owner[range[k].first] = m->v[k].s.id;
	}
	return 0;
}

static int match_order(struct match *m, struct optimfs_error *err)
{
	struct ofs_ids_range *range = ofs_alloc(m->n, sizeof(*range), err);
	uint32_t ngroups, *size = group_sizes(m, &ngroups, err), k;
	struct ofs_ids_order order = { m->nmodel, size, ngroups, fits_member,
		m };
	int ret = -1;

	if (range != NULL && size != NULL)
		ret = ofs_ids_order_find(&order, range, &k, err);
	if (ret == 1)
		ret = no_fit(m, k, range, err);
	else if (ret == 0)
		ret = take_ranges(m, range, err);
	free(range);
	free(size);
	return ret;
}

/* The number of IDs whose shape others of the model have, too: their names rest
 * on the order alone. */
static uint32_t count_by_order(const struct match *m)
{
	uint32_t n = 0;

	for (uint32_t k = 0; k < m->n; k++) {
		uint32_t same = 0;

		for (uint32_t i = m->v[k].first; i < m->v[k].end && same < 2;
		     i++)
			same += fits(m, m->by_shape[i].at, &m->v[k]);
		n += same > 1;
	}
	return n;
}

/* An ID without state gets its name by position if it is between two IDs of its
 * group that are as far apart in the model. */
static void fill_gaps(const struct match *m, struct ofs_ids *ids)
{
	for (uint32_t k = 1; k < m->n; k++) {
		const struct member *v = &m->v[k];
		uint32_t gap = v->s.id - v[-1].s.id;

		if (v[-1].group != v->group || gap != v->at - v[-1].at)
			continue;
		for (uint32_t i = 1; i < gap; i++)
			if (m->owner[v->at - i] == OFS_NONE)
				ids->v[v->s.id - i].name =
				    m->model[v->at - i].name;
	}
}

/* The shapes alone. */

/* The number of tensors that k may be, 2 for several; *at gets one. */
static int choices(struct match *m, const struct member *k, uint32_t *at)
{
	int n = 0;

	for (uint32_t i = k->first; i < k->end && n < 2; i++) {
		uint32_t tensor = m->by_shape[i].at;

		m->work++;
		if (m->owner[tensor] == OFS_NONE && fits(m, tensor, k)) {
			*at = tensor;
			n++;
		}
	}
	return n;
}

/* A list for people, which may be long. */
struct list {
	char text[150];
	uint32_t n, more;
};

static void list_add(struct list *l, const char *item)
{
	size_t len = strlen(l->text);

	if (l->more > 0 || len + strlen(item) + 3 > sizeof(l->text)) {
		l->more++;
		return;
	}
	snprintf(l->text + len, sizeof(l->text) - len, "%s%s",
	    l->n++ == 0 ? "" : ", ", item);
}

/* Names what k may be, and the other IDs that may be the same. */
static int ambiguous(const struct match *m, const struct member *k,
    struct optimfs_error *err)
{
	struct list ids = { 0 }, names = { 0 };
	char more[2][32] = { "", "" };
	uint32_t first = OFS_NONE;

	for (uint32_t i = 0; i < m->nmodel; i++)
		if (m->owner[i] == OFS_NONE && fits(m, i, k)) {
			list_add(&names, name_at(m, i));
			if (first == OFS_NONE)
				first = i;
		}
	for (uint32_t i = 0; i < m->n; i++) {
		char number[16];

		snprintf(number, sizeof(number), "%u", m->v[i].s.id);
		if (m->v[i].at == OFS_NONE && fits(m, first, &m->v[i]))
			list_add(&ids, number);
	}
	if (ids.more > 0)
		snprintf(more[0], sizeof(more[0]), " and %u more", ids.more);
	if (names.more > 0)
		snprintf(more[1], sizeof(more[1]), " and %u more", names.more);
	return optimfs_fail(err, EINVAL,
	    "OFS636 ids=model: ID%s %s%s may be any of %s%s: shapes do not tell, "
	    "and %s (ids=FILE gives the names)",
	    ids.n + ids.more > 1 ? "s" : "", ids.text, more[0], names.text,
	    more[1],
	    m->order == OFS_SORTED
		? "the model's names are sorted, which need not be its order"
		: "the model's files do not keep its order");
}

/* Passes over projected states of many shapes end here. */
#define MAX_WORK ((uint64_t)1 << 31)

static int match_shapes(struct match *m, struct optimfs_error *err)
{
	bool found = true;

	while (found && m->work < MAX_WORK) {
		found = false;
		for (uint32_t i = 0; i < m->n; i++) {
			struct member *k = &m->v[i];
			uint32_t at;
			int n = k->at == OFS_NONE ? choices(m, k, &at) : 2;

			if (n == 0)
				return no_fit(m, i, NULL, err);
			if (n == 2)
				continue;
			k->at = at;
			m->owner[at] = k->s.id;
			found = true;
		}
	}
	for (uint32_t i = 0; i < m->n; i++)
		if (m->v[i].at == OFS_NONE)
			return ambiguous(m, &m->v[i], err);
	return 0;
}

/* Both. */

/* Fill m->group. */
static int groups_of_ids(struct match *m, uint32_t root,
    struct optimfs_error *err)
{
	struct ofs_ids_groups g;
	int ret = ofs_ids_groups(m->c, root, &g, err);

	for (uint32_t i = 0; i < g.n && ret == 0; i++) {
		const struct ofs_value *v = g.v[i].ids;
		int64_t id;

		for (uint32_t k = 0;
		     v != NULL && k < ofs_pk_len(v->doc, v->node); k++)
			if (ofs_pk_int(v->doc, ofs_pk_item(v->doc, v->node, k),
				&id) &&
			    id >= 0 && id < m->nids)
				m->group[id] = i;
	}
	free(g.v);
	return ret;
}

OFS_COMPARE_BY2(by_group, struct member, group, s.id)

static int add_members(struct match *m, const struct ofs_ids_state *state,
    uint32_t n, struct optimfs_error *err)
{
	bool known = true;

	for (uint32_t i = 0; i < n; i++)
		known = known && m->group[state[i].id] != OFS_NONE;
	for (uint32_t i = 0; i < n; i++) {
		if (!ofs_ids_tells(&state[i]))
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u has no state with its "
			    "parameter's shape",
			    state[i].id);
		m->v[m->n] = (struct member){ .s = state[i],
			.group = known ? m->group[state[i].id] : 0,
			.at = OFS_NONE };
		find_candidates(m, &m->v[m->n++]);
	}
	qsort(m->v, m->n, sizeof(*m->v), by_group);
	m->hint = known
	    ? ""
	    : "; params, which says what groups there are, is not read at "
	      "mount";
	return 0;
}

static int match(struct match *m, const struct ofs_ids_state *state, uint32_t n,
    struct ofs_ids *ids, struct optimfs_error *err)
{
	m->owner = malloc(m->nmodel * sizeof(*m->owner));
	m->group = malloc(m->nids * sizeof(*m->group));
	m->v = malloc(n * sizeof(*m->v));
	ids->v = malloc(m->nids * sizeof(*ids->v));
	if (m->owner == NULL || m->group == NULL || m->v == NULL ||
	    ids->v == NULL)
		return ofs_no_memory(err);
	memset(m->owner, 0xff, m->nmodel * sizeof(*m->owner));
	memset(m->group, 0xff, m->nids * sizeof(*m->group));
	memset(ids->v, 0xff, m->nids * sizeof(*ids->v));
	ids->n = m->nids;
	if (sort_shapes(m, err) == -1 ||
	    groups_of_ids(m, ids->root, err) == -1 ||
	    add_members(m, state, n, err) == -1)
		return -1;
	if ((m->order == OFS_IN_ORDER ? match_order(m, err)
				      : match_shapes(m, err)) == -1)
		return -1;
	for (uint32_t i = 0; i < m->n; i++)
		ids->v[m->v[i].s.id].name = m->model[m->v[i].at].name;
	ids->whole = m->n == m->nmodel;
	if (m->order == OFS_IN_ORDER) {
		fill_gaps(m, ids);
		ids->by_order = count_by_order(m);
	}
	return 0;
}

static int enough(struct match *m, const struct ofs_ids_state *state,
    uint32_t n, struct optimfs_error *err)
{
	if (n == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: no state has a shape that identifies a parameter");
	m->nids = state[n - 1].id + 1;
	if (m->nids > m->nmodel)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: ID %u, but the model has %u tensors",
		    m->nids - 1, m->nmodel);
	return 0;
}

int ofs_ids_of_model(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct match m = { .c = c };
	struct ofs_ids_state *state = NULL;
	uint32_t n = 0;
	int ret;

	ret = ofs_ids_tensors(c, &m.model, &m.nmodel, &m.order, err);
	if (ret == 0)
		ret = ofs_ids_states(c, ids->root, &state, &n, err);
	if (ret == 0)
		ret = enough(&m, state, n, err);
	if (ret == 0)
		ret = match(&m, state, n, ids, err);
	free(m.model);
	free(m.by_shape);
	free(m.owner);
	free(m.group);
	free(m.v);
	free(state);
	return ret;
}
