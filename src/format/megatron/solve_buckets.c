/* solve_buckets.c - the flat buckets of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/megatron/solve.h"

/* "[chained_I.]optimizer.distributed.dp_group_idx_M.gbuf_idx_G.dtype_(P,
 * D).bucket_idx_B.STATE": I is a chained optimizer, M a model-parallel rank, G a
 * buffer, P the type of its weights. */

static bool take_index(struct ofs_str *s, const char *word, uint32_t *v)
{
	uint64_t number;

	if (!ofs_str_take(s, word) || !ofs_str_take_number(s, &number) ||
	    number >= UINT32_MAX || s->len == 0 || s->p[0] != '.')
		return false;
	*v = (uint32_t)number;
	*s = ofs_str_after(*s, 1);
	return true;
}

/* "dtype_(torch.bfloat16, torch.float32)." */
static bool take_type(struct ofs_str *s, uint8_t *dtype)
{
	const char *comma, *end;

	if (!ofs_str_take(s, "dtype_("))
		return false;
	comma = memchr(s->p, ',', s->len);
	end = memchr(s->p, ')', s->len);
	if (comma == NULL || end == NULL || comma > end)
		return false;
	*dtype = (uint8_t)ofs_dtype_of_name(s->p, (size_t)(comma - s->p));
	*s = ofs_str_after(*s, (size_t)(end + 1 - s->p));
	if (s->len < 2 || s->p[0] != '.')
		return false;
	*s = ofs_str_after(*s, 1);
	return *dtype != OFS_DTYPE_NONE;
}

static bool parse(const struct ofs_megatron_key *key, struct ofs_solve_state *t,
    struct ofs_str *state)
{
	struct ofs_str s = key->name;

	t->chained = ofs_megatron_chained(key);
	if (!ofs_str_take(&s, "distributed.") ||
	    !take_index(&s, "dp_group_idx_", &t->mp) ||
	    !take_index(&s, "gbuf_idx_", &t->buffer) ||
	    !take_type(&s, &t->dtype) ||
	    !take_index(&s, "bucket_idx_", &t->bucket))
		return false;
	*state = s;
	return memchr(s.p, '.', s.len) == NULL;
}

static int add_state(struct ofs_solve *s, uint32_t entry)
{
	struct ofs_catalog *cat = s->m->cat;
	struct ofs_solve_state t = { .entry = entry };
	struct ofs_megatron_key key;
	struct ofs_str state;
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(cat, cat->entries[entry].path, &n);

	if (n != 1 || cat->entries[entry].kind != OFS_ENTRY_TENSOR)
		return 0;
	ofs_megatron_parse(ofs_catalog_string(cat, c[0]), &key);
	if (key.kind != OFS_MEGATRON_BUCKET || key.object ||
	    !parse(&key, &t, &state) ||
	    cat->tensors[cat->entries[entry].ref].ndim != 1)
		return 0;
	t.name = ofs_catalog_str(cat, state.p, state.len, s->err);
	if (t.name == OFS_NONE ||
	    ofs_grow(s->state, s->nstates, s->state_cap, s->err) == -1)
		return -1;
	s->state[s->nstates++] = t;
	return 0;
}

static int by_buffer(const struct ofs_solve_state *x,
    const struct ofs_solve_state *y)
{
	if (x->chained != y->chained)
		return OFS_ORDER(x->chained, y->chained);
	if (x->mp != y->mp)
		return OFS_ORDER(x->mp, y->mp);
	if (x->dtype != y->dtype)
		return OFS_ORDER(x->dtype, y->dtype);
	return OFS_ORDER(x->buffer, y->buffer);
}

static int by_key(const void *a, const void *b)
{
	const struct ofs_solve_state *x = a, *y = b;
	int c = by_buffer(x, y);

	if (c == 0)
		c = OFS_ORDER(x->bucket, y->bucket);
	return c != 0 ? c : OFS_ORDER(x->entry, y->entry);
}

/* The chunks of a bucket. */

struct piece {
	struct ofs_bucket_chunk at;
	uint32_t shard;
};

static int by_offset(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->at.off != y->at.off ? OFS_ORDER(x->at.off, y->at.off)
				      : OFS_ORDER(x->shard, y->shard);
}

static struct piece *list_pieces(const struct ofs_solve *s,
    const struct ofs_tensor *t)
{
	const struct ofs_catalog *cat = s->m->cat;
	struct piece *p = ofs_alloc((size_t)t->nshards + 1, sizeof(*p), s->err);

	for (uint32_t i = 0; p != NULL && i < t->nshards; i++) {
		const struct ofs_shard *shard = &cat->shards[t->shard + i];

		ofs_shard_box(cat, t, shard, &p[i].at.off, &p[i].at.len);
		p[i].at.rank = cat->objects[shard->at.object].rank;
		p[i].shard = t->shard + i;
	}
	if (p != NULL)
		qsort(p, t->nshards, sizeof(*p), by_offset);
	return p;
}

