/* optim_ids.c - the parameter of each integer ID of an optimizer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "format/fsdp/fsdp.h"
#include "format/fsdp/optim.h"
#include "naming/ids_file.h"
#include "naming/ids_order.h"

/* The files of a raw optimizer have numbers for its parameters and no names.
 * docs/formats/fsdp.md, "Which ID is which parameter", has the rules; this is how
 * they are tried.
 *
 * The evidence is the length of state: of the first tensor of an ID, each rank
 * must have as many elements as the layout gives it of a parameter (has_slices),
 * or of a unit (has_shards). Parameters of equal shape at similar places have
 * equal lengths, so that a single ID proves little, and all IDs are matched at
 * once, against an order of the parameters (naming/ids_order.h), of which the
 * optimizer may lack some. In turn:
 *
 *     match_units             units instead of parameters
 *     ofs_fsdp_match_names    names were given: only their lengths are checked
 *     order_of_units          the units file lists the model's parameters, or no
 *                             unit is part of another one
 *     order_of_entries        the order of the model's entries, in a file that
 *                             keeps it
 *
 * An ID without state fits any parameter, and two results that differ in such IDs
 * only are both right as far as state is concerned. Then learn_dims uses that
 * most jobs have one group of matrices and one of vectors, and the orders are
 * tried again. Each match fills o->name; 1 means that it does not apply. */

/* The parameters that a group has. */
enum { MATRICES = 1, VECTORS = 2 };

/* The state that identifies an ID: its first tensor; NULL: none. */
static const struct ofs_ranks_group *telling(const struct ofs_fsdp_optim *o,
    uint32_t id)
{
	for (uint32_t i = o->first[id]; i < o->first[id + 1]; i++)
		if (o->state[i].tensor && !o->state[i].nested)
			return &o->f->set->group[o->state[i].group];
	return NULL;
}

bool ofs_fsdp_shape(const struct ofs_fsdp *f, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t)
{
	return ofs_torch_tensor(f->set->file[leaf->file].doc, leaf->node, t,
		   NULL) == 1;
}

bool ofs_fsdp_is_whole(const struct ofs_fsdp *f, struct ofs_unit_place at,
    const struct ofs_torch_tensor *t)
{
	const struct ofs_unit_param *p = ofs_fsdp_param(f, at);

	return f->units->unit[at.unit].whole && t->ndim == p->ndim &&
	    memcmp(t->shape, p->shape, t->ndim * sizeof(*t->shape)) == 0;
}

static uint32_t list_of(const struct ofs_fsdp_optim *o, uint32_t id)
{
	uint32_t i = 0;

	while (id >= o->size[i])
		id -= o->size[i++];
	return i;
}

static uint8_t dims_of(const struct ofs_fsdp *f, struct ofs_unit_place at)
{
	return ofs_fsdp_param(f, at)->ndim >= 2 ? MATRICES : VECTORS;
}

static bool has_slices(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, struct ofs_unit_place at)
{
	const struct ofs_ranks *set = o->f->set;
	uint32_t i = g->first;

	for (uint32_t k = 0; k < set->nfiles; k++) {
		struct ofs_flat_slice s;
		struct ofs_torch_tensor t;

		if (set->file[k].surplus)
			continue;
		s = ofs_fsdp_slice(o->f, &set->file[k], at);
		if (i == g->first + g->n || set->leaf[i].file != k) {
			if (s.count > 0)
				return false;
			continue;
		}
		if (!ofs_fsdp_shape(o->f, &set->leaf[i++], &t) ||
		    (!ofs_fsdp_is_whole(o->f, at, &t) &&
			(t.ndim != 1 || t.shape[0] != s.count || s.count == 0 ||
			    o->f->units->unit[at.unit].whole)))
			return false;
	}
	return true;
}

