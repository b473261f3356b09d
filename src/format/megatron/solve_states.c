/* solve_states.c - tensors of the states in named slices */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/megatron/solve.h"

/* A state of a parameter is the ranges of buckets where its parts are, as boxes
 * of the parameter; no bytes are copied. Tensor-parallel ranks may have the same
 * part, each in its own bucket, and so may two stages that share an embedding.
 * Then their boxes are cut alike, so that they become replicas: reads use one,
 * fsck compares them, and a commit writes all.
 *
 * A parameter gets its states if all its parts were found. Until then the slices
 * that claim it are as good as without a name. */

/* A part of a parameter, in a slice. */
struct claim {
	uint32_t unit, shard; /* of the model */
	uint32_t slice;
	uint64_t at; /* in the bucket */
};

/* A parameter of the model, as the tree has it: one layer of a stack. */
struct unit {
	uint32_t entry, layer; /* UINT32_MAX: no stack */
};

struct states {
	struct ofs_solve *s;
	struct ofs_catalog *cat;
	struct ofs_keys keys; /* struct unit */
	bool *complete;       /* by unit */
	bool shared; /* two chained optimizers have the same parameter */
	struct claim *claim;
	uint32_t nclaims, claim_cap;
	struct ofs_solve_chunks *chunks; /* by state; the main ones borrowed */
	uint64_t budget;                 /* boxes that may still be made */
	struct ofs_shard *shard;         /* of the tensor that is being made */
	uint32_t nshards, shard_cap;
};

OFS_COMPARE_BY3(by_unit, struct claim, unit, shard, slice)

static const struct ofs_tensor *model_of(const struct states *k, uint32_t entry)
{
	return &k->cat->tensors[k->cat->entries[entry].ref];
}

/* Claims. */

static bool is_stack(const struct states *k, uint32_t entry)
{
	struct ofs_megatron_key key;
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(k->cat, k->cat->entries[entry].path, &n);

	ofs_megatron_parse(ofs_catalog_string(k->cat, c[0]), &key);
	return ofs_megatron_layer_at(key.name) != 0;
}

static uint64_t volume(const uint64_t *size, unsigned int n)
{
	uint64_t v = 1;

	for (unsigned int i = 0; i < n; i++)
		v *= size[i]; /* of a part, whose length was checked */
	return v;
}

static int claim_parts(struct states *k, uint32_t slice)
{
	const struct ofs_solve_slice *x = &k->s->slice[slice];
	const struct ofs_solve_param *p = &k->s->param[x->param];
	uint64_t at = x->at.off, lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS];

	for (unsigned int i = 0; i < p->nparts; i++) {
		uint32_t entry = p->part[i].entry, shard = p->part[i].shard;
		const struct ofs_tensor *t = model_of(k, entry);
		struct unit u = { entry, UINT32_MAX };
		uint32_t number;

		ofs_shard_box(k->cat, t, &k->cat->shards[shard], lo, size);
		if (is_stack(k, entry))
			u.layer = (uint32_t)lo[0];
		number = ofs_keys_copy(&k->keys, &u, sizeof(u), k->s->err);
		if (number == OFS_NONE ||
		    ofs_grow(k->claim, k->nclaims, k->claim_cap, k->s->err) ==
			-1)
			return -1;
		k->claim[k->nclaims++] =
		    (struct claim){ number, shard, slice, at };
		at += volume(size, t->ndim);
	}
	return 0;
}

static int claim_all(struct states *k)
{
	for (uint32_t i = 0; i < k->s->nbuckets; i++) {
		const struct ofs_solve_bucket *b = &k->s->bucket[i];

		for (uint32_t j = b->slice; j < b->slice + b->nslices; j++)
			if (k->s->slice[j].how != OFS_SOLVE_OPEN &&
			    claim_parts(k, j) == -1)
				return -1;
	}
	if (k->nclaims > 0)
		qsort(k->claim, k->nclaims, sizeof(*k->claim), by_unit);
	return 0;
}

/* A parameter that is being made. */
struct making {
	struct states *k;
	struct unit unit;
	const struct claim *claim;
	uint32_t n;
	unsigned int
	    lead; /* axes of the stored tensor before the parameter's */
	unsigned int ndim; /* of the parameter */
	uint64_t shape[OFS_MAX_DIMS];
};

static const struct ofs_solve_bucket *bucket_of(const struct states *k,
    const struct claim *c)
{
	return &k->s->bucket[k->s->slice[c->slice].bucket];
}

