/* layout.c - how ZeRO lays parameters out over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/zero/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "archive/torch_storage.h"
#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"

/* Limits, since shared nodes can expand to any number of these. */
#define PARAMS_MAX (1u << 22)
#define DIMS_MAX   (1u << 24)
#define GROUPS_MAX 16384

/* Shapes. */

static uint32_t group_node(const struct ofs_pickle *doc, uint32_t node,
    uint32_t i)
{
	return ofs_pk_kind(doc, node) == OFS_PK_DICT
	    ? node
	    : ofs_pk_item(doc, node, i);
}

int ofs_zero_check_size(uint64_t nparams, uint64_t ngroups,
    struct optimfs_error *err)
{
	if (ngroups > GROUPS_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS695 param_shapes has %" PRIu64 " groups, at most %d "
		    "are read",
		    ngroups, GROUPS_MAX);
	if (nparams > PARAMS_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS695 param_shapes names more than %u parameters",
		    PARAMS_MAX);
	return 0;
}

/* Counts everything before the allocation. */
static int count(struct ofs_zero_shapes *s, const struct ofs_pickle *doc,
    uint32_t node, uint64_t *ndims, struct optimfs_error *err)
{
	enum ofs_pk_kind kind = ofs_pk_kind(doc, node);
	uint64_t n = 0;

	if (kind != OFS_PK_LIST && kind != OFS_PK_TUPLE && kind != OFS_PK_DICT)
		return ofs_pk_unexpected(doc, node, err, "OFS695", "a list",
		    "param_shapes");
	s->ngroups = kind == OFS_PK_DICT ? 1 : ofs_pk_len(doc, node);
	if (ofs_zero_check_size(0, s->ngroups, err) == -1)
		return -1;
	for (uint32_t g = 0; g < s->ngroups; g++) {
		uint32_t dict = group_node(doc, node, g);

		if (ofs_pk_kind(doc, dict) != OFS_PK_DICT)
			return ofs_pk_unexpected(doc, dict, err, "OFS695",
			    "a dict", "param_shapes[%" PRIu32 "]", g);
		n += ofs_pk_len(doc, dict);
		if (ofs_zero_check_size(n, 0, err) == -1)
			return -1;
		for (uint32_t i = 0; i < ofs_pk_len(doc, dict); i++)
			*ndims += ofs_pk_len(doc, ofs_pk_val(doc, dict, i));
		if (*ndims > DIMS_MAX)
			return optimfs_fail(err, E2BIG,
			    "OFS695 param_shapes has more than %u dimensions",
			    DIMS_MAX);
	}
	s->n = (uint32_t)n;
	return 0;
}

static int read_param(struct ofs_zero_shapes *s, const struct ofs_pickle *doc,
    uint32_t dict, uint32_t i, uint32_t at, uint64_t *dims,
    struct optimfs_error *err)
{
	uint32_t key = ofs_pk_key(doc, dict, i);
	uint32_t size = ofs_pk_val(doc, dict, i);
	struct ofs_zero_param *p = &s->param[at];

	if (ofs_pk_kind(doc, key) != OFS_PK_STR)
		return ofs_pk_unexpected(doc, key, err, "OFS695", "str",
		    "a parameter's name");
	p->name = ofs_pk_str(doc, key);
	p->ndim = ofs_pk_len(doc, size);
	p->shape = dims;
	if (ofs_pk_kind(doc, size) != OFS_PK_TUPLE || p->ndim > OFS_MAX_DIMS)
		return ofs_pk_unexpected(doc, size, err, "OFS695", "torch.Size",
		    "the shape of %.*s", OFS_STR_ARGS(p->name, 100));
	for (uint32_t k = 0; k < p->ndim; k++)
		if (ofs_torch_size(doc, ofs_pk_item(doc, size, k), "size",
			&dims[k], err) == -1)
			return -1;
	if (!ofs_numel(dims, p->ndim, &s->numel[at]))
		return optimfs_fail(err, EUCLEAN,
		    "OFS606 size overflow of %.*s", OFS_STR_ARGS(p->name, 100));
	return 0;
}