/* Does every rank have a shard of this unit, with padding? */
static bool has_shards(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, uint32_t unit)
{
	const struct ofs_ranks *set = o->f->set;
	uint32_t missing = set->nfiles;

	for (uint32_t k = 0; k < set->nfiles; k++)
		missing -= set->file[k].surplus;
	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		struct ofs_torch_tensor t;

		if (!ofs_fsdp_shape(o->f, &set->leaf[i], &t) || t.ndim != 1 ||
		    t.shape[0] != o->f->units->unit[unit].flat.shard)
			return false;
		missing -= !set->file[set->leaf[i].file].surplus;
	}
	return missing == 0;
}

bool ofs_fsdp_fits(const struct ofs_fsdp_optim *o,
    const struct ofs_ranks_group *g, struct ofs_unit_place at)
{
	return o->packed ? has_shards(o, g, at.unit) : has_slices(o, g, at);
}

bool ofs_fsdp_may_be(const struct ofs_fsdp_optim *o, uint32_t id,
    struct ofs_unit_place at)
{
	const struct ofs_ranks_group *g = telling(o, id);

	if (g != NULL)
		return has_slices(o, g, at);
	return !o->by_dims ||
	    (o->dims[list_of(o, id)] | dims_of(o->f, at)) !=
	    (MATRICES | VECTORS);
}

static bool may_be_unit(const struct ofs_fsdp_optim *o, uint32_t id,
    uint32_t unit)
{
	const struct ofs_ranks_group *g = telling(o, id);

	return g == NULL || has_shards(o, g, unit);
}

/* Matching IDs. */

/* Does every ID, or every ID with state, have a name? */
static bool all_told(const struct ofs_fsdp_optim *o, bool with_state)
{
	for (uint32_t id = 0; id < o->nids; id++)
		if (o->name[id].unit == OFS_NONE &&
		    (!with_state || o->first[id] < o->first[id + 1]))
			return false;
	return true;
}

/* Units or parameters, in the order of the model. */
struct listed {
	const struct ofs_fsdp_optim *o;
	const struct ofs_unit_place *at;
};

static bool fits_param(const void *ctx, uint32_t id, uint32_t i)
{
	const struct listed *l = ctx;

	return ofs_fsdp_may_be(l->o, id, l->at[i]);
}

static bool fits_unit(const void *ctx, uint32_t id, uint32_t i)
{
	const struct listed *l = ctx;

	return may_be_unit(l->o, id, l->at[i].unit);
}

/* Matches IDs with n of them; an ID that may be several gets no name. */
static int match_list(struct ofs_fsdp_optim *o, const struct ofs_unit_place *at,
    uint32_t n, ofs_ids_fits_fn *fits, struct optimfs_error *err)
{
	struct listed l = { o, at };
	struct ofs_ids_order order = { n, o->size, o->nlists, fits, &l };
	struct ofs_ids_range *range =
	    ofs_alloc(o->nids + 1ull, sizeof(*range), err);
	uint32_t id;
	int ret;

	if (range == NULL)
		return -1;
	ret = ofs_ids_order_find(&order, range, &id, err);
	for (uint32_t k = 0; k < o->nids && ret == 0; k++)
		o->name[k] = range[k].first == range[k].last
		    ? at[range[k].first]
		    : (struct ofs_unit_place){ OFS_NONE, 0 };
	free(range);
	return ret != 1
	    ? ret
	    : optimfs_fail(err, EINVAL,
		  "OFS164 parameter IDs: in the order of the "
		  "model, the %" PRIu32
		  " parameters of the units do not fit the state "
		  "of %" PRIu32 " IDs; the units file needs "
		  "param_groups (" OFS_DUMP_UNITS "), or give -o ids=FILE",
		  n, o->nids);
}

/* The result of a match that failed: 1, unless memory is exhausted. */
static int no_match(const struct optimfs_error *why, struct optimfs_error *err)
{
	return why->code == ENOMEM ? optimfs_fail_with(err, why) : 1;
}

/* The optimizer's name number i: that of ids=, or else of the units file. */
static int listed_name(const struct ofs_fsdp_optim *o, uint32_t i,
    struct ofs_str *name, struct optimfs_error *err)
{
	uint32_t str;

