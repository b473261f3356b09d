/* optim.c - each rank's raw optimizer.state_dict(), by parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/optim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

static const struct ofs_ranks_leaf *first_leaf(const struct ofs_fsdp *f,
    const struct ofs_ranks_group *g)
{
	return &f->set->leaf[g->first];
}

/* Is the path of g [parent..., word, number, any...]? */
static bool is_below(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, const char *word, uint32_t *number)
{
	const struct ofs_catalog *cat = o->f->set->cat;
	uint32_t n;
	const uint32_t *part = ofs_catalog_components(cat, g->path, &n);

	return n >= o->nparent + 3 &&
	    (o->nparent == 0 ||
		memcmp(part, o->parent, o->nparent * sizeof(*part)) == 0) &&
	    ofs_catalog_string_is(cat, part[o->nparent], word) &&
	    ofs_str_digits(ofs_catalog_string(cat, part[o->nparent + 1]),
		number);
}

static bool is_params(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g)
{
	uint32_t n, number;
	const uint32_t *part =
	    ofs_catalog_components(o->f->set->cat, g->path, &n);

	return is_below(o, g, "param_groups", &number) && n == o->nparent + 3 &&
	    ofs_catalog_string_is(o->f->set->cat, part[n - 1], "params");
}

/* IDs. */

OFS_COMPARE_BY(by_value, struct number, value)

static uint32_t find_id(const struct ofs_fsdp_optim *o, int64_t value)
{
	struct number key = { value, 0 }, *found;

	found = ofs_search(&key, o->number, o->nids, sizeof(key), by_value);
	return found == NULL ? OFS_NONE : found->id;
}

/* Checks that all ranks list the same IDs. */
static int check_lists(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, struct optimfs_error *err)
{
	const struct ofs_ranks *set = o->f->set;
	const struct ofs_ranks_leaf *a = first_leaf(o->f, g);
	const struct ofs_pickle *doc = set->file[a->file].doc;
	uint32_t n = ofs_pk_len(doc, a->node);

	for (uint32_t i = 1; i < g->n; i++) {
		const struct ofs_ranks_leaf *b = a + i;
		const struct ofs_pickle *other = set->file[b->file].doc;
		bool same = ofs_pk_len(other, b->node) == n;

		for (uint32_t k = 0; k < n && same; k++) {
			int64_t x = 0, y = 0;

			same =
			    ofs_pk_int(doc, ofs_pk_item(doc, a->node, k), &x) &&
			    ofs_pk_int(other, ofs_pk_item(other, b->node, k),
				&y) &&
			    x == y;
		}
		if (!same)
			return optimfs_fail(err, EUCLEAN,
			    "OFS165 rank %d and rank %d list different "
			    "parameters in a group",
			    set->file[a->file].rank, set->file[b->file].rank);
	}
	return 0;
}

/* Adds the IDs of a list; 1: it holds something else. */
static int add_list(struct ofs_fsdp_optim *o, uint32_t group,
    struct optimfs_error *err)
{
	const struct ofs_ranks_group *g = &o->f->set->group[group];
	const struct ofs_ranks_leaf *leaf = first_leaf(o->f, g);
	const struct ofs_pickle *doc = o->f->set->file[leaf->file].doc;
	uint32_t n = ofs_pk_len(doc, leaf->node);
	struct number *p;

	if (ofs_pk_kind(doc, leaf->node) != OFS_PK_LIST)
		return 1;
	/* groups may share their list, so that IDs could need any memory */
	if ((uint64_t)o->nids + n > ofs_pickle_nodes(doc))
		return optimfs_fail(err, EUCLEAN,
		    "OFS165 the optimizer's groups list more IDs than there "
		    "are numbers in the file");
	p = reallocarray(o->number, o->nids + n + 1ull, sizeof(*p));
	if (p == NULL)
		return ofs_no_memory(err);
	o->number = p;
	for (uint32_t i = 0; i < n; i++) {
		if (!ofs_pk_int(doc, ofs_pk_item(doc, leaf->node, i),
			&p[o->nids].value) ||
		    p[o->nids].value < 0 || p[o->nids].value > INT32_MAX)
			return 1;
		p[o->nids].id = o->nids;
		o->nids++;
	}
	o->params[o->nlists] = group;
	o->size[o->nlists++] = n;
	/* Without units, ranks may have optimizers of their own: stages of a
	 * pipeline. What their files differ in is then an error of that entry. */
	return o->f->units == NULL ? 0 : check_lists(o, g, err);
}