/* The chunks must fill the tensor; that they are in order is left to
 * ofs_bucket_walk. */
static bool fill(const struct ofs_tensor *t, const struct ofs_catalog *cat,
    const struct piece *p)
{
	uint64_t end;

	return t->error == OFS_NONE && t->nshards > 0 &&
	    ofs_add_u64(p[t->nshards - 1].at.off, p[t->nshards - 1].at.len,
		&end) &&
	    end == cat->dims[t->shape];
}

int ofs_solve_chunks(struct ofs_solve *s, uint32_t state,
    struct ofs_solve_chunks *out)
{
	const struct ofs_catalog *cat = s->m->cat;
	const struct ofs_tensor *t =
	    &cat->tensors[cat->entries[s->state[state].entry].ref];
	struct piece *p = list_pieces(s, t);

	*out = (struct ofs_solve_chunks){ .n = 0 };
	if (p == NULL)
		return -1;
	if (!fill(t, cat, p)) {
		free(p);
		return 0;
	}
	out->at = ofs_alloc(t->nshards, sizeof(*out->at), s->err);
	out->shard = ofs_alloc(t->nshards, sizeof(*out->shard), s->err);
	if (out->at == NULL || out->shard == NULL) {
		ofs_solve_chunks_free(out);
		free(p);
		return -1;
	}
	out->n = t->nshards;
	for (uint32_t i = 0; i < t->nshards; i++) {
		out->at[i] = p[i].at;
		out->shard[i] = p[i].shard;
	}
	free(p);
	return 0;
}

void ofs_solve_chunks_free(struct ofs_solve_chunks *c)
{
	free(c->at);
	free(c->shard);
	*c = (struct ofs_solve_chunks){ .n = 0 };
}

/* The state that is compared with the weights is their copy, if it is there. */
static uint32_t main_state(const struct ofs_solve *s,
    const struct ofs_solve_bucket *b)
{
	for (uint32_t i = b->first; i < b->first + b->n; i++)
		if (ofs_catalog_string_is(s->m->cat, s->state[i].name, "param"))
			return i;
	return b->first;
}

static int add_bucket(struct ofs_solve *s, uint32_t first, uint32_t end)
{
	struct ofs_solve_bucket *b = &s->bucket[s->nbuckets];

	*b = (struct ofs_solve_bucket){ .first = first, .n = end - first };
	b->main = main_state(s, b);
	s->nbuckets++;
	return ofs_solve_chunks(s, b->main, &b->chunks);
}

static int group(struct ofs_solve *s)
{
	uint32_t end;

	for (uint32_t i = 0; i < s->nstates; i = end) {
		struct ofs_solve_state *a = &s->state[i];

		if (i == 0 || by_buffer(a - 1, a) != 0)
			s->buffer[s->nbuffers++] =
			    (struct ofs_solve_buffer){ .chained = a->chained,
				    .mp = a->mp,
				    .number = a->buffer,
				    .dtype = a->dtype,
				    .first = s->nbuckets };
		for (end = i + 1; end < s->nstates &&
		     by_buffer(a, &s->state[end]) == 0 &&
		     a->bucket == s->state[end].bucket;)
			end++;
		if (add_bucket(s, i, end) == -1)
			return -1;
		s->buffer[s->nbuffers - 1].n++;
	}
	return 0;
}

int ofs_solve_buckets(struct ofs_solve *s)
{
	for (uint32_t i = 0; i < s->m->cat->nentries; i++)
		if (add_state(s, i) == -1)
			return -1;
	if (s->nstates > 0)
		qsort(s->state, s->nstates, sizeof(*s->state), by_key);
	s->bucket =
	    ofs_alloc((size_t)s->nstates + 1, sizeof(*s->bucket), s->err);
	s->buffer =
	    ofs_alloc((size_t)s->nstates + 1, sizeof(*s->buffer), s->err);
	return s->bucket == NULL || s->buffer == NULL ? -1 : group(s);
}

void ofs_solve_buckets_free(struct ofs_solve *s)
{
	for (uint32_t i = 0; i < s->nbuckets; i++)
		ofs_solve_chunks_free(&s->bucket[i].chunks);
	for (uint32_t i = 0; i < s->nbuffers; i++)
		free(s->buffer[i].use);
	free(s->bucket);
	free(s->buffer);
	free(s->state);
}
