/* solve_buffer.c - names for the slices of one buffer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/megatron/solve.h"

/* The parameters that the buffer may have are sorted into ranges of equal length
 * and weight; in a buffer without a proof, of equal length. A slice has one of
 * these ranges as options. The order of registration then decides: all slices,
 * end to end, must be parameters in reverse order. Where no known order allows
 * that, only parameters of one kind are compared, of which a layer's is always
 * before the next layer's: two whose weights were exchanged have no name then.
 *
 * A slice without options is left out. Its weight was changed, or is damaged. */

struct range {
	uint64_t len, hash;
	uint32_t first, n; /* in pool */
};

struct solving {
	struct ofs_solve *s;
	struct ofs_solve_buffer *f;
	const struct ofs_solve_bucket *bucket; /* that is walked */
	enum { BY_LENGTH, BY_WEIGHT, BY_LIKENESS } mode;
	uint64_t *len; /* different lengths, ascending */
	uint32_t nlens;
	uint32_t *pool; /* indexes in f->use */
	uint32_t npool, pool_cap;
	struct range *range; /* the first ones sorted; then one a slice */
	uint32_t nranges, nsorted, range_cap;
	struct open { /* a slice with options */
		uint32_t slice, range;
	} * open;
	uint32_t nopen, open_cap;
	/* of the order that is tried: the places of f->use, those of pool, and
	 * f->use by place */
	uint32_t *place, *places, *order;
};

static struct ofs_solve_param *param(const struct solving *k, uint32_t use)
{
	return &k->s->param[k->f->use[use]];
}

/* Ranges. */

static bool comparable(const struct ofs_solve *s,
    const struct ofs_solve_buffer *f)
{
	for (uint32_t i = f->first; i < f->first + f->n; i++) {
		const struct ofs_solve_state *t = &s->state[s->bucket[i].main];
		const struct ofs_catalog *cat = s->m->cat;

		if (!ofs_catalog_string_is(cat, t->name, "param") ||
		    cat->tensors[cat->entries[t->entry].ref].dtype !=
			OFS_FLOAT32)
			return false;
	}
	return true;
}

static int by_content(const void *a, const void *b, void *ctx)
{
	const struct solving *k = ctx;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	const struct ofs_solve_param *x = param(k, i), *y = param(k, j);

	if (x->len != y->len)
		return OFS_ORDER(x->len, y->len);
	if (k->mode == BY_WEIGHT && x->hash != y->hash)
		return OFS_ORDER(x->hash, y->hash);
	return OFS_ORDER(i, j);
}

static int add_range(struct solving *k, struct range r)
{
	if (ofs_grow(k->range, k->nranges, k->range_cap, k->s->err) == -1)
		return -1;
	k->range[k->nranges++] = r;
	return 0;
}

static int make_ranges(struct solving *k)
{
	for (uint32_t i = 0; i < k->npool; i++) {
		const struct ofs_solve_param *p = param(k, k->pool[i]);
		uint64_t hash = k->mode == BY_WEIGHT ? p->hash : 0;
		struct range *last =
		    k->nranges == 0 ? NULL : &k->range[k->nranges - 1];

		if (last != NULL && last->len == p->len && last->hash == hash)
			last->n++;
		else if (add_range(k, (struct range){ p->len, hash, i, 1 }) ==
		    -1)
			return -1;
		if (k->nlens == 0 || k->len[k->nlens - 1] != p->len)
			k->len[k->nlens++] = p->len;
	}
	k->nsorted = k->nranges;
	return 0;
}

static int collect(struct solving *k)
{
	uint32_t n = k->f->nuse;

	if (ofs_reserve(k->pool, (uint64_t)n + 1, k->pool_cap, k->s->err) == -1)
		return -1;
	k->len = ofs_alloc((size_t)n + 1, sizeof(*k->len), k->s->err);
	if (k->len == NULL)
		return -1;
	if (k->mode != BY_LENGTH &&
	    ofs_sample_params(k->s, k->f->use, n, k->mode == BY_LIKENESS) == -1)
		return -1;
	for (uint32_t i = 0; i < n; i++)
		k->pool[k->npool++] = i;
	qsort_r(k->pool, n, sizeof(*k->pool), by_content, k);
	return make_ranges(k);
}