static int find_lists(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	uint32_t n = o->f->set->ngroups;
	int ret = 0;

	o->params = calloc(n + 1ull, sizeof(*o->params));
	o->size = calloc(n + 1ull, sizeof(*o->size));
	if (o->params == NULL || o->size == NULL)
		return ofs_no_memory(err);
	/* groups of the set are in the order of the state dict */
	for (uint32_t i = 0; i < n && ret == 0; i++)
		if (is_params(o, &o->f->set->group[i]))
			ret = add_list(o, i, err);
	if (ret != 0)
		return ret;
	if (o->nids == 0)
		return 1;
	qsort(o->number, o->nids, sizeof(*o->number), by_value);
	for (uint32_t i = 1; i < o->nids; i++)
		if (o->number[i].value == o->number[i - 1].value)
			return optimfs_fail(err, EUCLEAN,
			    "OFS165 parameter ID %" PRId64
			    " is in the optimizer's groups twice",
			    o->number[i].value);
	return 0;
}

/* States. */

/* Is the first rank's leaf a tensor of at least one dimension? */
static bool is_tensor(const struct ofs_fsdp *f, const struct ofs_ranks_group *g)
{
	struct ofs_torch_tensor t;

	return ofs_fsdp_shape(f, first_leaf(f, g), &t) && t.ndim > 0;
}

static bool is_nested(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g)
{
	uint32_t n;

	ofs_catalog_components(o->f->set->cat, g->path, &n);
	return n > o->nparent + 3;
}

OFS_COMPARE_BY2(by_id, struct ofs_fsdp_state, id, group)

/* Puts state apart whose ID no group lists. Without units, naming does this. */
static int put_unmatched(struct ofs_fsdp_optim *o, struct ofs_ranks_group *g,
    uint32_t number, struct optimfs_error *err)
{
	struct optimfs_error why;

	if (o->f->units == NULL)
		return 0;
	optimfs_fail(&why, EUCLEAN,
	    "OFS644 there is state of parameter ID %" PRIu32
	    ", which none of the %" PRIu32 " param_groups lists",
	    number, o->nlists);
	return ofs_ranks_apart(o->f->set, g, &why, err);
}

static int find_states(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	struct ofs_ranks *set = o->f->set;
	uint32_t number;

	o->state = calloc(set->ngroups + 1ull, sizeof(*o->state));
	o->first = calloc(o->nids + 2ull, sizeof(*o->first));
	if (o->state == NULL || o->first == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < set->ngroups; i++) {
		struct ofs_ranks_group *g = &set->group[i];
		uint32_t id;

		if (g->taken || !is_below(o, g, "state", &number))
			continue;
		id = find_id(o, number);
		if (id == OFS_NONE) {
			if (put_unmatched(o, g, number, err) == -1)
				return -1;
			continue;
		}
		o->state[o->nstates++] = (struct ofs_fsdp_state){ id, i,
			is_tensor(o->f, g), is_nested(o, g) };
	}
	qsort(o->state, o->nstates, sizeof(*o->state), by_id);
	for (uint32_t i = 0, id = 0; id <= o->nids; id++) {
		while (i < o->nstates && o->state[i].id < id)
			i++;
		o->first[id] = i;
	}
	o->first[o->nids + 1] = o->nstates;
	return 0;
}

/* Without units. */

/* Does the state look like slices: does all of it have one dimension? No model
 * has only such parameters if each rank holds them whole. */
