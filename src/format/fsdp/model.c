/* model.c - flat parameters of a LOCAL_STATE_DICT */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/fsdp/fsdp.h"
#include "format/torch_file/sharded.h"

static const char flat_key[] = "_flat_param";
#define KEY_LEN (sizeof(flat_key) - 1)

/* The flat parameters of one mapping. */
struct model {
	struct ofs_fsdp *f;
	struct ofs_ranks_group **flat; /* of each unit; NULL: none */
	uint32_t *ref;                 /* of each name: its tensor */
	const uint32_t *parent;        /* the mapping's path */
	uint32_t nparent;
	bool any;
};

/* The last component of a group's path; *n gets the number before it. */
static struct ofs_str last_key(const struct ofs_fsdp *f,
    const struct ofs_ranks_group *g, const uint32_t **part, uint32_t *n)
{
	*part = ofs_catalog_components(f->set->cat, g->path, n);
	--*n;
	return ofs_catalog_string(f->set->cat, (*part)[*n]);
}

bool ofs_fsdp_is_flat_key(struct ofs_str s)
{
	return ofs_str_ends(s, flat_key) &&
	    (s.len == KEY_LEN || s.p[s.len - KEY_LEN - 1] == '.');
}

uint32_t ofs_fsdp_unit(struct ofs_fsdp *f, struct ofs_str key, const char *rel,
    struct optimfs_error *err)
{
	uint32_t clean = ofs_fsdp_clean(f, key, err), n;

	if (clean == OFS_NONE)
		return OFS_NONE;
	key = ofs_catalog_string(f->set->cat, clean);
	n = key.len - (uint32_t)KEY_LEN;
	n -= n > 0;
	for (uint32_t u = 0; u < f->units->n; u++)
		if (f->units->unit[u].prefix.len == n &&
		    memcmp(f->units->unit[u].prefix.p, key.p, n) == 0)
			return u;
	optimfs_fail(err, EINVAL,
	    "OFS160 %s has %.100s, but the units file has no such unit", rel,
	    key.p);
	return OFS_NONE;
}

int ofs_fsdp_wrong_size(struct optimfs_error *why, uint64_t size, uint64_t want)
{
	return optimfs_fail(why, EUCLEAN,
	    "OFS160 the flat parameter has %" PRIu64
	    " elements, the units file's shapes need %" PRIu64,
	    size, want);
}

void ofs_fsdp_no_units(struct optimfs_error *why)
{
	optimfs_fail(why, EOPNOTSUPP,
	    "OFS166 units unknown: -o units=FILE says whether it is each "
	    "rank's slice of a flat parameter");
	ofs_mark_lost(why, OPTIMFS_LOST_UNITS);
}

int ofs_fsdp_note_slices(struct ofs_catalog *cat, const char *rel,
    struct optimfs_error *err)
{
	return ofs_catalog_note(cat, OFS_NOTE_WARNING, 0, err,
	    "OFS167 %s: the parameters come from the flat parameters; the "
	    "slices under their own names are not shown",
	    rel);
}

static bool is_sharded(const struct ofs_fsdp *f,
    const struct ofs_ranks_group *g)
{
	const struct ofs_ranks_leaf *leaf = &f->set->leaf[g->first];

	return ofs_torch_is_sharded(f->set->file[leaf->file].doc, leaf->node);
}

static int check_whole(struct ofs_pieces *x, const struct ofs_torch_sharded *s,
    const struct ofs_flat *flat)
{
	if (s->ndim == 1 && s->shape[0] == flat->size)
		return 0;
	return ofs_fsdp_wrong_size(&x->why, s->ndim == 0 ? 1 : s->shape[0],
	    flat->size);
}

/* Adds one rank's slice of a parameter. */
static int add_leaf(struct ofs_fsdp *f, struct ofs_pieces *x,
    const struct ofs_ranks_leaf *leaf, struct ofs_unit_place at,
    struct optimfs_error *err)
{
	const struct ofs_flat *flat = &f->units->unit[at.unit].flat;
	const struct ofs_pickle *doc = f->set->file[leaf->file].doc;
	struct ofs_torch_sharded s;
	struct ofs_flat_slice slice;
	int ret = 0;

