/* entries.c - flat parameters of a LOCAL_STATE_DICT in a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/fsdp/fsdp.h"

/* In a checkpoint of torch.distributed.checkpoint the flat parameters are
 * tensors of the catalog. With use_orig_params there are also the parameters'
 * names, with one rank's slice of each: all ranks saved theirs under the same
 * name and offset, and one was kept. */

struct entries {
	struct ofs_fsdp *f;
	struct ofs_catalog *cat;
	uint32_t first, n; /* the entries of the checkpoint, up to n */
	bool *gone;        /* of each entry: it is not shown */
	bool slices;       /* some of them are slices */
};

/* The tensor of an entry; NULL: it has none. */
static const struct ofs_tensor *tensor_of(const struct entries *x, uint32_t i)
{
	const struct ofs_entry *e = &x->cat->entries[i];

	return e->kind == OFS_ENTRY_TENSOR ? &x->cat->tensors[e->ref] : NULL;
}

/* The last key of an entry's path, or "". *part and *n get the path before it,
 * until a path is added. */
static struct ofs_str key_of(const struct entries *x, uint32_t i,
    const uint32_t **part, uint32_t *n)
{
	uint32_t last;

	*part = ofs_catalog_components(x->cat, x->cat->entries[i].path, n);
	last = *n == 0 ? OFS_PATH_INDEX : (*part)[--*n];
	return (last & OFS_PATH_INDEX) != 0 ? (struct ofs_str){ "", 0 }
					    : ofs_catalog_string(x->cat, last);
}

static bool is_flat(const struct entries *x, uint32_t i)
{
	const struct ofs_tensor *t = tensor_of(x, i);
	const uint32_t *part;
	uint32_t n;

	return t != NULL && t->ndim == 1 &&
	    ofs_fsdp_is_flat_key(key_of(x, i, &part, &n));
}

/* Elements [*first, *first + *n) of flat parameter t are in shard s. */
static void range_of(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, uint64_t *first, uint64_t *n)
{
	const uint64_t *box = &cat->dims[s->box == OFS_NONE ? 0 : s->box];

	*first = s->box == OFS_NONE ? 0 : box[0];
	*n = s->box == OFS_NONE ? cat->dims[t->shape] : box[1];
}

/* The path of a mapping's key; or of the mapping, if key is NULL. */
static uint32_t path_in(struct entries *x, uint32_t entry,
    const struct ofs_str *key, struct optimfs_error *err)
{
	uint32_t n, path,
	    *part = ofs_catalog_copy_components(x->cat,
		x->cat->entries[entry].path, &n, err);

	if (part == NULL)
		return OFS_NONE;
	n -= n > 0;
	path = key == NULL ? ofs_catalog_path(x->cat, part, n, err)
			   : ofs_catalog_below(x->cat, part, n, *key, err);
	free(part);
	return path;
}

/* Without units. */

/* A mapping with flat parameters. */
struct mapping {
	uint32_t path;
	bool slices;     /* it may have slices */
	uint64_t dtypes; /* of the flat parameters: a bit for each */
};

OFS_COMPARE_BY(by_path, struct mapping, path)
OFS_COMPARE_KEY(path_is, uint32_t, struct mapping, path)

/* With use_orig_params all shards have the same size. One shard is that of one
 * rank, whose parameters are whole. */
static bool may_have_slices(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t first, n, size = 0;

	for (uint32_t i = 0; i < t->nshards; i++) {
		range_of(cat, t, &cat->shards[t->shard + i], &first, &n);
		if (i > 0 && n != size)
			return false;
		size = n;
	}
	return t->nshards > 1;
}

static int find_mappings(struct entries *x, struct mapping *m, uint32_t *nm,
    struct optimfs_error *err)
{
	uint32_t n = 0;

