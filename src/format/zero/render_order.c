/* render_order.c - the flat groups of a new layout */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/zero/render.h"

/* DeepSpeed's default, in elements per rank */
#define SUB_GROUP INT64_C(1000000000)

#define ROUND_ROBIN "ds_config/zero_optimization/round_robin_gradients"

/* The new index of parameter i when n parameters are dealt to world ranks in
 * turn, and the ranks' parameters are concatenated. */
static uint32_t dealt(uint32_t i, uint32_t n, uint32_t world)
{
	uint32_t hand = i % world, long_ones = n % world;

	return hand * (n / world) + (hand < long_ones ? hand : long_ones) +
	    i / world;
}

/* Did the source deal its parameters? *world gets the number of ranks. */
static bool was_dealt(const struct ofs_zero_new *z, uint32_t *world)
{
	int stage = ofs_zero_new_stage(z);
	int64_t v;

	if ((stage != 1 && stage != 2) ||
	    !ofs_zero_new_true(z, ofs_zero_new_fact(z, ROUND_ROBIN)) ||
	    !ofs_zero_new_int(z, "dp_world_size", &v) || v < 1 ||
	    v > UINT32_MAX)
		return false;
	*world = (uint32_t)v;
	return true;
}

/* The trained parameters of a group in flat order: the optimizer's order, or
 * dealt. Returns their number. */
static uint32_t order_group(const struct ofs_zero_new *z,
    const struct ofs_optim_group *g, uint32_t *own, uint32_t *order)
{
	bool deal = z->stage != 3 &&
	    ofs_zero_new_true(z, ofs_zero_new_fact(z, ROUND_ROBIN));
	uint32_t world = 1, n = 0;
	bool was = was_dealt(z, &world);

	for (uint32_t i = g->first; i < g->first + g->n; i++)
		if (!z->master[i].frozen)
			own[n++] = i;
	for (uint32_t i = 0; i < n; i++)
		order[deal ? dealt(i, n, z->world) : i] =
		    own[was ? dealt(i, n, world) : i];
	return n;
}

static void add_shape(struct ofs_zero_new *z, uint32_t at, uint32_t group)
{
	const struct ofs_flat_member *p = &z->m.param[z->order[at]];
	const struct ofs_tensor *t = ofs_flat_tensor(&z->m, p->model);

	z->shapes.param[at] = (struct ofs_zero_param){ .name = p->fqn,
		.group = group,
		.ndim = t->ndim,
		.shape = ofs_tensor_shape(z->m.cat, t) };
	z->shapes.numel[at] = ofs_tensor_numel(z->m.cat, t);
}

/* The number of elements per rank after which stage 3 begins another flat
 * group. */
static int64_t sub_group(const struct ofs_zero_new *z)
{
	int64_t v;

	if (ofs_zero_new_int(z, "ds_config/zero_optimization/sub_group_size",
		&v) &&
	    v > 0)
		return v;
	return SUB_GROUP;
}

static void begin_group(struct ofs_zero_new *z, uint32_t at, uint32_t group)
{
	z->shapes.first[z->shapes.ngroups] = at;
	z->group[z->shapes.ngroups++] = group;
}

/* Adds a flat group of n parameters from at on. */
static void add_group(struct ofs_zero_new *z, uint32_t group, uint32_t at,
    uint32_t n)
{
	uint64_t most = (uint64_t)sub_group(z), held = 0;

	begin_group(z, at, group);
	for (uint32_t i = at; i < at + n; i++) {
		if (z->stage == 3 && held >= most) {
			begin_group(z, i, group);
			held = 0;
		}
		add_shape(z, i, z->shapes.ngroups - 1);
		held += z->shapes.numel[i] / z->world +
		    (z->shapes.numel[i] % z->world != 0);
	}
}

int ofs_zero_new_order(struct ofs_zero_new *z, struct optimfs_error *err)
{
	uint64_t n = z->m.groups.names.n, most = n + z->m.groups.n + 1;
	uint32_t *own;

	z->order = calloc(n + 1, sizeof(*z->order));
	z->group = calloc(most, sizeof(*z->group));
	z->shapes.param = calloc(n + 1, sizeof(*z->shapes.param));
	z->shapes.numel = calloc(n + 1, sizeof(*z->shapes.numel));
	z->shapes.first = calloc(most, sizeof(*z->shapes.first));
	if (z->order == NULL || z->group == NULL || z->shapes.param == NULL ||
	    z->shapes.numel == NULL || z->shapes.first == NULL)
		return ofs_no_memory(err);
	own = malloc((n + 1) * sizeof(*own));
	if (own == NULL)
		return ofs_no_memory(err);
	for (uint32_t g = 0; g < z->m.groups.n; g++) {
		uint32_t m = order_group(z, &z->m.groups.v[g], own,
		    z->order + z->shapes.n);

		add_group(z, g, z->shapes.n, m);
		z->shapes.n += m;
	}
	free(own);
	z->shapes.first[z->shapes.ngroups] = z->shapes.n;
	return ofs_zero_layout_init(&z->layout, &z->shapes,
	    z->stage == 3 ? 3 : 2, z->world, err);
}