	if (x->why.code != 0)
		return 0;
	if (!ofs_torch_is_sharded(doc, leaf->node)) {
		slice = ofs_flat_overlap(flat, at.param, 0, flat->size);
		return ofs_pieces_add(x, leaf, leaf->node, flat->size, &slice,
		    err);
	}
	if (ofs_torch_sharded(doc, leaf->node, &s, &x->why) == -1)
		return 0;
	if (check_whole(x, &s, flat) == -1)
		s.npieces = 0;
	for (uint32_t i = 0; i < s.npieces && ret == 0; i++) {
		const struct ofs_torch_piece *p = &s.piece[i];

		slice =
		    ofs_flat_overlap(flat, at.param, p->offset[0], p->size[0]);
		slice.at += p->at[0];
		ret =
		    ofs_pieces_add(x, leaf, p->node, p->local[0], &slice, err);
	}
	ofs_torch_sharded_fini(&s);
	return ret;
}

/* The path of name in the mapping. */
static uint32_t path_of(struct model *m, struct ofs_str name,
    struct optimfs_error *err)
{
	return ofs_catalog_below(m->f->set->cat, m->parent, m->nparent, name,
	    err);
}

static uint32_t *ref_of(struct model *m, struct ofs_unit_place at)
{
	return &m->ref[m->f->units->unit[at.unit].first + at.param];
}

/* Adds, once, a parameter of a unit whose flat parameter is in the mapping. */
static int add_param(struct model *m, struct ofs_unit_place at,
    struct optimfs_error *err)
{
	const struct ofs_ranks_group *g = m->flat[at.unit];
	uint32_t *ref = ref_of(m, at);
	struct ofs_pieces x;

	if (*ref != OFS_NONE)
		return 0;
	if (ofs_fsdp_begin(&x, m->f, at, err) == -1)
		return -1;
	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (add_leaf(m->f, &x, &m->f->set->leaf[i], at, err) == -1)
			return -1;
	return ofs_pieces_end(&x,
	    path_of(m, ofs_fsdp_param(m->f, at)->fqn, err), ref, err);
}

static const struct ofs_unit_tie *tie_of(const struct model *m,
    struct ofs_str name)
{
	for (uint32_t i = 0; i < m->f->units->nties; i++) {
		const struct ofs_unit_tie *t = &m->f->units->tie[i];

		if (ofs_str_equal(t->name, name))
			return t;
	}
	return NULL;
}

static bool has_flat(const struct model *m, struct ofs_unit_place at)
{
	return at.unit != OFS_NONE && m->flat[at.unit] != NULL;
}

/* Adds another name of a parameter that was added. */
static int add_tie(struct model *m, const struct ofs_unit_tie *tie,
    struct optimfs_error *err)
{
	struct ofs_unit_place at = ofs_fsdp_find(m->f, tie->target);
	struct ofs_catalog *cat = m->f->set->cat;
	uint32_t ref;

	if (!has_flat(m, at))
		return 0;
	ref = *ref_of(m, at);
	cat->tensors[ref].flags |= OFS_TENSOR_TIED;
	return ofs_catalog_add(cat, path_of(m, tie->name, err),
	    OFS_ENTRY_TENSOR, ref, OFS_KEY_FREE, err);
}

static bool is_ours(const struct model *m, const uint32_t *part, uint32_t n)
{
	return n == m->nparent &&
	    (n == 0 || memcmp(part, m->parent, n * sizeof(*part)) == 0);
}

/* Handles a key that is no flat parameter. With use_orig_params there is also a
 * key for each parameter, with only the rank's slice: it gives the parameter's
 * place in the order, and nothing else. */
static int see_key(struct model *m, struct ofs_ranks_group *g, bool *slices,
    struct optimfs_error *err)
{
	const uint32_t *part;
	struct ofs_unit_place at;
	uint32_t n, clean;
	struct ofs_str key = last_key(m->f, g, &part, &n);

	if (g->taken || !is_ours(m, part, n) || is_sharded(m->f, g))
		return 0;
	clean = ofs_fsdp_clean(m->f, key, err);
	if (clean == OFS_NONE)
		return -1;
	key = ofs_catalog_string(m->f->set->cat, clean);
	at = ofs_fsdp_find(m->f, key);
	if (!has_flat(m, at)) {
		const struct ofs_unit_tie *tie = tie_of(m, key);

		if (tie != NULL &&
		    has_flat(m, ofs_fsdp_find(m->f, tie->target)))
			*slices = g->taken = true;
		return 0;
	}
	*slices = g->taken = true;
	return add_param(m, at, err);
}

