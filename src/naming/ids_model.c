/* ids_model.c - names for IDs from the order of the model's tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "naming/ids.h"
#include "pickle/pickle.h"

/* By shape, the states of one group, sorted by ID, must be a subsequence of the
 * model's tensors, in exactly one way. It is unique if matching each as early
 * as possible gives the same as matching each as late as possible. The groups
 * of IDs are known where params is a value; else all IDs are one group. */

struct member {
	uint32_t group, id, entry;
	uint32_t at; /* index in the shapes of the model */
};

struct match {
	struct naming *c;
	struct ofs_shapes model;
	struct member *v; /* sorted by group and ID */
	uint32_t n;
	uint32_t *owner; /* ID of each shape of the model; OFS_NONE */
	uint32_t *group; /* of each ID; OFS_NONE */
	uint32_t nids;
	const char *hint; /* for messages */
};

static const char *name_at(const struct match *m, uint32_t at)
{
	return ofs_catalog_string(m->c->cat, m->model.v[at].key).p;
}

static bool fits(const struct match *m, uint32_t at, const struct member *k)
{
	return ofs_shapes_same(m->c, m->model.v[at].entry, k->entry);
}

static int no_fit(const struct match *m, const struct member *k, bool first,
    struct optimfs_error *err)
{
	char shape[64];

	ofs_shapes_print(m->c, k->entry, shape);
	return optimfs_fail(err, EINVAL,
	    "OFS636 ids=model: the state of ID %u has shape [%s], which no "
	    "tensor of the model has%s%.150s%s",
	    k->id, shape, first ? "" : " after ",
	    first ? "" : name_at(m, k[-1].at), m->hint);
}

static int earliest(const struct match *m, struct member *v, uint32_t n,
    struct optimfs_error *err)
{
	uint32_t at = 0;

	for (uint32_t k = 0; k < n; k++, at++) {
		if (v[k].entry == OFS_NONE)
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u has no state with its "
			    "parameter's shape",
			    v[k].id);
		while (at < m->model.n && !fits(m, at, &v[k]))
			at++;
		if (at == m->model.n)
			return no_fit(m, &v[k], k == 0, err);
		v[k].at = at;
	}
	return 0;
}

static int unique(const struct match *m, const struct member *v, uint32_t n,
    struct optimfs_error *err)
{
	uint32_t at = m->model.n;

	for (uint32_t k = n; k-- > 0;) {
		do
			at--;
		while (!fits(m, at, &v[k]));
		if (at != v[k].at)
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: ID %u may be %.100s or %.100s%s",
			    v[k].id, name_at(m, v[k].at), name_at(m, at),
			    m->hint);
	}
	return 0;
}

static int own(struct match *m, const struct member *v, uint32_t n,
    struct optimfs_error *err)
{
	for (uint32_t k = 0; k < n; k++) {
		if (m->owner[v[k].at] != OFS_NONE)
			return optimfs_fail(err, EINVAL,
			    "OFS636 ids=model: IDs %u and %u may both be "
			    "%.150s%s",
			    m->owner[v[k].at], v[k].id, name_at(m, v[k].at),
			    m->hint);
		m->owner[v[k].at] = v[k].id;
	}
	return 0;
}

static int match_groups(struct match *m, struct optimfs_error *err)
{
	uint32_t end;

	for (uint32_t i = 0; i < m->n; i = end) {
		for (end = i + 1;
		     end < m->n && m->v[end].group == m->v[i].group; end++)
			;
		if (earliest(m, m->v + i, end - i, err) == -1 ||
		    unique(m, m->v + i, end - i, err) == -1 ||
		    own(m, m->v + i, end - i, err) == -1)
			return -1;
	}
	return 0;
}

/* An ID without state gets its name by position if it is between two IDs of its
 * group that are as far apart in the model. */
