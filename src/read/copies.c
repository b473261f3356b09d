/* copies.c - where all copies of elements are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/copies.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "catalog/owners.h"
#include "read/locate.h"

/* The copies of each shard that one round plans: in round 0 the shards, in
 * round k the replica k of each. */
struct copies {
	struct ofs_reader *reader;
	uint32_t round;
	bool more; /* some shard has a replica for a later round */
	struct ofs_place **place; /* of replicas, for freeing */
	size_t n, cap;
};

static struct ofs_place *keep(struct copies *c, struct ofs_place *p,
    struct optimfs_error *err)
{
	if (p != NULL && ofs_grow(c->place, c->n, c->cap, err) == -1) {
		free(p);
		return NULL;
	}
	if (p != NULL)
		c->place[c->n++] = p;
	return p;
}

static const struct ofs_place *place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct copies *c = ctx;
	const struct ofs_replica *copy;
	struct ofs_place *p;
	uint32_t n;

	copy = ofs_replicas(c->reader->cat, shard, &n);
	c->more = c->more || n > c->round;
	if (c->round == 0)
		return ofs_locate_shard(c->reader, t, shard, err);
	if (c->round <= n)
		return keep(c,
		    ofs_locate_replica(c->reader, t, &copy[c->round - 1], err),
		    err);
	/* this shard has no replica for this round */
	p = ofs_alloc(1, sizeof(*p) + t->grid_ndim * sizeof(p->stride[0]), err);
	if (p != NULL)
		p->object = OFS_NONE;
	return keep(c, p, err);
}

static void drop_nowhere(struct ofs_plan *plan, size_t from)
{
	size_t n = from;

	for (size_t i = from; i < plan->n; i++)
		if (plan->seg[i].object != OFS_NONE)
			plan->seg[n++] = plan->seg[i];
	plan->n = n;
}

int ofs_plan_copies(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct ofs_plan *plan,
    struct optimfs_error *err)
{
	struct copies c = { .reader = r, .more = true };
	int ret = 0;

	for (; ret == 0 && c.more; c.round++) {
		size_t from = plan->n;

		c.more = false;
		ret = ofs_plan_elements(r->cat, t, first, count, place, &c,
		    plan, err);
		drop_nowhere(plan, from);
	}
	if (ret == 0 && plan->nzeros > 0)
		ret = optimfs_fail(err, EIO,
		    "OFS607 no shard has room for a part of what was written");
	for (size_t i = 0; i < c.n; i++)
		free(c.place[i]);
	free(c.place);
	return ret;
}