static int read_all(struct ofs_zero_shapes *s, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err)
{
	uint64_t *dims = s->dims;
	uint32_t at = 0;

	for (uint32_t g = 0; g < s->ngroups; g++) {
		uint32_t dict = group_node(doc, node, g);

		s->first[g] = at;
		for (uint32_t i = 0; i < ofs_pk_len(doc, dict); i++, at++) {
			s->param[at].group = g;
			if (read_param(s, doc, dict, i, at, dims, err) == -1)
				return -1;
			dims += s->param[at].ndim;
		}
	}
	s->first[s->ngroups] = at;
	return 0;
}

int ofs_zero_shapes_index(struct ofs_zero_shapes *s, struct optimfs_error *err)
{
	ofs_keys_fini(&s->names);
	s->names = (struct ofs_keys){ 0 };
	for (uint32_t i = 0; i < s->n; i++) {
		struct ofs_str name = s->param[i].name;
		uint32_t number = ofs_keys_add(&s->names, name, err);

		if (number == OFS_NONE)
			return -1;
		if (number < i)
			return optimfs_fail(err, EUCLEAN,
			    "OFS695 param_shapes has %.*s twice",
			    OFS_STR_ARGS(name, 100));
	}
	return 0;
}

int ofs_zero_shapes_read(struct ofs_zero_shapes *s,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err)
{
	uint64_t ndims = 0;

	*s = (struct ofs_zero_shapes){ 0 };
	if (count(s, doc, node, &ndims, err) == -1)
		return -1;
	s->param = calloc(s->n + 1ull, sizeof(*s->param));
	s->numel = calloc(s->n + 1ull, sizeof(*s->numel));
	s->first = calloc(s->ngroups + 1ull, sizeof(*s->first));
	s->dims = calloc(ndims + 1, sizeof(*s->dims));
	if (s->param == NULL || s->numel == NULL || s->first == NULL ||
	    s->dims == NULL)
		ofs_no_memory(err);
	else if (read_all(s, doc, node, err) == 0 &&
	    ofs_zero_shapes_index(s, err) == 0)
		return 0;
	ofs_zero_shapes_fini(s);
	return -1;
}

void ofs_zero_shapes_fini(struct ofs_zero_shapes *s)
{
	free(s->param);
	free(s->numel);
	ofs_keys_fini(&s->names);
	free(s->first);
	free(s->dims);
	free(s->cut);
	*s = (struct ofs_zero_shapes){ 0 };
}

uint32_t ofs_zero_find(const struct ofs_zero_shapes *s, struct ofs_str name)
{
	return ofs_keys_find(&s->names, name.p, name.len);
}

uint32_t ofs_zero_group(const struct ofs_zero_shapes *s, struct ofs_str name)
{
	uint32_t p = ofs_zero_find(s, name);

	return p == OFS_NONE ? OFS_NONE : s->param[p].group;
}

uint32_t ofs_zero_number(const struct ofs_zero_shapes *s, uint32_t group)
{
	return s->cut == NULL ? group : s->cut[group].number;
}

uint32_t ofs_zero_numbers(const struct ofs_zero_shapes *s)
{
	return s->ngroups == 0 ? 0 : ofs_zero_number(s, s->ngroups - 1) + 1;
}

/* Layouts. */

static uint32_t ranks_of(const struct ofs_zero_layout *l, uint32_t group)
{
	const struct ofs_zero_cut *cut = l->shapes->cut;

	return cut == NULL ? l->world : cut[group].ranks;
}

uint32_t ofs_zero_place(const struct ofs_zero_layout *l, uint32_t group,
    uint32_t rank)
{
	const struct ofs_zero_cut *c;

	if (l->shapes->cut == NULL)
		return rank;
	c = &l->shapes->cut[group];
	if ((l->blocks ? rank / c->ranks : rank % c->nsets) != c->set)
		return OFS_NONE;
	return l->blocks ? rank % c->ranks : rank / c->nsets;
}

/* Stages 1 and 2: flat groups are cut over the ranks. */
static int lay_flat(struct ofs_zero_layout *l, struct optimfs_error *err)
{
	const struct ofs_zero_shapes *s = l->shapes;

	l->flat = calloc(s->ngroups + 1ull, sizeof(*l->flat));
	if (l->flat == NULL)
		return ofs_no_memory(err);
	for (uint32_t g = 0; g < s->ngroups; g++)
		if (ofs_flat_init(&l->flat[g], s->numel + s->first[g],
			s->first[g + 1] - s->first[g], OFS_FLAT_PACKED,
			ranks_of(l, g), err) == -1 ||
		    ofs_flat_spread(&l->flat[g], 2ull * ranks_of(l, g), err) ==
			-1)
			return -1;
	return 0;
}