	if (o->f->ids == NULL) {
		*name = o->f->units->ids[i];
		return 0;
	}
	str = ofs_fsdp_clean(o->f, o->f->ids->v[i].name, err);
	if (str == OFS_NONE)
		return -1;
	*name = ofs_catalog_string(o->f->set->cat, str);
	return 0;
}

/* Is name number i in the group of this ID? Only ids= may tell. */
static bool in_group(const struct ofs_fsdp_optim *o, uint32_t i, uint32_t id)
{
	const struct ofs_ids_file *ids = o->f->ids;

	return ids == NULL || ids->ngroups < 2 ||
	    ids->v[i].group == list_of(o, id);
}

/* Matches units, and parameters that FSDP ignored, in the order of the
 * optimizer's names. 1: the names of a unit are not consecutive, or do not
 * fit. */
static int match_named_units(struct ofs_fsdp_optim *o,
    struct optimfs_error *err)
{
	const struct ofs_units *u = o->f->units;
	uint32_t nnames = o->f->ids != NULL ? o->f->ids->n : u->nids, n = 0;
	bool *seen = calloc(u->n + 1ull, sizeof(*seen));
	int ret = seen == NULL ? ofs_no_memory(err) : 0;

	for (uint32_t i = 0; i < nnames && ret == 0; i++) {
		struct ofs_unit_place at;
		struct ofs_str name;

		if (listed_name(o, i, &name, err) == -1) {
			ret = -1;
			break;
		}
		at = ofs_fsdp_find(o->f, name);
		if (at.unit != OFS_NONE && n > 0 &&
		    o->name[n - 1].unit == at.unit && in_group(o, i, n - 1))
			continue;
		if (n == o->nids || !in_group(o, i, n) ||
		    (at.unit == OFS_NONE
			    ? !ofs_fsdp_knows(o->f, name)
			    : seen[at.unit] || !may_be_unit(o, n, at.unit))) {
			ret = 1;
		} else if (at.unit == OFS_NONE) {
			o->name[n] = at;
			o->ignored[n++] = name;
		} else {
			o->name[n++] = (struct ofs_unit_place){ at.unit, 0 };
			seen[at.unit] = true;
		}
	}
	free(seen);
	if (ret == 0 && n == o->nids) {
		o->f->set->cat->ids_used |= o->f->ids != NULL;
		return 0;
	}
	memset(o->ignored, 0, o->nids * sizeof(*o->ignored));
	return ret == -1 ? -1 : 1;
}

static int match_all_units(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	uint32_t n = o->f->units->n;
	struct ofs_unit_place *at = ofs_alloc(n + 1ull, sizeof(*at), err);
	struct optimfs_error why = { 0 };
	int ret;

	if (at == NULL)
		return -1;
	for (uint32_t i = 0; i < n; i++)
		at[i].unit = i;
	ret = match_list(o, at, n, fits_unit, &why);
	free(at);
	if (ret == -1)
		return no_match(&why, err);
	return all_told(o, true) ? 0 : 1;
}

/* use_orig_params=False: each ID is a unit, in the order of units or of names.
 * 1: this does not match. */
static int match_units(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	int ret = match_named_units(o, err);

	if (ret == 1 && o->f->ids == NULL && o->nids == o->f->units->n)
		ret = match_all_units(o, err);
	o->packed = ret == 0;
	return ret;
}

/* Fills at[] with an order of parameters, and *n. 1: it is not known. */
typedef int order_fn(const struct ofs_fsdp_optim *o, struct ofs_unit_place *at,
    uint32_t *n, struct optimfs_error *err);

/* Is module m part of another one of these? */
static bool is_nested(const struct ofs_keys *modules, struct ofs_str m)
{
	while (m.len > 0) {
		m.len--;
		while (m.len > 0 && m.p[m.len] != '.')
			m.len--;
		if (ofs_keys_has(modules, m))
			return true;
	}
	return false;
}