static int compare_range(const void *key, const void *item)
{
	const struct range *x = key, *y = item;

	return x->len != y->len ? OFS_ORDER(x->len, y->len)
				: OFS_ORDER(x->hash, y->hash);
}

static uint32_t find_range(const struct solving *k, uint64_t len, uint64_t hash)
{
	struct range want = { .len = len, .hash = hash };
	const struct range *r = ofs_search(&want, k->range, k->nsorted,
	    sizeof(want), compare_range);

	return r == NULL ? OFS_NONE : (uint32_t)(r - k->range);
}

/* Slices. Each function sets *range, or OFS_NONE. */

static int by_weight(struct solving *k, struct ofs_bucket_slice slice,
    uint32_t *range)
{
	uint64_t hash[2];
	unsigned int n;

	*range = OFS_NONE;
	if (ofs_sample_slice(k->s, (uint32_t)(k->bucket - k->s->bucket), slice,
		k->f->dtype, hash, &n) == -1)
		return -1;
	/* no hash is 0, that of a weight that could not be read */
	for (unsigned int i = 0; i < n && *range == OFS_NONE; i++)
		*range = find_range(k, slice.len, hash[i]);
	return 0;
}

static int by_likeness(struct solving *k, struct ofs_bucket_slice slice,
    uint32_t *range)
{
	uint32_t all = find_range(k, slice.len, 0), n;
	struct range found = { .first = k->npool };
	float v[OFS_BUCKET_SAMPLE];

	*range = OFS_NONE;
	if (all == OFS_NONE ||
	    ofs_sample_floats(k->s, k->bucket, slice, v, &n) == -1)
		return all == OFS_NONE ? 0 : -1;
	for (uint32_t i = 0; i < k->range[all].n; i++) {
		uint32_t use = k->pool[k->range[all].first + i];
		const float *sample = param(k, use)->sample;

		if (sample == NULL || !ofs_solve_spend(k->s, n) ||
		    !ofs_bucket_near(v, sample, n))
			continue;
		if (ofs_grow(k->pool, k->npool, k->pool_cap, k->s->err) == -1)
			return -1;
		k->pool[k->npool++] = use;
		found.n++;
	}
	if (found.n == 0)
		return 0;
	*range = k->nranges;
	return add_range(k, found);
}

static int options(struct solving *k, struct ofs_bucket_slice slice,
    uint32_t *range)
{
	switch (k->mode) {
	case BY_WEIGHT:
		return by_weight(k, slice, range);
	case BY_LIKENESS:
		return by_likeness(k, slice, range);
	case BY_LENGTH:
		break;
	}
	*range = find_range(k, slice.len, 0);
	return 0;
}

static int holds(void *ctx, struct ofs_bucket_slice slice,
    struct optimfs_error *err)
{
	uint32_t range;

	(void)err; /* that of struct ofs_solve */
	if (options(ctx, slice, &range) == -1)
		return -1;
	return range != OFS_NONE;
}

static int add_slice(struct solving *k, uint32_t bucket,
    struct ofs_bucket_slice at)
{
	struct ofs_solve *s = k->s;
	struct open o = { .slice = s->nslices };

	if (options(k, at, &o.range) == -1 ||
	    ofs_grow(s->slice, s->nslices, s->slice_cap, s->err) == -1)
		return -1;
	s->slice[s->nslices++] = (struct ofs_solve_slice){
		.at = at, .bucket = bucket, .param = OFS_NONE
	};
	if (o.range == OFS_NONE)
		return 0;
	if (ofs_grow(k->open, k->nopen, k->open_cap, s->err) == -1)
		return -1;
	k->open[k->nopen++] = o;
	return 0;
}