static bool looks_flat(const struct ofs_fsdp_optim *o)
{
	bool any = false;

	for (uint32_t i = 0; i < o->nstates; i++) {
		const struct ofs_ranks_group *g =
		    &o->f->set->group[o->state[i].group];
		struct ofs_torch_tensor t;

		if (!o->state[i].tensor || o->state[i].nested)
			continue;
		if (!ofs_fsdp_shape(o->f, first_leaf(o->f, g), &t) ||
		    t.ndim != 1)
			return false;
		any = true;
	}
	return any && o->f->set->nfiles > 1;
}

static int put_apart(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	struct optimfs_error why;

	optimfs_fail(&why, EOPNOTSUPP,
	    "OFS166 units unknown: -o units=FILE says which parameters the "
	    "slices belong to; .optimfs/rank/ has the slices");
	ofs_mark_lost(&why, OPTIMFS_LOST_UNITS);
	for (uint32_t i = 0; i < o->nstates; i++)
		if (o->state[i].tensor &&
		    ofs_ranks_apart(o->f->set,
			&o->f->set->group[o->state[i].group], &why, err) == -1)
			return -1;
	return 0;
}

/* Notes missing files that only the units tell of: they record the world
 * size. */
static int note_missing(struct ofs_fsdp *f, struct optimfs_error *err)
{
	uint32_t world = 0;

	for (uint32_t u = 0; u < f->units->n; u++)
		if (f->units->unit[u].flat.world > world)
			world = f->units->unit[u].flat.world;
	if (world <= f->set->nfiles || (int)world <= f->set->world)
		return 0;
	return ofs_catalog_note(f->set->cat, OFS_NOTE_MISSING, EIO, err,
	    "OFS180 %s: %" PRIu32 " of at least %" PRIu32
	    " rank files can be read",
	    f->set->file[0].rel, f->set->nfiles, world);
}

/* Optimizers. */

static int read_optim(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	int ret = find_lists(o, err);

	if (ret == 0)
		ret = find_states(o, err);
	if (ret != 0 || o->nstates == 0)
		return ret == 1 ? 0 : ret;
	if (o->f->units == NULL)
		return looks_flat(o) ? put_apart(o, err) : 0;
	ret = ofs_fsdp_match(o, err);
	if (ret == 0)
		ret = note_missing(o->f, err);
	return ret == 0 ? ofs_fsdp_states(o, err) : ret;
}

static int with_optim(struct ofs_fsdp *f, uint32_t path, uint32_t nparent,
    struct optimfs_error *err)
{
	struct ofs_fsdp_optim o = { .f = f, .nparent = nparent };
	uint32_t n;
	int ret;

	o.parent = ofs_catalog_copy_components(f->set->cat, path, &n, err);
	if (o.parent == NULL)
		return -1;
	ret = read_optim(&o, err);
	free(o.parent);
	free(o.params);
	free(o.size);
	free(o.number);
	free(o.state);
	free(o.first);
	free(o.name);
	free(o.ignored);
	free(o.dims);
	return ret;
}

/* Is this the list of the first group, which each optimizer has? */
static bool begins_optim(const struct ofs_fsdp *f,
    const struct ofs_ranks_group *g, uint32_t *nparent)
{
	uint32_t n;
	const uint32_t *part = ofs_catalog_components(f->set->cat, g->path, &n);

	if (g->taken || n < 3 ||
	    !ofs_catalog_string_is(f->set->cat, part[n - 1], "params") ||
	    !ofs_catalog_string_is(f->set->cat, part[n - 2], "0") ||
	    !ofs_catalog_string_is(f->set->cat, part[n - 3], "param_groups"))
		return false;
	*nparent = n - 3;
	return true;
}

int ofs_fsdp_optims(struct ofs_fsdp *f, struct optimfs_error *err)
{
	uint32_t n = f->set->ngroups, nparent;

	for (uint32_t i = 0; i < n; i++)
		if (begins_optim(f, &f->set->group[i], &nparent) &&
		    with_optim(f, f->set->group[i].path, nparent, err) == -1)
			return -1;
	return 0;
}