	for (uint32_t i = x->first; i < x->n; i++) {
		const struct ofs_tensor *t = tensor_of(x, i);

		if (!is_flat(x, i))
			continue;
		m[n++] = (struct mapping){ path_in(x, i, NULL, err),
			may_have_slices(x->cat, t), (uint64_t)1 << t->dtype };
		if (m[n - 1].path == OFS_NONE)
			return -1;
	}
	qsort(m, n, sizeof(*m), by_path);
	for (uint32_t i = 0; i < n; i++) {
		struct mapping *to = &m[*nm];

		if (*nm > 0 && to[-1].path == m[i].path) {
			to[-1].slices = to[-1].slices && m[i].slices;
			to[-1].dtypes |= m[i].dtypes;
		} else {
			*to = m[i];
			++*nm;
		}
	}
	return 0;
}

/* Makes those tensors unreadable that may be slices. */
static int spoil_slices(struct entries *x, const struct mapping *m, uint32_t nm,
    struct optimfs_error *err)
{
	uint32_t note = OFS_NONE;

	for (uint32_t i = x->first; i < x->n; i++) {
		const struct ofs_tensor *t = tensor_of(x, i);
		const struct mapping *in;
		struct optimfs_error why;
		uint32_t path;

		if (t == NULL || t->ndim != 1 || t->error != OFS_NONE ||
		    is_flat(x, i))
			continue;
		path = path_in(x, i, NULL, err);
		if (path == OFS_NONE)
			return -1;
		in = ofs_search(&path, m, nm, sizeof(*m), path_is);
		if (in == NULL || !in->slices ||
		    (in->dtypes >> t->dtype & 1) == 0)
			continue;
		if (note == OFS_NONE) {
			ofs_fsdp_no_units(&why);
			note = ofs_catalog_error(x->cat, &why, err);
		}
		if (note == OFS_NONE)
			return -1;
		x->cat->tensors[x->cat->entries[i].ref].error = note;
	}
	return 0;
}

static int without_units(struct entries *x, struct optimfs_error *err)
{
	struct mapping *m = calloc(x->n - x->first, sizeof(*m));
	uint32_t n = 0;
	int ret;

	if (m == NULL)
		return ofs_no_memory(err);
	ret = find_mappings(x, m, &n, err);
	if (ret == 0)
		ret = spoil_slices(x, m, n, err);
	free(m);
	return ret;
}

/* With units. */

/* An entry by the name that its path has without wrappers. */
struct named {
	uint32_t path, entry;
};

OFS_COMPARE_BY2(by_name, struct named, path, entry)
OFS_COMPARE_KEY(name_is, uint32_t, struct named, path)

static int find_names(struct entries *x, struct named *v, uint32_t *n,
    struct optimfs_error *err)
{
	const uint32_t *part;
	uint32_t depth, clean;
	struct ofs_str key;

	for (uint32_t i = x->first; i < x->n; i++) {
		if (tensor_of(x, i) == NULL)
			continue;
		clean = ofs_fsdp_clean(x->f, key_of(x, i, &part, &depth), err);
		if (clean == OFS_NONE)
			return -1;
		key = ofs_catalog_string(x->cat, clean);
		v[*n] = (struct named){ path_in(x, i, &key, err), i };
		if (v[(*n)++].path == OFS_NONE)
			return -1;
	}
	qsort(v, *n, sizeof(*v), by_name);
	return 0;
}

/* Adds the part of a flat parameter's shard that is of a parameter. */
static int add_shard(struct entries *x, struct ofs_tensor *t,
    const struct ofs_shard *s, const struct ofs_flat_slice *slice, uint64_t n,
    struct optimfs_error *err)
{
	const uint64_t box[2] = { slice->first, slice->count }, step = 1;
	struct ofs_view view = { .offset = slice->at, .numel = n };
	struct ofs_shard part = *s;

	part.box = ofs_catalog_dims(x->cat, box, 2, err);
	view.stride = ofs_catalog_dims(x->cat, &step, 1, err);
	part.view = ofs_catalog_view(x->cat, &view, err);
	if (ofs_catalog_shard(x->cat, &part, err) == OFS_NONE)
		return -1;
	t->nshards++;
	return 0;
}

