/* step.c - one step per optimizer, copied to each parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/megatron/megatron.h"
#include "pickle/pickle.h"

/* Megatron-Core counts steps once per optimizer: in each of its groups, which
 * agree, or as common_step. Other frameworks have a step beside each
 * parameter's moments, and so the tree gets these, too. */

/* An optimizer, and its step if it is known. */
struct optimizer {
	uint32_t chained; /* string; OFS_NONE: the only optimizer */
	enum { NO_STEP, STEP, STEPS_DIFFER, COMMON_STEP } has;
	uint8_t kind;
	uint32_t ref;
};

struct steps {
	struct ofs_megatron *m;
	struct optimizer *o;
	uint32_t n, cap;
	uint32_t step, common_step; /* strings */
	/* paths of the steps that parameters need, and of those that exist */
	uint32_t *want, *have;
	uint32_t nwant, nhave;
	struct optimfs_error *err;
};

/* The path components of an entry after the optimizer's; *chained gets the
 * optimizer. NULL: the entry belongs to no optimizer. */
static const uint32_t *tail(const struct ofs_megatron *m, uint32_t entry,
    uint32_t *n, uint32_t *chained)
{
	const uint32_t *c =
	    ofs_catalog_components(m->cat, m->cat->entries[entry].path, n);
	struct ofs_str s;

	if (*n < 2 || c[0] != m->optimizer)
		return NULL;
	*chained = OFS_NONE;
	c++, --*n;
	s = ofs_catalog_string(m->cat, c[0]);
	if (ofs_str_take(&s, "chained_")) {
		*chained = c[0];
		c++, --*n;
	}
	return *n == 0 ? NULL : c;
}

static struct optimizer *find_optimizer(struct steps *s, uint32_t chained)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->o[i].chained == chained)
			return &s->o[i];
	if (ofs_grow(s->o, s->n, s->cap, s->err) == -1)
		return NULL;
	s->o[s->n] = (struct optimizer){ .chained = chained };
	return &s->o[s->n++];
}

/* A step as a number; -1: it is no number. */
static double value_of(const struct ofs_catalog *cat, uint32_t ref)
{
	const struct ofs_value *v = &cat->values[ref];
	int64_t i;

	if (ofs_pk_int(v->doc, v->node, &i))
		return (double)i;
	if (ofs_pk_kind(v->doc, v->node) == OFS_PK_FLOAT)
		return ofs_pk_float(v->doc, v->node);
	return -1;
}

static void note_step(const struct ofs_catalog *cat, struct optimizer *o,
    const struct ofs_entry *e)
{
	if (o->has == COMMON_STEP || o->has == STEPS_DIFFER ||
	    e->kind != OFS_ENTRY_VALUE || value_of(cat, e->ref) < 0)
		return;
	if (o->has == STEP) {
		if (value_of(cat, o->ref) != value_of(cat, e->ref))
			o->has = STEPS_DIFFER;
		return;
	}
	o->has = STEP;
	o->kind = e->kind;
	o->ref = e->ref;
}

static int find_steps(struct steps *s)
{
	struct ofs_catalog *cat = s->m->cat;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		uint32_t n, chained;
		const uint32_t *c = tail(s->m, i, &n, &chained);
		struct optimizer *o;

		if (c == NULL ||
		    !((n == 1 && c[0] == s->common_step) ||
			(n == 3 && c[0] == s->m->groups && c[2] == s->step)))
			continue;
		o = find_optimizer(s, chained);
		if (o == NULL)
			return -1;
		if (n == 3) {
			note_step(cat, o, e);
			continue;
		}
		o->has = COMMON_STEP;
		o->kind = e->kind;
		o->ref = e->ref;
	}
	return 0;
}

/* Collects the paths of the steps of all parameters of o that have state. */
static void want_steps(struct steps *s, const struct optimizer *o)
{
	struct ofs_catalog *cat = s->m->cat;

	s->nwant = s->nhave = 0;
	for (uint32_t i = 0; i < cat->nentries; i++) {
		uint32_t n, chained, path[5], k = 0;
		const uint32_t *c = tail(s->m, i, &n, &chained);

		if (c == NULL || chained != o->chained || n != 3 ||
		    c[0] != s->m->states)
			continue;
		path[k++] = s->m->optimizer;
		if (chained != OFS_NONE)
			path[k++] = chained;
		path[k++] = c[0];
		path[k++] = c[1];
		if (c[2] == s->step)
			s->have[s->nhave++] = cat->entries[i].path;
		path[k++] = s->step;
		s->want[s->nwant++] = ofs_catalog_path(cat, path, k, s->err);
	}
	qsort(s->want, s->nwant, sizeof(*s->want), ofs_compare_u32);
	qsort(s->have, s->nhave, sizeof(*s->have), ofs_compare_u32);
}

static int add_steps(struct steps *s, const struct optimizer *o)
{
	struct ofs_catalog *cat = s->m->cat;
	uint32_t k = 0;

	want_steps(s, o);
	for (uint32_t i = 0; i < s->nwant; i++) {
		uint32_t path = s->want[i];

		if (i > 0 && s->want[i - 1] == path)
			continue;
		while (k < s->nhave && s->have[k] < path)
			k++;
		if (k < s->nhave && s->have[k] == path)
			continue;
		if (ofs_catalog_add(cat, path, o->kind, o->ref, OFS_KEY_FREE,
			s->err) == -1)
			return -1;
	}
	if (o->kind == OFS_ENTRY_TENSOR)
		cat->tensors[o->ref].flags |= OFS_TENSOR_TIED;
	return 0;
}

int ofs_megatron_steps(struct ofs_megatron *m, struct optimfs_error *err)
{
	struct steps s = { .m = m, .err = err };
	size_t max = (size_t)m->cat->nentries + 1;
	int ret = -1;

	s.step = ofs_catalog_str(m->cat, "step", 4, err);
	s.common_step = ofs_catalog_str(m->cat, "common_step", 11, err);
	if (s.step == OFS_NONE || s.common_step == OFS_NONE)
		return -1;
	s.want = calloc(max, sizeof(*s.want));
	s.have = calloc(max, sizeof(*s.have));
	if (s.want == NULL || s.have == NULL)
		ofs_no_memory(err);
	else
		ret = find_steps(&s);
	/* each adds only steps of its own parameters, so max is right */
	for (uint32_t i = 0; ret == 0 && i < s.n; i++)
		if (s.o[i].has == STEP || s.o[i].has == COMMON_STEP)
			ret = add_steps(&s, &s.o[i]);
	free(s.want);
	free(s.have);
	free(s.o);
	return ret;
}
