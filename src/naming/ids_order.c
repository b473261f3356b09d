/* ids_order.c - parameters of IDs by the order of the model */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/ids_order.h"

#include <stdlib.h>

#include "base/memory.h"
#include "catalog/catalog.h"

/* Of one group, matching each ID as early as possible gives the first parameter
 * that it can be, and as late as possible the last one: both are complete ways.
 * What lies between need not be possible, but if the two are equal there is no
 * other. Then no ID of another group can be this parameter, which may narrow that
 * one's range, and so on: rounds over all groups, until nothing changes. A round is
 * one pass over the model for each group, since ranges only become narrower. */

/* A few suffice, as groups differ by shapes or are runs of the model. What a longer
 * chain of conclusions would tell is left open. */
enum { ROUNDS_MAX = 100 };

struct search {
	const struct ofs_ids_order *o;
	struct ofs_ids_range *range;
	uint32_t *owner; /* of each parameter: the only ID it can have */
};

static bool is_told(const struct search *s, uint32_t id)
{
	return s->range[id].first == s->range[id].last &&
	    s->owner[s->range[id].first] == id;
}

static bool may_be(const struct search *s, uint32_t id, uint32_t at)
{
	return s->owner[at] == id ||
	    (s->owner[at] == OFS_NONE && s->o->fits(s->o->ctx, id, at));
}

/* Moves the first parameters of n IDs, from id on, up; returns the ID that has
 * none, or OFS_NONE. */
static uint32_t narrow_first(struct search *s, uint32_t id, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t end = id + n; id < end; id++) {
		struct ofs_ids_range *r = &s->range[id];

		if (at < r->first)
			at = r->first;
		while (at <= r->last && !may_be(s, id, at))
			at++;
		if (at > r->last)
			return id;
		r->first = at++;
	}
	return OFS_NONE;
}

/* Moves their last ones down. There is a way, because there are first ones. */
static void narrow_last(struct search *s, uint32_t id, uint32_t n)
{
	uint32_t end = s->o->n;

	for (uint32_t i = id + n; i-- > id;) {
		struct ofs_ids_range *r = &s->range[i];

		if (end > r->last + 1)
			end = r->last + 1;
		while (!may_be(s, i, end - 1))
			end--;
		r->last = --end;
	}
}

/* 1: new IDs are told; 0: none; -1: *id has no parameter. */
static int narrow_group(struct search *s, uint32_t first, uint32_t n,
    uint32_t *id)
{
	int changed = 0;

	*id = narrow_first(s, first, n);
	if (*id != OFS_NONE)
		return -1;
	narrow_last(s, first, n);
	for (uint32_t i = first; i < first + n; i++) {
		if (s->range[i].first != s->range[i].last || is_told(s, i))
			continue;
		s->owner[s->range[i].first] = i;
		changed = 1;
	}
	return changed;
}

static int narrow_all(struct search *s, uint32_t *id)
{
	uint32_t first = 0;
	int changed = 0;

	for (uint32_t g = 0; g < s->o->ngroups; g++) {
		int ret = narrow_group(s, first, s->o->group[g], id);

		if (ret == -1)
			return -1;
		changed |= ret;
		first += s->o->group[g];
	}
	return changed;
}

int ofs_ids_order_find(const struct ofs_ids_order *o,
    struct ofs_ids_range *range, uint32_t *id, struct optimfs_error *err)
{
	struct search s = { o, range, malloc(o->n * sizeof(*s.owner) + 1) };
	uint32_t nids = 0;
	int ret = 1;

	if (s.owner == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < o->n; i++)
		s.owner[i] = OFS_NONE;
	for (uint32_t g = 0; g < o->ngroups; g++)
		nids += o->group[g];
	*id = 0;
	for (uint32_t i = 0; i < nids && o->n > 0; i++)
		range[i] = (struct ofs_ids_range){ 0, o->n - 1 };
	if (nids > 0 && o->n == 0)
		ret = -1;
	for (int round = 0; round < ROUNDS_MAX && ret == 1; round++)
		ret = narrow_all(&s, id);
	free(s.owner);
	return ret == -1 ? 1 : 0;
}