/* By the first element. */
static int by_range(const void *a, const void *b, void *ctx)
{
	const struct ofs_shard *s = a, *t = b;
	const struct ofs_catalog *cat = ctx;
	uint64_t x = s->box == OFS_NONE ? 0 : cat->dims[s->box];
	uint64_t y = t->box == OFS_NONE ? 0 : cat->dims[t->box];

	return OFS_ORDER(x, y);
}

/* Makes the tensor of a parameter from its flat parameter, in entry, whose
 * shards are sorted. Those before *from end before the parameter; so do they
 * for the next one. */
static uint32_t make_tensor(struct entries *x, uint32_t entry,
    struct ofs_unit_place at, uint32_t *from, struct optimfs_error *err)
{
	const struct ofs_unit *u = &x->f->units->unit[at.unit];
	const struct ofs_unit_param *p = ofs_fsdp_param(x->f, at);
	const struct ofs_tensor whole = *tensor_of(x, entry);
	const uint64_t start = u->flat.start[at.param];
	struct ofs_tensor t = whole;
	struct optimfs_error why;

	t.shape = ofs_catalog_dims(x->cat, p->shape, p->ndim, err);
	t.ndim = p->ndim;
	t.grid = ofs_catalog_dims(x->cat, &u->numel[at.param], 1, err);
	t.grid_ndim = 1;
	t.shard = x->cat->nshards;
	t.nshards = 0;
	if (x->cat->dims[whole.shape] != u->flat.size) {
		ofs_fsdp_wrong_size(&why, x->cat->dims[whole.shape],
		    u->flat.size);
		t.error = ofs_catalog_error(x->cat, &why, err);
		return ofs_catalog_tensor(x->cat, &t, err);
	}
	for (uint32_t i = *from; i < whole.nshards; i++) {
		const struct ofs_shard s = x->cat->shards[whole.shard + i];
		struct ofs_flat_slice slice;
		uint64_t first, n;

		range_of(x->cat, &whole, &s, &first, &n);
		if (first >= start + u->numel[at.param])
			break;
		if (i == *from && first <= start && n <= start - first)
			++*from;
		slice = ofs_flat_overlap(&u->flat, at.param, first, n);
		if (slice.count > 0 &&
		    add_shard(x, &t, &s, &slice, n, err) == -1)
			return OFS_NONE;
	}
	return ofs_catalog_tensor(x->cat, &t, err);
}

/* Shows tensor ref under a name in the mapping of entry, in place of a slice
 * that has this name. */
static int show(struct entries *x, uint32_t entry, struct ofs_str name,
    uint32_t ref, const struct named *v, uint32_t n, struct optimfs_error *err)
{
	uint32_t path = path_in(x, entry, &name, err);

	if (path == OFS_NONE)
		return -1;
	for (size_t i = ofs_lower_bound(&path, v, n, sizeof(*v), name_is);
	     i < n && v[i].path == path; i++)
		x->gone[v[i].entry - x->first] = x->slices = true;
	return ofs_catalog_add(x->cat, path, OFS_ENTRY_TENSOR, ref,
	    OFS_KEY_FIXED, err);
}

/* Shows the other names of a unit's parameters, whose tensors begin at first.
 * FSDP keeps all uses of a parameter in one unit. */
static int add_ties(struct entries *x, uint32_t entry, uint32_t unit,
    uint32_t first, const struct named *v, uint32_t n,
    struct optimfs_error *err)
{
	const struct ofs_units *u = x->f->units;

	for (uint32_t i = 0; i < u->unit[unit].nties; i++) {
		const struct ofs_unit_tie *t =
		    &u->tie[u->unit[unit].first_tie + i];
		struct ofs_unit_place at = ofs_fsdp_find(x->f, t->target);

		if (at.unit != unit)
			continue;
		x->cat->tensors[first + at.param].flags |= OFS_TENSOR_TIED;
		if (show(x, entry, t->name, first + at.param, v, n, err) == -1)
			return -1;
	}
	return 0;
}

