/* ids_check.c - the check that the names of a file fit the IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "naming/ids.h"
#include "pickle/pickle.h"

OFS_COMPARE_KEY(compare_key, uint32_t, struct ofs_shaped, key)

/* Compare the shapes of state with those of the model that a file names. */
static int check_shapes(struct naming *c, const struct ofs_ids *ids,
    const struct ofs_shapes *model, const struct ofs_shapes *state,
    struct optimfs_error *err)
{
	char want[64], have[64];

	for (uint32_t i = 0; i < state->n; i++) {
		const struct ofs_id *id = &ids->v[state->v[i].key];
		const struct ofs_shaped *m = ofs_search(&id->name, model->v,
		    model->n, sizeof(*m), compare_key);

		if (m == NULL || state->v[i].entry == OFS_NONE ||
		    ofs_shapes_same(c, m->entry, state->v[i].entry))
			continue;
		ofs_shapes_print(c, m->entry, want);
		ofs_shapes_print(c, state->v[i].entry, have);
		return optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: %.150s has shape [%s], the state of "
		    "ID %u [%s]",
		    ids->file, id->line, ofs_catalog_string(c->cat, id->name).p,
		    want, state->v[i].key, have);
	}
	return 0;
}

/* The number of parameters of each group, where it is known without reading. */
struct groups {
	uint32_t n; /* highest number + 1 */
	uint32_t cap;
	uint32_t *size; /* OFS_NONE: unknown */
};

/* *group = the group of entry. A number of a million or more is damage. */
static bool group_of(const struct naming *c, uint32_t entry, uint32_t root,
    struct naming_key *key, uint32_t *group)
{
	if (c->slot[entry].root != root)
		return false;
	*key = ofs_naming_key(c, entry);
	return key->kind == NAMING_GROUP && ofs_str_number(key->id.s, group) &&
	    *group < 1u << 20;
}

const struct ofs_value *ofs_naming_params(const struct naming *c,
    uint32_t entry, uint32_t root, uint32_t *group)
{
	const struct ofs_entry *e = &c->cat->entries[entry];
	const struct ofs_value *v;
	struct naming_key key;

	if (e->kind != OFS_ENTRY_VALUE ||
	    !group_of(c, entry, root, &key, group) ||
	    !ofs_str_is(ofs_naming_last(c, &key), "params"))
		return NULL;
	v = &c->cat->values[e->ref];
	return ofs_pk_kind(v->doc, v->node) == OFS_PK_LIST ? v : NULL;
}

/* IDs must be indexes of the list of names. */
static int check_places(const struct ofs_ids *ids, const struct ofs_value *v,
    uint32_t group, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < ofs_pk_len(v->doc, v->node); i++) {
		int64_t id;

		if (ofs_pk_int(v->doc, ofs_pk_item(v->doc, v->node, i), &id) &&
		    (id < 0 || id >= ids->n))
			return optimfs_fail(err, EUCLEAN,
			    "OFS644 group %u lists ID %" PRId64
			    ", which no parameter has: there are %u",
			    group, id, ids->n);
	}
	return 0;
}

static int see_group(struct naming *c, uint32_t entry, struct groups *g,
    struct optimfs_error *err)
{
	const struct ofs_value *v;
	struct naming_key key;
	uint32_t number;

	if (!group_of(c, entry, c->ids_root, &key, &number))
		return 0;
	if (number >= g->n) {
		if (ofs_reserve(g->size, number + 1ull, g->cap, err) == -1)
			return -1;
		while (g->n <= number)
			g->size[g->n++] = OFS_NONE;
	}
	v = ofs_naming_params(c, entry, c->ids_root, &number);
	if (v != NULL)
		g->size[number] = ofs_pk_len(v->doc, v->node);
	return 0;
}

static int surplus(const struct ofs_ids *ids, uint32_t at, uint64_t want,
    struct optimfs_error *err)
{
	uint32_t line = at < ids->n ? ids->v[at].line : ids->line;

	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %u: %u names, the optimizer has %" PRIu64
	    " parameters",
	    ids->file, line, ids->n, want);
}

static int check_groups(const struct ofs_ids *ids, const struct groups *g,
    struct optimfs_error *err)
{
	uint64_t total = 0;
	uint32_t at = 0, end;

	for (uint32_t i = 0; i < g->n; i++) {
		if (g->size[i] == OFS_NONE)
			return 0;
		total += g->size[i];
	}
	if (g->n > 0 && total != ids->n)
		return surplus(ids, total < ids->n ? (uint32_t)total : ids->n,
		    total, err);
	for (uint32_t i = 0; i < g->n && ids->ngroups > 1; i++, at = end) {
		for (end = at; end < ids->n && ids->v[end].group == i; end++)
			;
		if (end - at != g->size[i])
			return optimfs_fail(err, EINVAL,
			    "OFS635 %s: line %u: group %u has %u names, "
			    "the optimizer's has %u parameters",
			    ids->file, at < ids->n ? ids->v[at].line : 0, i,
			    end - at, g->size[i]);
	}
	return 0;
}

static int surplus_group(const struct ofs_ids *ids, uint32_t ngroups,
    struct optimfs_error *err)
{
	uint32_t i = 0;

	while (i + 1 < ids->n && ids->v[i].group < ngroups)
		i++;
	return optimfs_fail(err, EINVAL,
	    "OFS635 %s: line %u: %u groups of names, the optimizer has %u",
	    ids->file, ids->v[i].line, ids->ngroups, ngroups);
}

static int check_counts(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	const struct naming_candidate *r = &c->root[c->ids_root];
	struct groups g = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++)
		ret = see_group(c, i, &g, err);
	if (ret == 0 && ids->ngroups > 1 && g.n > 0 && g.n != ids->ngroups)
		ret = surplus_group(ids, g.n, err);
	if (ret == 0)
		ret = check_groups(ids, &g, err);
	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++) {
		const struct ofs_value *v;
		uint32_t group;

		v = ofs_naming_params(c, i, c->ids_root, &group);
		if (v != NULL)
			ret = check_places(ids, v, group, err);
	}
	if (ret == 0 && r->numbers && r->max_id >= ids->n)
		ret = optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u: the file ends after %u names, but "
		    "ID %u has state",
		    ids->file, ids->line, ids->n, r->max_id);
	free(g.size);
	return ret;
}

int ofs_naming_check_ids(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err)
{
	struct ofs_shapes model = { 0 }, state = { 0 };
	int ret = check_counts(c, ids, err);

	if (ret == 0)
		ret = ofs_shapes_of_model(c, &model, err);
	if (ret == 0)
		ret = ofs_shapes_of_state(c, &state, err);
	if (ret == 0) {
		ofs_shapes_sort(&model);
		ret = check_shapes(c, ids, &model, &state, err);
	}
	free(model.v);
	free(state.v);
	return ret;
}