/* 1: units are parts of others, in whatever order the units file has them. */
static int has_nested(const struct ofs_units *u, struct optimfs_error *err)
{
	struct ofs_keys modules = { 0 };
	int ret = 0;

	for (uint32_t i = 0; i < u->n && ret == 0; i++)
		if (u->unit[i].flat.nparams > 0 &&
		    ofs_keys_add(&modules, u->unit[i].prefix, err) == OFS_NONE)
			ret = -1;
	for (uint32_t i = 0; i < u->n && ret == 0; i++)
		if (u->unit[i].flat.nparams > 0)
			ret = is_nested(&modules, u->unit[i].prefix);
	ofs_keys_fini(&modules);
	return ret;
}

/* The order of the units file; parameters of no unit are skipped: their state
 * cannot be identified here. Without it, the parameters of a unit are in order, and
 * units are; but where in a unit one that is part of it begins is not known. */
static int order_of_units(const struct ofs_fsdp_optim *o,
    struct ofs_unit_place *at, uint32_t *n, struct optimfs_error *err)
{
	const struct ofs_units *u = o->f->units;
	int nested = u->norder == 0 ? has_nested(u, err) : 0;

	if (nested == -1)
		return -1;
	if (nested == 1)
		return optimfs_fail(err, EINVAL,
		    "OFS164 parameter IDs: the order of the model is not "
		    "known, because units are parts of others; the units file "
		    "needs parameters or param_groups (" OFS_DUMP_UNITS
		    "), or give -o ids=FILE");
	*n = 0;
	for (uint32_t i = 0; i < u->norder; i++) {
		at[*n] = ofs_fsdp_find(o->f, u->order[i]);
		*n += at[*n].unit != OFS_NONE;
	}
	for (uint32_t i = 0; i < u->n && u->norder == 0; i++)
		for (uint32_t k = 0; k < u->unit[i].flat.nparams; k++)
			at[(*n)++] = (struct ofs_unit_place){ i, k };
	return 0;
}

/* The parameter that entry i of the model is; unit OFS_NONE: none. */
static int param_of_entry(const struct ofs_fsdp_optim *o, uint32_t i,
    struct ofs_unit_place *at, struct optimfs_error *err)
{
	struct ofs_catalog *cat = o->f->set->cat;
	uint32_t len, clean;
	const uint32_t *part =
	    ofs_catalog_components(cat, cat->entries[i].path, &len);

	at->unit = OFS_NONE;
	if (len == 0 || cat->entries[i].kind != OFS_ENTRY_TENSOR)
		return 0;
	clean =
	    ofs_fsdp_clean(o->f, ofs_catalog_string(cat, part[len - 1]), err);
	if (clean == OFS_NONE)
		return -1;
	*at = ofs_fsdp_find(o->f, ofs_catalog_string(cat, clean));
	return 0;
}

/* The order of the model's entries, if the checkpoint has a model and it was read
 * before. 1: not each parameter is one of them, or their file does not keep the
 * order of the model. */
static int order_of_entries(const struct ofs_fsdp_optim *o,
    struct ofs_unit_place *at, uint32_t *n, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = o->f->set->cat;
	uint32_t max = o->f->units->names.n, first = 0, last = 0;
	struct ofs_unit_place twice;

	*n = 0;
	for (uint32_t i = 0; i < cat->nentries && *n <= max; i++) {
		if (param_of_entry(o, i, &at[*n], err) == -1)
			return -1;
		if (at[*n].unit == OFS_NONE)
			continue;
		if ((*n)++ == 0)
			first = i;
		last = i;
	}
	if (*n != max || max == 0 ||
	    ofs_catalog_evidence(cat, first, last) != OFS_IN_ORDER)
		return 1;
	if (ofs_fsdp_repeated(at, max, &twice, err) == -1)
		return -1;
	return twice.unit != OFS_NONE;
}