/* Shows the parameters of the flat parameter in entry. */
static int split(struct entries *x, uint32_t entry, uint32_t unit,
    const struct named *v, uint32_t n, struct optimfs_error *err)
{
	const struct ofs_unit *u = &x->f->units->unit[unit];
	const struct ofs_tensor *t = tensor_of(x, entry);
	uint32_t first = x->cat->ntensors, from = 0;

	x->gone[entry - x->first] = true;
	if (t->nshards > 1)
		qsort_r(&x->cat->shards[t->shard], t->nshards,
		    sizeof(*x->cat->shards), by_range, x->cat);
	for (uint32_t i = 0; i < u->flat.nparams; i++) {
		uint32_t ref = make_tensor(x, entry,
		    (struct ofs_unit_place){ unit, i }, &from, err);

		if (ref == OFS_NONE ||
		    show(x, entry, u->param[i].fqn, ref, v, n, err) == -1)
			return -1;
	}
	return add_ties(x, entry, unit, first, v, n, err);
}

/* Removes the entries that are gone. Their tensors become empty, so that they
 * share no bytes with the parameters. */
static int remove_gone(struct entries *x, struct optimfs_error *err)
{
	const uint64_t zero = 0;
	uint32_t n = x->first, empty = ofs_catalog_dims(x->cat, &zero, 1, err);

	if (empty == OFS_NONE)
		return -1;
	for (uint32_t i = x->first; i < x->cat->nentries; i++) {
		const struct ofs_entry e = x->cat->entries[i];
		struct ofs_tensor *t = &x->cat->tensors[e.ref];

		if (i >= x->n || !x->gone[i - x->first]) {
			x->cat->entries[n++] = e;
		} else {
			t->shape = t->grid = empty;
			t->nshards = 0;
		}
	}
	x->cat->nentries = n;
	return 0;
}

static int split_all(struct entries *x, const struct named *v, uint32_t n,
    const char *rel, struct optimfs_error *err)
{
	for (uint32_t i = x->first; i < x->n; i++) {
		const uint32_t *part;
		uint32_t depth, unit;

		if (!is_flat(x, i))
			continue;
		unit =
		    ofs_fsdp_unit(x->f, key_of(x, i, &part, &depth), rel, err);
		if (unit == OFS_NONE || split(x, i, unit, v, n, err) == -1)
			return -1;
	}
	if (remove_gone(x, err) == -1)
		return -1;
	return x->slices ? ofs_fsdp_note_slices(x->cat, rel, err) : 0;
}

static int with_units(struct entries *x, const char *rel,
    struct optimfs_error *err)
{
	uint32_t n = x->n - x->first, found = 0;
	struct named *v = calloc(n, sizeof(*v));
	int ret = -1;

	x->gone = calloc(n, sizeof(*x->gone));
	if (v == NULL || x->gone == NULL)
		ofs_no_memory(err);
	else
		ret = find_names(x, v, &found, err);
	if (ret == 0)
		ret = split_all(x, v, found, rel, err);
	free(v);
	free(x->gone);
	return ret;
}

int ofs_fsdp_entries(struct ofs_catalog *cat, uint32_t first, const char *rel,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_ranks set = { .cat = cat };
	struct ofs_fsdp f = { .set = &set };
	struct entries x = {
		.f = &f, .cat = cat, .first = first, .n = cat->nentries
	};
	struct ofs_units units = { 0 };
	bool any = false;
	int ret;

	for (uint32_t i = first; i < x.n && !any; i++)
		any = is_flat(&x, i);
	if (!any)
		return 0;
	ret = ofs_units_of(&units, cat, rel, opt, err);
	if (ret == 1)
		return without_units(&x, err);
	if (ret == 0)
		ret = ofs_fsdp_begin_units(&f, &units, err);
	if (ret == 0)
		ret = with_units(&x, rel, err);
	ofs_fsdp_end(&f);
	ofs_units_fini(&units);
	return ret;
}