static int add_all(struct model *m, struct optimfs_error *err)
{
	const struct ofs_fsdp *f = m->f;
	uint32_t first = f->set->cat->nentries;
	bool slices = false;

	for (uint32_t i = 0; i < f->set->ngroups; i++)
		if (see_key(m, &f->set->group[i], &slices, err) == -1)
			return -1;
	ofs_ranks_ordered(f->set, first, f->set->cat->nentries);
	for (uint32_t u = 0; u < f->units->n; u++)
		for (uint32_t i = 0;
		     m->flat[u] != NULL && i < f->units->unit[u].flat.nparams;
		     i++)
			if (add_param(m, (struct ofs_unit_place){ u, i },
				err) == -1)
				return -1;
	for (uint32_t i = 0; i < f->units->nties; i++)
		if (add_tie(m, &f->units->tie[i], err) == -1)
			return -1;
	return slices
	    ? ofs_fsdp_note_slices(f->set->cat, f->set->file[0].rel, err)
	    : 0;
}

/* Records g if it is a flat parameter of the mapping. The first one found
 * determines the mapping. */
static int see_flat(struct model *m, struct ofs_ranks_group *g,
    struct optimfs_error *err)
{
	const uint32_t *part;
	uint32_t n, unit;
	struct ofs_str key = last_key(m->f, g, &part, &n);

	if (g->taken || !ofs_fsdp_is_flat_key(key))
		return 0;
	if (!m->any) {
		m->parent = part;
		m->nparent = n;
	} else if (!is_ours(m, part, n)) {
		return 0;
	}
	unit = ofs_fsdp_unit(m->f, key, m->f->set->file[0].rel, err);
	if (unit == OFS_NONE)
		return -1;
	m->any = g->taken = true;
	m->flat[unit] = g;
	return 0;
}

/* Adds the flat parameters of the first mapping that has any; 1: none has. */
static int one_mapping(struct model *m, struct optimfs_error *err)
{
	struct ofs_ranks *set = m->f->set;
	uint32_t *parent;

	m->any = false;
	memset(m->flat, 0, m->f->units->n * sizeof(*m->flat));
	memset(m->ref, 0xff, m->f->units->names.n * sizeof(*m->ref));
	for (uint32_t i = 0; i < set->ngroups; i++)
		if (see_flat(m, &set->group[i], err) == -1)
			return -1;
	if (!m->any)
		return 1;
	/* adding paths may move the old ones */
	parent = malloc((m->nparent + 1ull) * sizeof(*parent));
	if (parent == NULL)
		return ofs_no_memory(err);
	memcpy(parent, m->parent, m->nparent * sizeof(*parent));
	m->parent = parent;
	if (add_all(m, err) == -1) {
		free(parent);
		return -1;
	}
	free(parent);
	return 0;
}

/* Without units, a flat parameter stays a one-dimensional tensor. Other
 * one-dimensional tensors may be slices or buffers, and are put apart. */
static int put_slices_apart(struct ofs_fsdp *f, struct optimfs_error *err)
{
	struct ofs_ranks *set = f->set;
	struct optimfs_error why;
	bool any = false;

	for (uint32_t i = 0; i < set->ngroups && !any; i++) {
		const uint32_t *part;
		uint32_t n;

		any = ofs_fsdp_is_flat_key(last_key(f, &set->group[i], &part, &n));
	}
	ofs_fsdp_no_units(&why);
	for (uint32_t i = 0; i < set->ngroups && any; i++) {
		struct ofs_ranks_group *g = &set->group[i];
		struct ofs_ranks_leaf leaf = set->leaf[g->first];
		struct ofs_torch_tensor t;

		if (g->taken || set->nfiles < 2 ||
		    ofs_torch_tensor(set->file[leaf.file].doc, leaf.node, &t,
			NULL) != 1 ||
		    t.ndim != 1)
			continue;
		if (ofs_ranks_apart(set, g, &why, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_fsdp_model(struct ofs_fsdp *f, struct optimfs_error *err)
{
	struct model m = { .f = f };
	int ret;

	if (f->units == NULL)
		return put_slices_apart(f, err);
	m.flat = calloc(f->units->n + 1ull, sizeof(struct ofs_ranks_group *));
	m.ref = calloc(f->units->names.n + 1ull, sizeof(*m.ref));
	if (m.flat == NULL || m.ref == NULL)
		ret = ofs_no_memory(err);
	else
		while ((ret = one_mapping(&m, err)) == 0)
			;
	free(m.flat);
	free(m.ref);
	return ret == 1 ? 0 : -1;
}