/* Are all parts of the parameter claimed? */
static bool covers(const struct making *g)
{
	const struct states *k = g->k;
	const struct ofs_tensor *t = model_of(k, g->unit.entry);
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], all, sum = 0;

	if (!ofs_numel(g->shape, g->ndim, &all))
		return false;
	for (uint32_t i = 0; i < g->n; i++) {
		if (i > 0 && g->claim[i].shard == g->claim[i - 1].shard)
			continue;
		ofs_shard_box(k->cat, t, &k->cat->shards[g->claim[i].shard], lo,
		    size);
		ofs_sum_u64(&sum, volume(size, t->ndim));
	}
	return sum == all;
}

/* The state with this name of a bucket; OFS_NONE. */
static uint32_t state_of(const struct states *k,
    const struct ofs_solve_bucket *b, uint32_t name)
{
	for (uint32_t i = b->first; i < b->first + b->n; i++)
		if (k->s->state[i].name == name)
			return i;
	return OFS_NONE;
}

static const struct ofs_tensor *stored_of(const struct states *k,
    uint32_t state)
{
	return model_of(k, k->s->state[state].entry);
}

/* The chunks of a state; NULL with *ret -1, or if it has none. */
static const struct ofs_solve_chunks *chunks_of(struct states *k,
    uint32_t state, const struct ofs_solve_bucket *b, int *ret)
{
	struct ofs_solve_chunks *c = &k->chunks[state];

	if (state == b->main)
		return &b->chunks;
	if (c->n == 0)
		*ret = ofs_solve_chunks(k->s, state, c);
	return *ret == -1 || c->n == 0 ? NULL : c;
}

OFS_COMPARE_KEY(find_chunk, uint64_t, struct ofs_bucket_chunk, off)

/* The chunk with this element; NULL: there is none. */
static const struct ofs_bucket_chunk *chunk_at(const struct ofs_solve_chunks *c,
    uint64_t at)
{
	size_t i =
	    ofs_upper_bound(&at, c->at, c->n, sizeof(*c->at), find_chunk);

	if (i == 0 || at - c->at[i - 1].off >= c->at[i - 1].len)
		return NULL;
	return &c->at[i - 1];
}

/* A part of a parameter: where the ranks that have it, have a state of it. */
struct part {
	struct making *g;
	uint32_t name; /* of the state */
	const struct claim *claim;
	uint32_t n;
	uint64_t at[OFS_MAX_DIMS], size[OFS_MAX_DIMS]; /* in the parameter */
};

/* The end of the run from element from of the part on that no copy is cut in; 0:
 * a copy lacks it. */
static uint64_t next_cut(struct part *p, uint64_t from, uint64_t end, int *ret)
{
	struct states *k = p->g->k;

	for (uint32_t i = 0; i < p->n; i++) {
		const struct ofs_solve_bucket *b = bucket_of(k, &p->claim[i]);
		uint32_t state = state_of(k, b, p->name);
		const struct ofs_solve_chunks *c = chunks_of(k, state, b, ret);
		const struct ofs_bucket_chunk *x =
		    c == NULL ? NULL : chunk_at(c, p->claim[i].at + from);
		uint64_t left;

		if (x == NULL)
			return 0;
		left = x->off + x->len - (p->claim[i].at + from);
		if (left < end - from)
			end = from + left;
	}
	return end;
}

/* Adds a box of the part, for each copy. 1; 0: the budget is used up; -1. */
static int add_copies(struct part *p, const uint64_t *at, const uint64_t *size,
    uint64_t from, int *ret)
{
	struct states *k = p->g->k;

	for (uint32_t i = 0; i < p->n; i++) {
		const struct ofs_solve_bucket *b = bucket_of(k, &p->claim[i]);
		uint32_t state = state_of(k, b, p->name);
		const struct ofs_solve_chunks *c = chunks_of(k, state, b, ret);
		const struct ofs_bucket_chunk *x =
		    chunk_at(c, p->claim[i].at + from);
		struct ofs_shard s = k->cat->shards[c->shard[x - c->at]];

		if (k->budget == 0)
			return 0;
		k->budget--;
		if (s.view != OFS_NONE)
			return 0; /* as no release writes them */
		if (ofs_megatron_box(k->cat, p->g->ndim, at, size,
			p->claim[i].at + from - x->off, x->len, &s,
			k->s->err) == -1 ||
		    ofs_grow(k->shard, k->nshards, k->shard_cap, k->s->err) ==
			-1)
			return -1;
		k->shard[k->nshards++] = s;
	}
	return 1;
}