static int walk(struct solving *k, uint32_t bucket)
{
	struct ofs_solve_bucket *b = &k->s->bucket[bucket];
	const struct ofs_bucket_walk w = {
		.chunk = b->chunks.at,
		.nchunks = b->chunks.n,
		.len = k->len,
		.nlens = k->nlens,
		.holds = k->mode == BY_LENGTH ? NULL : holds,
		.ctx = k,
		.budget = &k->s->work,
	};
	struct ofs_bucket_slice *slice;
	uint32_t n;
	int ret = 0;

	k->bucket = b;
	b->slice = k->s->nslices;
	if (ofs_bucket_walk(&w, &slice, &n, &b->whole, k->s->err) == -1)
		return -1;
	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_slice(k, bucket, slice[i]);
	b->nslices = n;
	b->whole = b->whole && b->chunks.n > 0;
	free(slice);
	return ret;
}

/* The order. */

struct ordering {
	const struct solving *k;
	unsigned int form;
};

/* The last that was registered is the first in the buffer. */
static int by_order(const void *a, const void *b, void *ctx)
{
	const struct ordering *o = ctx;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	int c = ofs_bucket_order(&param(o->k, j)->name, &param(o->k, i)->name,
	    o->form);

	return c != 0 ? c : OFS_ORDER(i, j);
}

static void put_in_order(struct solving *k, unsigned int form)
{
	struct ordering o = { k, form };

	for (uint32_t i = 0; i < k->f->nuse; i++)
		k->order[i] = i;
	qsort_r(k->order, k->f->nuse, sizeof(*k->order), by_order, &o);
	for (uint32_t i = 0; i < k->f->nuse; i++)
		k->place[k->order[i]] = i;
	for (uint32_t i = 0; i < k->npool; i++)
		k->places[i] = k->place[k->pool[i]];
	for (uint32_t i = 0; i < k->nranges; i++)
		qsort(k->places + k->range[i].first, k->range[i].n,
		    sizeof(*k->places), ofs_compare_u32);
}

/* Is the order known among all options of a slice? */
static bool ordered(const struct solving *k, const struct range *r,
    uint32_t use)
{
	for (uint32_t i = 0; i < r->n; i++) {
		uint32_t other = k->pool[r->first + i];

		if (!ofs_solve_spend(k->s, 1))
			return false;
		if (other != use &&
		    !ofs_bucket_ordered(&param(k, use)->name,
			&param(k, other)->name))
			return false;
	}
	return true;
}

static void name_slice(struct solving *k, const struct open *o, uint32_t use)
{
	struct ofs_solve_slice *slice = &k->s->slice[o->slice];
	const struct range *r = &k->range[o->range];
	bool alone = r->n == 1;

	if (!alone && !ordered(k, r, use))
		return;
	slice->param = k->f->use[use];
	slice->how =
	    alone && k->mode != BY_LENGTH ? OFS_SOLVE_PROVED : OFS_SOLVE_ORDER;
}

/* What all forms that allow a choice for every slice agree on: chosen[] gets
 * indexes in f->use. *any: there is such a form. */
static int by_forms(struct solving *k, struct ofs_bucket_options *o,
    uint32_t *only, uint32_t *chosen, bool *any)
{
	*any = false;
	for (unsigned int form = 0; form < OFS_BUCKET_FORMS; form++) {
		bool whole;

		put_in_order(k, form);
		for (uint32_t i = 0; i < k->nopen; i++) {
			const struct range *r = &k->range[k->open[i].range];

			o[i] =
			    (struct ofs_bucket_options){ k->places + r->first,
				    r->n };
		}
		if (ofs_bucket_chain(o, k->nopen, only, &whole, k->s->err) ==
		    -1)
			return -1;
		for (uint32_t i = 0; whole && i < k->nopen; i++) {
			uint32_t use =
			    only[i] == OFS_NONE ? OFS_NONE : k->order[only[i]];

			if (!*any)
				chosen[i] = use;
			else if (chosen[i] != use)
				chosen[i] = OFS_NONE;
		}
		*any = *any || whole;
	}
	return 0;
}

static int compare_kinds(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b)
{
	int c = ofs_str_compare(a->head, b->head);

	return c != 0 ? c : ofs_str_compare(a->tail, b->tail);
}

