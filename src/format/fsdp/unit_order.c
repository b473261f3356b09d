/* unit_order.c - search for orders of parameters that fit all IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/unit_order.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/fsdp/units.h"

/* Limits of the search. */
#define MAX_WORDS (1u << 25)
#define MAX_EDGES (1u << 23)

/* A state of the search after some parameters were listed: the unit of the last
 * one, the first unit that has not begun, the positions in the last one's unit
 * and in the units around it (by depth), and the number of used IDs of each
 * group. Nothing else affects what may follow, so equal states are merged. */
enum { LAST, NEXT, POSITIONS };

struct edge {
	uint32_t from, to;
	uint32_t id; /* OFS_NONE: the optimizer lacks the parameter */
	struct ofs_order_name name;
};

struct search {
	const struct ofs_order *o;
	uint32_t *parent, *depth; /* of each unit; OFS_NONE: outermost */
	uint32_t *base;           /* first ID of each group */
	uint32_t nparams, nids, levels;
	size_t width; /* words per state */
	uint32_t *state;
	uint32_t nstates, state_cap;
	uint32_t first; /* first state in map */
	struct ofs_map map;
	struct edge *edge;
	uint32_t nedges, edge_cap;
	uint32_t *now;    /* a copy of the state whose successors are added */
	uint32_t skipped; /* parameters without an ID in this state */
	uint32_t *to;     /* the new state */
	struct optimfs_error *err;
};

static int too_many(struct search *s)
{
	return optimfs_fail(s->err, EINVAL,
	    "OFS164 parameter IDs: too many orders of the parameters are "
	    "possible; the units file needs "
	    "param_groups (" OFS_DUMP_UNITS "), or give -o ids=FILE");
}

/* Names. */

/* Is name the module or in it? */
static bool within(struct ofs_str module, struct ofs_str name)
{
	return module.len == 0 ||
	    (name.len >= module.len &&
		memcmp(name.p, module.p, module.len) == 0 &&
		(name.len == module.len || name.p[module.len] == '.'));
}

static struct ofs_str module_of(struct ofs_str fqn)
{
	while (fqn.len > 0 && fqn.p[fqn.len - 1] != '.')
		fqn.len--;
	fqn.len -= fqn.len > 0;
	return fqn;
}

/* The outermost module that contains a but not b; false: none. */
static bool module_left(struct ofs_str a, struct ofs_str b,
    struct ofs_str *module)
{
	struct ofs_str m = module_of(a);

	if (within(m, b))
		return false;
	do {
		*module = m;
		m = module_of(m);
	} while (m.len > 0 && !within(m, b));
	return true;
}

/* Units. */

static struct ofs_str fqn_of(const struct search *s, uint32_t unit, uint32_t i)
{
	return s->o->unit[unit].fqn[i];
}

/* Skips units without parameters. */
static uint32_t skip_empty(const struct search *s, uint32_t unit)
{
	while (unit < s->o->nunits && s->o->unit[unit].nparams == 0)
		unit++;
	return unit;
}

static void find_parents(struct search *s)
{
	uint32_t last = OFS_NONE;

	for (uint32_t i = skip_empty(s, 0); i < s->o->nunits;
	     i = skip_empty(s, i + 1)) {
		struct ofs_str prefix = s->o->unit[i].prefix;
		uint32_t p = last;

		while (p != OFS_NONE &&
		    (s->o->unit[p].prefix.len == prefix.len ||
			!within(s->o->unit[p].prefix, prefix)))
			p = s->parent[p];
		s->parent[i] = p;
		s->depth[i] = p == OFS_NONE ? 0 : s->depth[p] + 1;
		if (s->depth[i] + 1 > s->levels)
			s->levels = s->depth[i] + 1;
		last = i;
	}
}

/* The number of listed parameters of a unit that is not finished. */
static uint32_t *position(const struct search *s, uint32_t *state,
    uint32_t unit)
{
	return &state[POSITIONS + s->depth[unit]];
}

/* Would listing b now leave a module, or the own parameters of a module,
 * unfinished, although its parameter x is still to be listed? */
static bool breaks(struct ofs_str x, struct ofs_str b, bool left,
    struct ofs_str module)
{
	struct ofs_str own = module_of(x), in = module_of(b);

	return (left && within(module, x)) ||
	    (own.len < in.len && within(own, in));
}

/* May parameter i of unit be next in the order of modules? */
static bool may_follow(const struct search *s, uint32_t unit, uint32_t i)
{
	struct ofs_str module = { "", 0 }, b;
	uint32_t *now = s->now, u = now[LAST], k = now[NEXT], at;
	bool left = false;

	if (s->o->known || u == OFS_NONE)
		return true;
	b = fqn_of(s, unit, i);
	at = *position(s, now, u);
	if (at > 0)
		left = module_left(fqn_of(s, u, at - 1), b, &module);
	for (; u != OFS_NONE; u = s->parent[u]) {
		at = *position(s, now, u);
		if (u != unit && at < s->o->unit[u].nparams &&
		    breaks(fqn_of(s, u, at), b, left, module))
			return false;
	}
	return k == s->o->nunits || k == unit || !left ||
	    !within(module, s->o->unit[k].prefix);
}