/* 1; 0: it cannot be made; -1. */
static int add_part(struct part *p)
{
	unsigned int d = p->g->ndim;
	uint64_t end = volume(p->size, d), cut, len, at[OFS_MAX_DIMS],
		 size[OFS_MAX_DIMS];
	int ret = 0, done = 1;

	for (uint64_t from = 0; from < end && done == 1; from = cut) {
		cut = next_cut(p, from, end, &ret);
		if (cut == 0)
			return ret;
		for (uint64_t i = from; i < cut && done == 1; i += len) {
			len =
			    ofs_megatron_next_box(p->size, d, i, cut, at, size);
			for (unsigned int j = 0; j < d; j++)
				at[j] += p->at[j];
			done = add_copies(p, at, size, i, &ret);
		}
	}
	return done;
}

/* All parts of a state: the shards of its tensor. As add_part. */
static int add_parts(struct making *g, uint32_t name)
{
	struct states *k = g->k;
	const struct ofs_tensor *t = model_of(k, g->unit.entry);
	uint32_t end;
	int ret = 1;

	for (uint32_t i = 0; i < g->n && ret == 1; i = end) {
		uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
		struct part p = { .g = g, .name = name, .claim = &g->claim[i] };

		for (end = i;
		     end < g->n && g->claim[end].shard == g->claim[i].shard;)
			end++;
		p.n = end - i;
		ofs_shard_box(k->cat, t, &k->cat->shards[g->claim[i].shard], lo,
		    size);
		memcpy(p.at, lo + g->lead, g->ndim * sizeof(*lo));
		memcpy(p.size, size + g->lead, g->ndim * sizeof(*size));
		ret = add_part(&p);
	}
	return ret;
}

/* Do all claims have this state, of one type? */
static bool all_have(const struct making *g, uint32_t name, uint8_t dtype)
{
	for (uint32_t i = 0; i < g->n; i++) {
		uint32_t state =
		    state_of(g->k, bucket_of(g->k, &g->claim[i]), name);

		if (state == OFS_NONE || stored_of(g->k, state)->dtype != dtype)
			return false;
	}
	return true;
}

/* The name of a state in a save by name. TransformerEngine's optimizer may keep
 * only the lower half of the master weights; the upper half is the weight. */
static struct ofs_str state_name(const struct states *k, uint32_t name,
    uint8_t dtype)
{
	struct ofs_str s = ofs_catalog_string(k->cat, name);

	return ofs_str_is(s, "param") && !ofs_dtype_is_float(dtype)
	    ? ofs_str_of("fp32_remainder")
	    : s;
}

/* The key that a save by name gives the state; the model's key has no number
 * if it is of a stack. */
static uint32_t state_path(const struct making *g, uint32_t name, uint8_t dtype,
    uint32_t chained)
{
	struct states *k = g->k;
	struct ofs_str state = state_name(k, name, dtype);
	struct ofs_megatron_key key;
	struct ofs_buf text = { 0 };
	uint32_t n, at, str = OFS_NONE, path = OFS_NONE;
	const uint32_t *c = ofs_catalog_components(k->cat,
	    k->cat->entries[g->unit.entry].path, &n);

	ofs_megatron_parse(ofs_catalog_string(k->cat, c[0]), &key);
	at = g->lead > 0 ? ofs_megatron_layer_at(key.name) : 0;
	if (chained != OFS_NONE)
		ofs_buf_printf(&text, "chained_%" PRIu32 ".", chained);
	ofs_buf_printf(&text, "optimizer.state.%.*s.%.*s", (int)state.len,
	    state.p, (int)at, key.name.p);
	if (g->lead > 0)
		ofs_buf_printf(&text, "%" PRIu32 ".", g->unit.layer);
	ofs_buf_put(&text, key.name.p + at, key.name.len - at);
	if (text.bad)
		ofs_no_memory(k->s->err);
	else
		str = ofs_catalog_str(k->cat, (const char *)text.data, text.len,
		    k->s->err);
	ofs_buf_fini(&text);
	if (str != OFS_NONE)
		path = ofs_catalog_path(k->cat, &str, 1, k->s->err);
	return path;
}

