/* ids_order.c - parameters of IDs by the order of the model, against all ways */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/ids_order.h"

#include <string.h>

#include "tap.h"

#define NMAX 9

/* Parameters and the state of IDs have marks, and those with equal marks fit. */
struct model {
	uint32_t n, nids, ngroups, group[3];
	uint32_t mark[NMAX], id_mark[NMAX]; /* of an ID without state: 0 */
	uint32_t truth[NMAX];
};

static uint64_t seed = 88172645463325252u;

static uint32_t below(uint32_t n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return (uint32_t)(seed % n);
}

static bool fits(const void *ctx, uint32_t id, uint32_t at)
{
	const struct model *m = ctx;

	return m->id_mark[id] == 0 || m->id_mark[id] == m->mark[at];
}

/* A model, and an optimizer that has most of its parameters. */
static void make(struct model *m, uint32_t ngroups, uint32_t nmarks)
{
	uint32_t of[NMAX];

	*m = (struct model){ .n = 1 + below(NMAX), .ngroups = ngroups };
	for (uint32_t i = 0; i < m->n; i++) {
		m->mark[i] = 1 + below(nmarks);
		of[i] = below(5) == 0 ? ngroups : below(ngroups);
	}
	for (uint32_t g = 0; g < ngroups; g++)
		for (uint32_t i = 0; i < m->n; i++) {
			if (of[i] != g)
				continue;
			m->group[g]++;
			m->truth[m->nids] = i;
			m->id_mark[m->nids++] = below(6) == 0 ? 0 : m->mark[i];
		}
}

/* What an ID is in all ways that there are. */
struct ways {
	uint64_t n;
	uint32_t at[NMAX];
	struct ofs_ids_range range[NMAX];
};

static bool begins_group(const struct model *m, uint32_t id)
{
	uint32_t first = 0;

	for (uint32_t g = 0; g < m->ngroups; g++) {
		if (id == first && m->group[g] > 0)
			return true;
		first += m->group[g];
	}
	return false;
}

/* Tries every parameter for id and those after it. */
static void try_all(const struct model *m, uint32_t id, uint32_t used,
    struct ways *w)
{
	uint32_t from = 0;

	if (id == m->nids) {
		for (uint32_t i = 0; i < m->nids; i++) {
			struct ofs_ids_range *r = &w->range[i];

			if (w->n == 0 || w->at[i] < r->first)
				r->first = w->at[i];
			if (w->n == 0 || w->at[i] > r->last)
				r->last = w->at[i];
		}
		w->n++;
		return;
	}
	if (!begins_group(m, id))
		from = w->at[id - 1] + 1;
	for (uint32_t at = from; at < m->n; at++) {
		if ((used >> at & 1) != 0 || !fits(m, id, at))
			continue;
		w->at[id] = at;
		try_all(m, id + 1, used | 1u << at, w);
	}
}

static int find(const struct model *m, struct ofs_ids_range *range,
    uint32_t *id)
{
	struct ofs_ids_order o = { m->n, m->group, m->ngroups, fits, m };

	return ofs_ids_order_find(&o, range, id, NULL);
}

/* Counts of models, and of IDs. */
struct counts {
	uint32_t wrong, open, told, only;
};

static void compare(const struct model *m, struct counts *c)
{
	struct ofs_ids_range range[NMAX];
	struct ways w = { .n = 0 };
	uint32_t id;
	int ret = find(m, range, &id);

	try_all(m, 0, 0, &w);
	if (ret != 0) {
		c->wrong += w.n > 0 || id >= m->nids;
		return;
	}
	for (uint32_t i = 0; i < m->nids && w.n > 0; i++) {
		bool told = range[i].first == range[i].last;
		bool only = w.range[i].first == w.range[i].last;

		c->told += told;
		c->only += only;
		c->open += !told;
		/* the first and the last one of all ways are in the range */
		c->wrong += range[i].first > w.range[i].first ||
		    range[i].last < w.range[i].last;
	}
	if (m->ngroups == 1)
		c->wrong += w.n == 0 ||
		    memcmp(range, w.range, m->nids * sizeof(*range)) != 0;
}

static void one_group(void)
{
	struct counts c = { 0 };
	struct model m;

	for (int i = 0; i < 3000; i++) {
		make(&m, 1, 3);
		compare(&m, &c);
	}
	is_int((int)c.wrong, 0, "one group: ranges are those of all ways");
	ok(c.told > 1000 && c.open > 1000,
	    "one group: %u IDs are told, %u are open", c.told, c.open);
	for (int i = 0; i < 3000; i++) {
		make(&m, 1, 2);
		for (uint32_t k = 0; k < m.nids; k++)
			m.id_mark[k] = 1 + below(2);
		compare(&m, &c);
	}
	is_int((int)c.wrong, 0,
	    "one group: there is no way only if all ways fail");
}

static void several_groups(void)
{
	struct counts c = { 0 };
	struct model m;

	for (int i = 0; i < 3000; i++) {
		make(&m, 2 + below(2), 3);
		compare(&m, &c);
	}
	is_int((int)c.wrong, 0, "groups: no range leaves out a way");
	ok(c.told * 10 > c.only * 9, "groups: %u IDs are told of %u", c.told,
	    c.only);
	c = (struct counts){ 0 };
	for (int i = 0; i < 3000; i++) {
		make(&m, 2, 100000);
		for (uint32_t k = 0; k < m.nids; k++)
			m.id_mark[k] = m.mark[m.truth[k]];
		compare(&m, &c);
	}
	ok(c.wrong == 0 && c.open < 10,
	    "groups: IDs with different states are told (%u open)", c.open);
}

/* What one group has cannot be another's: matrices, vectors, and a vector without
 * state. */
static void taken_by_others(void)
{
	struct model m = { .n = 6,
		.nids = 6,
		.ngroups = 2,
		.group = { 3, 3 },
		.mark = { 1, 2, 1, 2, 1, 2 },
		.id_mark = { 1, 1, 1, 2, 0, 2 } };
	struct ofs_ids_range range[NMAX];
	uint32_t id;

	is_int(find(&m, range, &id), 0, "two groups that alternate");
	is_u64(range[4].first, 3, "an ID without state: the first parameter");
	is_u64(range[4].last, 3, "an ID without state: the last parameter");
	m.id_mark[4] = 1;
	is_int(find(&m, range, &id), 1, "a parameter that another group has");
	is_u64(id, 4, "the ID that has no parameter");
	m.n = 0;
	is_int(find(&m, range, &id), 1, "a model without parameters");
	m.group[0] = m.group[1] = 0;
	is_int(find(&m, range, &id), 0, "no model, and no IDs");
}

int main(void)
{
	one_group();
	several_groups();
	taken_by_others();
	return done_testing();
}