/* States. */

static bool same_state(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct search *s = ctx;

	return memcmp(s->state + index * s->width, key, n) == 0;
}

/* Adds the state s->to to its layer, or finds it there; OFS_NONE: failed. */
static uint32_t add_state(struct search *s)
{
	size_t n = s->width * sizeof(*s->to);
	uint32_t hash = ofs_map_hash(s->to, n), *p, cap;
	uint32_t old = ofs_map_find(&s->map, hash, same_state, s, s->to, n);

	if (old != UINT32_MAX)
		return old;
	if (s->nstates == s->state_cap) {
		cap = s->state_cap == 0 ? 256 : s->state_cap * 2;
		if (cap * s->width > MAX_WORDS) {
			too_many(s);
			return OFS_NONE;
		}
		p = reallocarray(s->state, cap, n);
		if (p == NULL) {
			ofs_no_memory(s->err);
			return OFS_NONE;
		}
		s->state = p;
		s->state_cap = cap;
	}
	memcpy(s->state + s->nstates * s->width, s->to, n);
	if (!ofs_map_add(&s->map, hash, s->nstates)) {
		ofs_no_memory(s->err);
		return OFS_NONE;
	}
	return s->nstates++;
}

static int add_edge(struct search *s, uint32_t from, uint32_t id,
    struct ofs_order_name name)
{
	uint32_t to = add_state(s);

	if (to == OFS_NONE)
		return -1;
	if (s->nedges == MAX_EDGES)
		return too_many(s);
	if (ofs_grow(s->edge, s->nedges, s->edge_cap, s->err) == -1)
		return -1;
	s->edge[s->nedges++] = (struct edge){ from, to, id, name };
	return 0;
}

/* Clears what the units of s->to no longer need: positions deeper than the last
 * one's unit. */
static void normalize(struct search *s)
{
	for (uint32_t d = s->depth[s->to[LAST]] + 1; d < s->levels; d++)
		s->to[POSITIONS + d] = 0;
}

/* Lists parameter i of unit next, with every ID that it may have. next is the
 * first unit that has not begun after that. */
static int list(struct search *s, uint32_t from, uint32_t unit, uint32_t i,
    uint32_t next)
{
	struct ofs_order_name name = { unit, i };
	uint32_t *used;

	if (!may_follow(s, unit, i))
		return 0;
	memcpy(s->to, s->now, s->width * sizeof(*s->to));
	for (uint32_t j = s->now[NEXT]; j < next; j++)
		if (s->o->unit[j].nparams > 0)
			*position(s, s->to, j) = 0;
	s->to[LAST] = unit;
	s->to[NEXT] = next;
	*position(s, s->to, unit) = i + 1;
	normalize(s);
	used = s->to + POSITIONS + s->levels;
	for (uint32_t g = 0; g < s->o->ngroups; g++) {
		uint32_t id = s->base[g] + used[g];

		if (used[g] == s->o->group[g] ||
		    !s->o->fits(s->o->ctx, id, unit, i))
			continue;
		used[g]++;
		if (add_edge(s, from, id, name) == -1)
			return -1;
		used[g]--;
	}
	/* or the optimizer lacks this parameter */
	if (s->skipped == s->nparams - s->nids)
		return 0;
	return add_edge(s, from, OFS_NONE, name);
}

/* Begins the next unit if it is nested in unit, and the units whose first
 * parameters come first in that one. */
static int begin(struct search *s, uint32_t from, uint32_t unit)
{
	uint32_t k = s->now[NEXT], next;

	for (; k < s->o->nunits && s->parent[k] == unit; unit = k, k = next) {
		next = skip_empty(s, k + 1);
		if (list(s, from, k, 0, next) == -1)
			return -1;
	}
	return 0;
}

/* Lists every parameter that may be next, after listed parameters. */
static int leave_state(struct search *s, uint32_t from, uint32_t listed)
{
	uint32_t u, k, at;

	memcpy(s->now, s->state + from * s->width, s->width * sizeof(*s->now));
	s->skipped = listed;
	for (uint32_t g = 0; g < s->o->ngroups; g++)
		s->skipped -= s->now[POSITIONS + s->levels + g];
	for (u = s->now[LAST];; u = s->parent[u]) {
		if (begin(s, from, u) == -1)
			return -1;
		if (u == OFS_NONE)
			return 0;
		at = *position(s, s->now, u);
		if (at < s->o->unit[u].nparams)
			return list(s, from, u, at, s->now[NEXT]);
		k = s->now[NEXT];
		if (k < s->o->nunits && s->parent[k] == u)
			return 0;
	}
}