static void fill(const struct match *m, struct ofs_ids *ids)
{
	for (uint32_t k = 0; k < m->n; k++) {
		const struct member *v = &m->v[k];
		uint32_t gap;

		ids->v[v->id].name = m->model.v[v->at].key;
		if (k == 0 || v[-1].group != v->group)
			continue;
		gap = v->id - v[-1].id;
		if (gap != v->at - v[-1].at)
			continue;
		for (uint32_t i = 1; i < gap; i++)
			if (m->owner[v->at - i] == OFS_NONE)
				ids->v[v->id - i].name =
				    m->model.v[v->at - i].key;
	}
}

/* Fill m->group. */
static void groups_of_ids(struct match *m)
{
	const struct ofs_value *v;
	uint32_t group;
	int64_t id;

	memset(m->group, 0xff, m->nids * sizeof(*m->group));
	for (uint32_t i = 0; i < m->c->cat->nentries; i++) {
		v = ofs_naming_params(m->c, i, m->c->ids_root, &group);
		if (v == NULL)
			continue;
		for (uint32_t k = 0; k < ofs_pk_len(v->doc, v->node); k++)
			if (ofs_pk_int(v->doc, ofs_pk_item(v->doc, v->node, k),
				&id) &&
			    id >= 0 && id < m->nids)
				m->group[id] = group;
	}
}

OFS_COMPARE_BY2(by_group, struct member, group, id)

static void sort_members(struct match *m, const struct ofs_shapes *state)
{
	bool known = true;

	for (uint32_t i = 0; i < state->n; i++)
		known = known && m->group[state->v[i].key] != OFS_NONE;
	for (uint32_t i = 0; i < state->n; i++)
		m->v[m->n++] = (struct member){
			.group = known ? m->group[state->v[i].key] : 0,
			.id = state->v[i].key,
			.entry = state->v[i].entry,
		};
	qsort(m->v, m->n, sizeof(*m->v), by_group);
	m->hint = known
	    ? ""
	    : "; params, which says what groups there are, is not read at "
	      "mount";
}

static int match(struct match *m, const struct ofs_shapes *state,
    struct ofs_ids *ids, struct optimfs_error *err)
{
	m->owner = malloc(m->model.n * sizeof(*m->owner));
	m->group = malloc(m->nids * sizeof(*m->group));
	m->v = malloc(state->n * sizeof(*m->v));
	ids->v = malloc(m->nids * sizeof(*ids->v));
	if (m->owner == NULL || m->group == NULL || m->v == NULL ||
	    ids->v == NULL)
		return ofs_no_memory(err);
	memset(m->owner, 0xff, m->model.n * sizeof(*m->owner));
	memset(ids->v, 0xff, m->nids * sizeof(*ids->v));
	ids->n = m->nids;
	groups_of_ids(m);
	sort_members(m, state);
	if (match_groups(m, err) == -1)
		return -1;
	fill(m, ids);
	return 0;
}

static int enough(struct match *m, const struct ofs_shapes *state,
    struct optimfs_error *err)
{
	if (state->n == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: no state has a shape that identifies a parameter");
	m->nids = state->v[state->n - 1].key + 1;
	if (m->nids > m->model.n)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: ID %u, but the model has %u tensors",
		    m->nids - 1, m->model.n);
	return 0;
}

int ofs_naming_ids_of_model(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct match m = { .c = c };
	struct ofs_shapes state = { 0 };
	int ret;

	/* without its map of keys, an index has no order */
	if (c->cat->unordered && c->ntext > 0)
		return optimfs_fail(err, EINVAL,
		    "OFS636 ids=model: the index has no map of keys, so the "
		    "order of the model's tensors is unknown; name the IDs in "
		    "a file");
	ret = ofs_shapes_of_model(c, &m.model, err);
	if (ret == 0)
		ret = ofs_shapes_of_state(c, &state, err);
	if (ret == 0)
		ret = enough(&m, &state, err);
	if (ret == 0)
		ret = match(&m, &state, ids, err);
	free(m.model.v);
	free(m.owner);
	free(m.group);
	free(m.v);
	free(state.v);
	return ret;
}