/* Makes a tensor of the shards that were added from first on. */
static int add_tensor(struct making *g, uint32_t name, uint8_t dtype,
    uint32_t first, uint32_t end, uint32_t chained)
{
	struct states *k = g->k;
	struct ofs_tensor t = { .dtype = dtype,
		.ndim = (uint8_t)g->ndim,
		.grid_ndim = (uint8_t)g->ndim,
		.flags = OFS_TENSOR_COPIES,
		.shard = k->cat->nshards,
		.nshards = end - first,
		.error = OFS_NONE,
		.index = OFS_NONE };

	t.shape = t.grid =
	    ofs_catalog_dims(k->cat, g->shape, g->ndim, k->s->err);
	for (uint32_t i = first; i < end; i++)
		ofs_catalog_shard(k->cat, &k->shard[i], k->s->err);
	return ofs_catalog_add(k->cat, state_path(g, name, dtype, chained),
	    OFS_ENTRY_TENSOR, ofs_catalog_tensor(k->cat, &t, k->s->err),
	    OFS_KEY_FIXED, k->s->err);
}

/* Can the states be made? */
static bool sound(const struct making *g)
{
	const struct states *k = g->k;
	const struct ofs_solve_bucket *b = bucket_of(k, &g->claim[0]);

	if (!covers(g))
		return false;
	for (uint32_t i = b->first; i < b->first + b->n; i++)
		if (!all_have(g, k->s->state[i].name, stored_of(k, i)->dtype))
			return false;
	return true;
}

/* Makes the tensors of all states, or none. 1, 0; -1. */
static int make(struct making *g)
{
	struct states *k = g->k;
	const struct ofs_solve_bucket *b = bucket_of(k, &g->claim[0]);
	uint32_t *end = ofs_alloc((size_t)b->n + 1, sizeof(*end), k->s->err);
	uint32_t chained = k->s->m->prefixed && !k->s->m->named
	    ? k->s->state[b->first].chained
	    : OFS_NONE;
	int ret = end == NULL ? -1 : 1;

	k->nshards = 0;
	for (uint32_t i = 0; i < b->n && ret == 1; i++) {
		ret = add_parts(g, k->s->state[b->first + i].name);
		end[i] = k->nshards;
	}
	for (uint32_t i = 0; i < b->n && ret == 1; i++) {
		const struct ofs_solve_state *x = &k->s->state[b->first + i];

		if (add_tensor(g, x->name, stored_of(k, b->first + i)->dtype,
			i == 0 ? 0 : end[i - 1], end[i], chained) == -1)
			ret = -1;
	}
	free(end);
	return ret;
}

static void count(struct states *k, const struct making *g)
{
	bool proved = true;

	for (uint32_t i = 0; i < g->n; i++)
		proved = proved &&
		    k->s->slice[g->claim[i].slice].how == OFS_SOLVE_PROVED;
	if (proved)
		k->cat->found.proved++;
	else
		k->cat->found.ordered++;
}

static struct making begin_making(struct states *k, uint32_t first,
    uint32_t end)
{
	struct making g = {
		.k = k, .claim = k->claim + first, .n = end - first
	};
	const struct ofs_tensor *t;

	memcpy(&g.unit, k->keys.v[g.claim->unit].p, sizeof(g.unit));
	t = model_of(k, g.unit.entry);
	g.lead = g.unit.layer == UINT32_MAX ? 0 : 1;
	g.ndim = t->ndim - g.lead;
	memcpy(g.shape, ofs_tensor_shape(k->cat, t) + g.lead,
	    g.ndim * sizeof(*g.shape));
	return g;
}

/* Calls each for every parameter. */
static int for_units(struct states *k, int (*each)(struct making *g))
{
	uint32_t end;

	for (uint32_t i = 0; i < k->nclaims; i = end) {
		struct making g;

		for (end = i; end < k->nclaims &&
		     k->claim[end].unit == k->claim[i].unit;)
			end++;
		g = begin_making(k, i, end);
		if (each(&g) == -1)
			return -1;
	}
	return 0;
}

static uint32_t chained_of(const struct making *g, uint32_t claim)
{
	return g->k->s->state[bucket_of(g->k, &g->claim[claim])->first].chained;
}

static int check_unit(struct making *g)
{
	uint32_t first = chained_of(g, 0);

	g->k->complete[g->claim->unit] = sound(g);
	for (uint32_t i = 1; i < g->n; i++)
		if (chained_of(g, i) != first)
			g->k->shared = true;
	return 0;
}

static int make_unit(struct making *g)
{
	bool *complete = &g->k->complete[g->claim->unit];
	int ret;

	if (!*complete)
		return 0;
	ret = make(g);
	*complete = ret == 1;
	if (ret == 1)
		count(g->k, g);
	return ret == -1 ? -1 : 0;
}

/* The buckets. */

/* Slices whose names do not lead to a tensor lose them. True: all slices have
 * names. */