/* Builds a layer for each number of listed parameters. */
static int all_layers(struct search *s)
{
	uint32_t from = 0, end = 1;

	memset(s->to, 0, s->width * sizeof(*s->to));
	s->to[LAST] = OFS_NONE;
	s->to[NEXT] = skip_empty(s, 0);
	if (add_state(s) == OFS_NONE)
		return -1;
	for (uint32_t i = 0; i < s->nparams; i++) {
		ofs_map_fini(&s->map);
		s->map = (struct ofs_map){ 0 };
		for (; from < end; from++)
			if (leave_state(s, from, i) == -1)
				return -1;
		end = s->nstates;
	}
	s->first = from;
	return 0;
}

/* Are all IDs used? */
static bool is_goal(const struct search *s, uint32_t state)
{
	const uint32_t *used =
	    s->state + state * s->width + POSITIONS + s->levels;

	for (uint32_t g = 0; g < s->o->ngroups; g++)
		if (used[g] != s->o->group[g])
			return false;
	return true;
}

static void agree(struct ofs_order_name *name, bool *seen, const struct edge *e)
{
	if (e->id == OFS_NONE)
		return;
	if (seen[e->id] &&
	    (name[e->id].unit != e->name.unit ||
		name[e->id].param != e->name.param))
		name[e->id].unit = OFS_NONE;
	else if (!seen[e->id])
		name[e->id] = e->name;
	seen[e->id] = true;
}

/* Follows all paths to goal states backwards and collects names. */
static int go_back(struct search *s, struct ofs_order_name *name)
{
	bool *good = calloc(s->nstates, sizeof(*good)), any = false;
	bool *seen = calloc(s->nids + 1ull, sizeof(*seen));
	int ret = 0;

	if (good == NULL || seen == NULL) {
		ret = ofs_no_memory(s->err);
		goto out;
	}
	for (uint32_t i = s->first; i < s->nstates; i++)
		any |= good[i] = is_goal(s, i);
	for (uint32_t i = s->nedges; i-- > 0;)
		if (good[s->edge[i].to]) {
			good[s->edge[i].from] = true;
			agree(name, seen, &s->edge[i]);
		}
	if (!any)
		ret = optimfs_fail(s->err, EINVAL,
		    "OFS164 parameter IDs: in no order do the %" PRIu32
		    " parameters of the units fit the state of %" PRIu32
		    " IDs; the units file needs "
		    "param_groups (" OFS_DUMP_UNITS "), or give -o ids=FILE",
		    s->nparams, s->nids);
out:
	free(good);
	free(seen);
	return ret;
}

static int set_up(struct search *s)
{
	const struct ofs_order *o = s->o;

	s->parent = calloc(o->nunits + 1ull, sizeof(*s->parent));
	s->depth = calloc(o->nunits + 1ull, sizeof(*s->depth));
	s->base = calloc(o->ngroups + 1ull, sizeof(*s->base));
	if (s->parent == NULL || s->depth == NULL || s->base == NULL)
		return ofs_no_memory(s->err);
	find_parents(s);
	for (uint32_t i = 0; i < o->nunits; i++)
		s->nparams += o->unit[i].nparams;
	for (uint32_t g = 0; g < o->ngroups; g++) {
		s->base[g] = s->nids;
		s->nids += o->group[g];
	}
	if (s->nids > s->nparams)
		return optimfs_fail(s->err, EINVAL,
		    "OFS164 parameter IDs: the optimizer has %" PRIu32
		    " parameters, the units have %" PRIu32
		    "; the units file needs "
		    "param_groups (" OFS_DUMP_UNITS "), or give -o ids=FILE",
		    s->nids, s->nparams);
	s->width = POSITIONS + s->levels + o->ngroups;
	s->now = calloc(s->width, sizeof(*s->now));
	s->to = calloc(s->width, sizeof(*s->to));
	return s->now == NULL || s->to == NULL ? ofs_no_memory(s->err) : 0;
}

OFS_COMPARE_BY2(by_param, struct ofs_order_name, unit, param)

int ofs_order_repeated(const struct ofs_order_name *name, uint32_t n,
    struct ofs_order_name *twice, struct optimfs_error *err)
{
	struct ofs_order_name *v = calloc(n + 1ull, sizeof(*v));

	twice->unit = OFS_NONE;
	if (v == NULL)
		return ofs_no_memory(err);
	memcpy(v, name, n * sizeof(*v));
	qsort(v, n, sizeof(*v), by_param);
	for (uint32_t i = 1; i < n && twice->unit == OFS_NONE; i++)
		if (by_param(&v[i - 1], &v[i]) == 0)
			*twice = v[i];
	free(v);
	return 0;
}

int ofs_order_find(const struct ofs_order *o, struct ofs_order_name *name,
    struct optimfs_error *err)
{
	struct search s = { .o = o, .err = err };
	int ret = set_up(&s);

	if (ret == 0)
		ret = all_layers(&s);
	if (ret == 0)
		ret = go_back(&s, name);
	ofs_map_fini(&s.map);
	free(s.parent);
	free(s.depth);
	free(s.base);
	free(s.now);
	free(s.to);
	free(s.state);
	free(s.edge);
	return ret;
}