static const struct ofs_bucket_param *name_of(const struct solving *k,
    uint32_t open)
{
	return &param(k, k->pool[k->range[k->open[open].range].first])->name;
}

static int by_kind(const void *a, const void *b, void *ctx)
{
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	int c = compare_kinds(name_of(ctx, i), name_of(ctx, j));

	return c != 0 ? c : OFS_ORDER(i, j);
}

/* Of the slices with one option: what the order within each kind allows. */
static int by_kinds(struct solving *k, struct ofs_bucket_options *o,
    uint32_t *only, uint32_t *chosen)
{
	uint32_t *list =
		     ofs_alloc((size_t)k->nopen + 1, sizeof(*list), k->s->err),
		 n = 0, end;
	int ret = list == NULL ? -1 : 0;
	bool whole;

	for (uint32_t i = 0; ret == 0 && i < k->nopen; i++) {
		chosen[i] = OFS_NONE;
		if (k->range[k->open[i].range].n == 1)
			list[n++] = i;
	}
	if (ret == 0)
		qsort_r(list, n, sizeof(*list), by_kind, k);
	for (uint32_t i = 0; ret == 0 && i < n; i = end) {
		for (end = i; end < n &&
		     compare_kinds(name_of(k, list[i]),
			 name_of(k, list[end])) == 0;
		     end++)
			o[end - i] = (struct ofs_bucket_options){ k->places +
				    k->range[k->open[list[end]].range].first,
				1 };
		ret = ofs_bucket_chain(o, end - i, only, &whole, k->s->err);
		for (uint32_t j = i; ret == 0 && j < end; j++)
			if (only[j - i] != OFS_NONE)
				chosen[list[j]] = k->order[only[j - i]];
	}
	free(list);
	return ret;
}

static int decide(struct solving *k)
{
	size_t n = (size_t)k->nopen + 1;
	struct ofs_bucket_options *o = ofs_alloc(n, sizeof(*o), k->s->err);
	uint32_t *only = ofs_alloc(n, sizeof(*only), k->s->err);
	uint32_t *chosen = ofs_alloc(n, sizeof(*chosen), k->s->err);
	bool any;
	int ret = -1;

	if (o != NULL && only != NULL && chosen != NULL)
		ret = by_forms(k, o, only, chosen, &any);
	if (ret == 0 && !any && k->mode != BY_LENGTH)
		ret = by_kinds(k, o, only, chosen);
	else if (ret == 0 && !any)
		memset(chosen, 0xff, n * sizeof(*chosen));
	for (uint32_t i = 0; ret == 0 && i < k->nopen; i++)
		if (chosen[i] != OFS_NONE)
			name_slice(k, &k->open[i], chosen[i]);
	free(o);
	free(only);
	free(chosen);
	return ret;
}

static int solve(struct solving *k)
{
	size_t n = (size_t)k->f->nuse + 1;

	if (collect(k) == -1)
		return -1;
	for (uint32_t i = 0; i < k->f->n; i++)
		if (walk(k, k->f->first + i) == -1)
			return -1;
	k->place = ofs_alloc(n, sizeof(*k->place), k->s->err);
	k->order = ofs_alloc(n, sizeof(*k->order), k->s->err);
	k->places =
	    ofs_alloc((size_t)k->npool + 1, sizeof(*k->places), k->s->err);
	return k->place == NULL || k->order == NULL || k->places == NULL
	    ? -1
	    : decide(k);
}

int ofs_solve_one(struct ofs_solve *s, struct ofs_solve_buffer *f)
{
	struct solving k = { .s = s, .f = f, .mode = BY_LENGTH };
	int ret;

	if (comparable(s, f))
		k.mode =
		    ofs_bucket_rounds_to(f->dtype) ? BY_WEIGHT : BY_LIKENESS;
	ret = solve(&k);
	free(k.len);
	free(k.pool);
	free(k.range);
	free(k.open);
	free(k.place);
	free(k.places);
	free(k.order);
	return ret;
}