/* IDs without state fit any parameter. If a group's named parameters are all
 * matrices, or all vectors (biases and norms, without weight decay), then the
 * IDs without state must be the same. */
static void learn_dims(struct ofs_fsdp_optim *o)
{
	uint32_t id = 0;

	for (uint32_t i = 0; i < o->nlists; i++)
		for (uint32_t k = 0; k < o->size[i]; k++, id++)
			if (o->name[id].unit != OFS_NONE)
				o->dims[i] |= dims_of(o->f, o->name[id]);
	o->by_dims = true;
}

/* Matches by an order. 1: this does not match, and *why may say more. */
static int attempt(struct ofs_fsdp_optim *o, order_fn *find,
    struct optimfs_error *why, struct optimfs_error *err)
{
	const struct ofs_units *u = o->f->units;
	uint64_t most = u->norder > u->names.n ? u->norder : u->names.n;
	struct ofs_unit_place *at = ofs_alloc(most + 1, sizeof(*at), err);
	struct optimfs_error e = { 0 };
	uint32_t n;
	int ret;

	if (at == NULL)
		return -1;
	ret = find(o, at, &n, &e);
	if (ret == 0)
		ret = match_list(o, at, n, fits_param, &e);
	free(at);
	if (ret != -1)
		return ret;
	if (why->code == 0 && find == order_of_units)
		*why = e;
	return no_match(&e, err);
}

/* Tries both. 0: all IDs have names; 1: if *any, best has names for all IDs
 * with state. */
static int attempts(struct ofs_fsdp_optim *o, struct ofs_unit_place *best,
    bool *any, struct optimfs_error *why, struct optimfs_error *err)
{
	static order_fn *const orders[] = { order_of_units, order_of_entries };

	for (int i = 0; i < 2; i++) {
		int ret = attempt(o, orders[i], why, err);

		if (ret == -1)
			return -1;
		if (ret == 1 || !all_told(o, true))
			continue;
		if (all_told(o, false))
			return 0;
		memcpy(best, o->name, o->nids * sizeof(*best));
		*any = true;
	}
	return 1;
}

static int note_dims(const struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	return ofs_catalog_note(o->f->set->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS168 %s: parameters without state were named by the dimensions of the others in their group",
	    o->f->set->file[0].rel);
}

static int match_all(struct ofs_fsdp_optim *o, struct ofs_unit_place *best,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	bool any = false;
	int ret = attempts(o, best, &any, &why, err);

	if (ret == 1 && any) {
		memcpy(o->name, best, o->nids * sizeof(*best));
		learn_dims(o);
		ret = attempts(o, best, &any, &why, err);
		if (ret == 0)
			return note_dims(o, err);
		memcpy(o->name, best, o->nids * sizeof(*best));
		return ret == -1 ? -1 : 0;
	}
	if (ret != 1)
		return ret;
	if (why.code != 0)
		return optimfs_fail_with(err, &why);
	return optimfs_fail(err, EINVAL,
	    "OFS164 parameter IDs: several parameters have the same slices; "
	    "the units file needs param_groups (" OFS_DUMP_UNITS
	    "), or give -o ids=FILE");
}

int ofs_fsdp_match(struct ofs_fsdp_optim *o, struct optimfs_error *err)
{
	struct ofs_unit_place *best = calloc(o->nids + 1ull, sizeof(*best));
	int ret;

	o->name = calloc(o->nids + 1ull, sizeof(*o->name));
	o->ignored = calloc(o->nids + 1ull, sizeof(*o->ignored));
	o->dims = calloc(o->nlists + 1ull, sizeof(*o->dims));
	if (best == NULL || o->name == NULL || o->ignored == NULL ||
	    o->dims == NULL)
		ret = ofs_no_memory(err);
	else
		ret = o->f->units->named ? 1 : match_units(o, err);
	if (ret == 1)
		ret = ofs_fsdp_match_names(o, err);
	if (ret == 1)
		ret = match_all(o, best, err);
	free(best);
	return ret;
}