static bool reopen(struct states *k)
{
	bool all = true;

	k->cat->found.open = 0;
	for (uint32_t i = 0; i < k->nclaims; i++)
		if (!k->complete[k->claim[i].unit])
			k->s->slice[k->claim[i].slice].how = OFS_SOLVE_OPEN;
	for (uint32_t i = 0; i < k->s->nbuckets; i++) {
		struct ofs_solve_bucket *b = &k->s->bucket[i];

		for (uint32_t j = b->slice; j < b->slice + b->nslices; j++) {
			bool named = k->s->slice[j].how != OFS_SOLVE_OPEN;

			b->whole = b->whole && named;
			k->cat->found.open += !named;
		}
		all = all && b->whole;
	}
	return all;
}

/* Notes the parameters of the model that no slice leads to, for a message. */
static void note_lost(struct states *k)
{
	struct ofs_megatron *m = k->s->m;
	uint32_t last = OFS_NONE;

	for (uint32_t i = 0; i < k->s->nparams; i++) {
		const struct ofs_solve_param *p = &k->s->param[i];
		struct unit u = { p->part[0].entry, UINT32_MAX };
		uint32_t number;

		if (is_stack(k, u.entry))
			u.layer = (uint32_t)p->name.layer;
		number = ofs_keys_find(&k->keys, &u, sizeof(u));
		if ((number != OFS_NONE && k->complete[number]) ||
		    u.entry == last)
			continue;
		last = u.entry;
		if (m->nlost++ == 0)
			snprintf(m->lost, sizeof(m->lost), "%.*s",
			    OFS_STR_ARGS(p->name.key, 150));
	}
}

/* Removes the entries of buckets all of whose elements have names. Nothing
 * refers to their tensors then, which become empty. */
static int hide(struct states *k, bool *hidden)
{
	struct ofs_megatron *m = k->s->m;
	uint64_t none = 0;
	uint32_t n = 0, dims = ofs_catalog_dims(k->cat, &none, 1, k->s->err);

	if (dims == OFS_NONE)
		return -1;
	for (uint32_t i = 0; i < k->s->nbuckets; i++) {
		const struct ofs_solve_bucket *b = &k->s->bucket[i];

		for (uint32_t j = b->first; b->whole && j < b->first + b->n;
		     j++) {
			struct ofs_tensor *t =
			    &k->cat->tensors
				 [k->cat->entries[k->s->state[j].entry].ref];

			hidden[k->s->state[j].entry] = true;
			t->shape = t->grid = dims;
			t->nshards = 0;
			m->nbucket--;
		}
	}
	for (uint32_t i = 0; i < k->cat->nentries; i++)
		if (!hidden[i])
			k->cat->entries[n++] = k->cat->entries[i];
	k->cat->nentries = n;
	return 0;
}

static int solve_claimed(struct states *k)
{
	struct ofs_megatron *m = k->s->m;
	bool *hidden;
	int ret = -1;

	k->chunks =
	    ofs_alloc((size_t)k->s->nstates + 1, sizeof(*k->chunks), k->s->err);
	if (k->chunks == NULL || claim_all(k) == -1)
		return -1;
	k->complete = ofs_alloc((size_t)k->keys.n + 1, 1, k->s->err);
	if (k->complete == NULL || for_units(k, check_unit) == -1)
		return -1;
	/* the states of several optimizers are one tree if their names differ,
	 * as in a save by name */
	m->named = reopen(k) && !k->shared;
	if (for_units(k, make_unit) == -1)
		return -1;
	m->named = reopen(k) && m->named;
	if (k->cat->found.open > 0 || !m->named)
		note_lost(k);
	hidden = ofs_alloc((size_t)k->cat->nentries + 1, 1, k->s->err);
	if (hidden != NULL)
		ret = hide(k, hidden);
	free(hidden);
	return ret;
}

int ofs_solve_states(struct ofs_solve *s)
{
	struct states k = { .s = s, .cat = s->m->cat };
	int ret;

	/* a range of 8 dimensions has at most 15 boxes; hostile copies of
	 * copies have more */
	k.budget = (UINT64_C(1) << 20) + 16 * (uint64_t)k.cat->nshards;
	ret = solve_claimed(&k);
	for (uint32_t i = 0; k.chunks != NULL && i < s->nstates; i++)
		ofs_solve_chunks_free(&k.chunks[i]);
	free(k.chunks);
	free(k.claim);
	free(k.complete);
	free(k.shard);
	ofs_keys_fini(&k.keys);
	return ret;
}