static uint64_t share(const struct ofs_zero_layout *l, uint32_t param)
{
	uint64_t n = l->shapes->numel[param];

	return n / l->world + (n % l->world != 0);
}

/* Stage 3: each parameter is cut over the ranks, and the parts of a group are
 * concatenated. */
static int lay_slots(struct ofs_zero_layout *l, struct optimfs_error *err)
{
	const struct ofs_zero_shapes *s = l->shapes;

	l->slot = calloc(s->n + 1ull, sizeof(*l->slot));
	l->total = calloc(s->ngroups + 1ull, sizeof(*l->total));
	if (l->slot == NULL || l->total == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t *total = &l->total[s->param[i].group];

		l->slot[i] = *total;
		if (!ofs_add_u64(*total, share(l, i), total))
			return optimfs_fail(err, EUCLEAN,
			    "OFS606 size overflow: parameters have more "
			    "elements than can be counted");
	}
	return 0;
}

int ofs_zero_layout_init(struct ofs_zero_layout *l,
    const struct ofs_zero_shapes *shapes, int stage, uint32_t world,
    struct optimfs_error *err)
{
	*l = (struct ofs_zero_layout){
		.shapes = shapes, .stage = stage, .world = world
	};
	if ((stage == 3 ? lay_slots(l, err) : lay_flat(l, err)) == 0)
		return 0;
	if (err != NULL && err->code == EINVAL)
		err->code = EUCLEAN;
	ofs_zero_layout_fini(l);
	return -1;
}

void ofs_zero_layout_fini(struct ofs_zero_layout *l)
{
	for (uint32_t g = 0; l->flat != NULL && g < l->shapes->ngroups; g++)
		ofs_flat_fini(&l->flat[g]);
	free(l->flat);
	free(l->slot);
	free(l->total);
	*l = (struct ofs_zero_layout){ 0 };
}

struct ofs_flat_slice ofs_zero_slice(const struct ofs_zero_layout *l,
    uint32_t param, uint32_t rank)
{
	uint32_t g = l->shapes->param[param].group;
	uint64_t n = l->shapes->numel[param], p = share(l, param);
	struct ofs_flat_slice s = { 0 };

	if (l->stage != 3) {
		rank = ofs_zero_place(l, g, rank);
		return rank == OFS_NONE
		    ? s
		    : ofs_flat_slice(&l->flat[g], param - l->shapes->first[g],
			  rank);
	}
	/* less than n + world */
	s.first = rank * p;
	if (s.first >= n)
		return (struct ofs_flat_slice){ 0 };
	s.count = n - s.first < p ? n - s.first : p;
	s.at = l->slot[param];
	return s;
}

struct ofs_flat_slice ofs_zero_whole(const struct ofs_zero_layout *l,
    uint32_t param, uint32_t rank, uint64_t *total)
{
	uint32_t g = l->shapes->param[param].group;
	const struct ofs_flat *f = &l->flat[g];
	uint64_t lo = ofs_zero_place(l, g, rank) * f->shard, hi = lo + f->shard;
	size_t first = ofs_upper_bound(&lo, f->start, f->nparams,
			   sizeof(*f->start), ofs_compare_u64) -
	    1;
	size_t end = ofs_lower_bound(&hi, f->start, f->nparams,
	    sizeof(*f->start), ofs_compare_u64);

	*total = (end < f->nparams ? f->start[end] : f->size) - f->start[first];
	return (struct ofs_flat_slice){
		.count = l->shapes->numel[param],
		.at = f->start[param - l->shapes->first[g]] - f->start[first],
	};
}

uint64_t ofs_zero_part(const struct ofs_zero_layout *l, uint32_t group,
    uint32_t rank, uint64_t *lean)
{
	if (l->stage == 3) {
		*lean = l->total[group];
		return *lean;
	}
	*lean = ofs_flat_held(&l->flat[group], ofs_zero_place(l, group, rank));
	return l->flat[group].shard;
}
