/* solve.c - names for the parameters in flat buckets */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/megatron/solve.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "pickle/pickle.h"

/* Facts of the job, from the arguments that it was started with. */

static uint32_t number(const struct ofs_value *args, const char *name)
{
	int64_t v;

	return args != NULL &&
		ofs_pk_int(args->doc, ofs_pk_attr(args->doc, args->node, name),
		    &v) &&
		v > 0 && v < 1 << 20
	    ? (uint32_t)v
	    : 0;
}

/* 1, 0; -1: unknown. */
static int flag(const struct ofs_value *args, const char *name)
{
	uint32_t node =
	    args == NULL ? OFS_NONE : ofs_pk_attr(args->doc, args->node, name);

	return node != OFS_NONE && ofs_pk_kind(args->doc, node) == OFS_PK_BOOL
	    ? ofs_pk_bool(args->doc, node)
	    : -1;
}

/* Is an argument set, to anything but None and False? */
static bool is_set(const struct ofs_value *args, const char *name)
{
	uint32_t node =
	    args == NULL ? OFS_NONE : ofs_pk_attr(args->doc, args->node, name);

	if (node == OFS_NONE || ofs_pk_kind(args->doc, node) == OFS_PK_NONE)
		return false;
	return ofs_pk_kind(args->doc, node) != OFS_PK_BOOL ||
	    ofs_pk_bool(args->doc, node);
}

static void read_facts(struct ofs_solve *s)
{
	static const char *const uneven[] = { "pipeline_model_parallel_layout",
		"decoder_first_pipeline_num_layers",
		"decoder_last_pipeline_num_layers",
		"account_for_embedding_in_pipeline_split",
		"account_for_loss_in_pipeline_split" };
	const struct ofs_value *args = s->m->args;

	s->nlayers = (uint32_t)s->m->num_layers;
	s->stages = number(args, "pipeline_model_parallel_size");
	s->virtual_stages =
	    number(args, "virtual_pipeline_model_parallel_size");
	s->gated = flag(args, "swiglu");
	for (size_t i = 0; i < sizeof(uneven) / sizeof(*uneven); i++)
		s->own_layout = s->own_layout || is_set(args, uneven[i]);
}

/* Who may have a parameter. A save divides a parameter among the ranks that have
 * it, so it was written by one of those that wrote this buffer. */

/* Steps that no checkpoint of a model needs. */
#define MAX_WORK (UINT64_C(1) << 30)

/* The ranks that wrote the buffers of one model-parallel rank. */
struct group {
	struct ofs_solve *s;
	uint32_t at;          /* the first of them */
	bool *wrote;          /* by rank */
	bool *stage;          /* by stage: of these ranks */
	uint32_t first, last; /* stages */
	bool unknown;         /* files without ranks: any may have any */
};

static uint32_t stage_of(const struct ofs_solve *s, uint32_t rank)
{
	/* pipeline stages are the slowest axis of the grid of ranks */
	return s->stages == 0
	    ? 0
	    : (uint32_t)((uint64_t)rank * s->stages / s->world);
}

static bool same_group(const struct ofs_solve_buffer *a,
    const struct ofs_solve_buffer *b)
{
	return a->chained == b->chained && a->mp == b->mp;
}

static void note_rank(struct group *g, int rank, bool yes)
{
	uint32_t stage;

	if (rank < 0) {
		g->unknown = yes;
		return;
	}
	stage = stage_of(g->s, (uint32_t)rank);
	g->wrote[rank] = g->stage[stage] = yes;
	g->first = stage < g->first ? stage : g->first;
	g->last = stage > g->last ? stage : g->last;
}

/* Notes the ranks of the group, or forgets them. */
static void note_ranks(struct group *g, bool yes)
{
	struct ofs_solve *s = g->s;

	for (uint32_t i = g->at;
	     i < s->nbuffers && same_group(&s->buffer[i], &s->buffer[g->at]);
	     i++)
		for (uint32_t k = 0; k < s->buffer[i].n; k++) {
			const struct ofs_solve_chunks *c =
			    &s->bucket[s->buffer[i].first + k].chunks;

			for (uint32_t j = 0; j < c->n; j++)
				note_rank(g, c->at[j].rank, yes);
		}
}

static void find_ranks(struct group *g, uint32_t at)
{
	note_ranks(g, false);
	g->at = at;
	g->first = UINT32_MAX;
	g->last = 0;
	g->unknown = false;
	note_ranks(g, true);
}

static int writer(const struct ofs_solve *s, uint32_t shard)
{
	const struct ofs_catalog *cat = s->m->cat;

	return cat->objects[cat->shards[shard].at.object].rank;
}

static bool is_writer(const struct group *g, const struct ofs_solve_param *p)
{
	for (unsigned int i = 0; i < p->nparts; i++) {
		int rank = writer(g->s, p->part[i].shard);

		if (rank < 0 ||
		    ((uint32_t)rank < g->s->world && g->wrote[rank]))
			return true;
	}
	return false;
}

/* What all tensor-parallel ranks of a stage have is written by the first. */
static bool is_shared(const struct group *g, const struct ofs_solve_param *p)
{
	int rank = writer(g->s, p->part[0].shard);

	return p->whole && p->name.expert == UINT64_MAX && rank >= 0 &&
	    (uint32_t)rank < g->s->world &&
	    g->stage[stage_of(g->s, (uint32_t)rank)];
}

/* The last stage's copy of the embedding is stored once, by the first stage: a
 * tensor-parallel rank has the part with its number. */
static bool is_output(const struct group *g, const struct ofs_solve_param *p)
{
	const struct ofs_catalog *cat = g->s->m->cat;
	const struct ofs_tensor *t =
	    &cat->tensors[cat->entries[p->part[0].entry].ref];
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], n;

	if (g->s->stages > 0 &&
	    (g->s->stages == 1 || g->last != g->s->stages - 1))
		return false;
	ofs_shard_box(cat, t, &cat->shards[p->part[0].shard], lo, size);
	n = cat->dims[t->shape] / size[0];
	return n > 0 && lo[0] / size[0] == g->s->buffer[g->at].mp % n &&
	    !is_writer(g, p);
}

static bool is_expert(const struct ofs_solve_param *p)
{
	static const char word[] = ".experts.";

	return memmem(p->name.key.p, p->name.key.len, word, sizeof(word) - 1) !=
	    NULL;
}

static bool may_have(const struct group *g, const struct ofs_solve_buffer *f,
    const struct ofs_solve_param *p)
{
	if (g->s->chains && (f->chained == 1) != is_expert(p))
		return false;
	/* 8-bit weights are stored as another type */
	if (p->dtype != f->dtype && ofs_bucket_rounds_to(f->dtype))
		return false;
	if (g->unknown)
		return !p->output;
	if (p->output)
		return is_output(g, p);
	return is_writer(g, p) || is_shared(g, p);
}

/* Sets the parameters that f may have; list has room for all. */
static int find_candidates(struct group *g, struct ofs_solve_buffer *f,
    uint32_t *list)
{
	struct ofs_solve *s = g->s;
	uint32_t n = 0;

	if (!ofs_solve_spend(s, s->nparams))
		return 0;
	for (uint32_t i = 0; i < s->nparams; i++)
		if (may_have(g, f, &s->param[i]))
			list[n++] = i;
	f->use = ofs_alloc((size_t)n + 1, sizeof(*f->use), s->err);
	if (f->use == NULL)
		return -1;
	memcpy(f->use, list, n * sizeof(*list));
	f->nuse = n;
	return 0;
}

static int find_all_candidates(struct ofs_solve *s)
{
	struct group g = { .s = s };
	uint32_t *list = ofs_alloc(s->nparams + 1ull, sizeof(*list), s->err);
	int ret = 0;

	g.wrote = ofs_alloc(s->world + 1ull, sizeof(*g.wrote), s->err);
	g.stage = ofs_alloc(s->stages + 1ull, sizeof(*g.stage), s->err);
	if (list == NULL || g.wrote == NULL || g.stage == NULL)
		ret = -1;
	for (uint32_t i = 0; i < s->nbuffers && ret == 0; i++) {
		if (i == 0 || !same_group(&s->buffer[g.at], &s->buffer[i]))
			find_ranks(&g, i);
		ret = find_candidates(&g, &s->buffer[i], list);
	}
	free(list);
	free(g.wrote);
	free(g.stage);
	return ret;
}

static void find_world(struct ofs_solve *s)
{
	bool experts = false;

	s->world = 1;
	for (uint32_t i = 0; i < s->nbuckets; i++)
		for (uint32_t k = 0; k < s->bucket[i].chunks.n; k++) {
			int rank = s->bucket[i].chunks.at[k].rank;

			if (rank >= (int)s->world)
				s->world = (uint32_t)rank + 1;
		}
	for (uint32_t i = 0; i < s->nbuffers; i++)
		s->chains = s->chains || s->buffer[i].chained == 1;
	for (uint32_t i = 0; i < s->nparams && !experts; i++)
		experts = is_expert(&s->param[i]);
	s->chains = s->chains && experts;
}

/* Virtual pipeline: a rank has a buffer for each of its model chunks. */

/* The buffers of one rank and type: n of them. */
static uint32_t siblings(const struct ofs_solve *s, uint32_t first)
{
	const struct ofs_solve_buffer *a = &s->buffer[first];
	uint32_t n = 1;

	while (first + n < s->nbuffers && same_group(a, a + n) &&
	    a[n].dtype == a->dtype)
		n++;
	return n;
}

/* Removes the parameters of a buffer that are of layers where keep is false. */
static void keep_layers(struct ofs_solve *s, struct ofs_solve_buffer *f,
    const bool *keep, uint32_t nlayers)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->nuse; i++) {
		uint64_t layer = s->param[f->use[i]].name.layer;

		if (layer >= nlayers || keep[layer])
			f->use[n++] = f->use[i];
	}
	f->nuse = n;
}

static uint32_t most_layers(const struct ofs_solve *s)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < s->nparams; i++) {
		uint64_t layer = s->param[i].name.layer;

		if (layer != UINT64_MAX && layer < 1 << 20 && layer + 1 > most)
			most = layer + 1;
	}
	return (uint32_t)most;
}

/* Marks the layers that the proof found in a buffer. */
static void find_layers(const struct ofs_solve *s,
    const struct ofs_solve_buffer *f, bool *found, uint32_t nlayers)
{
	for (uint32_t i = f->first; i < f->first + f->n; i++) {
		const struct ofs_solve_bucket *b = &s->bucket[i];

		for (uint32_t k = b->slice; k < b->slice + b->nslices; k++) {
			const struct ofs_solve_slice *x = &s->slice[k];
			uint64_t layer = x->how == OFS_SOLVE_PROVED
			    ? s->param[x->param].name.layer
			    : UINT64_MAX;

			if (layer < nlayers)
				found[layer] = true;
		}
	}
}

/* Megatron's division: chunk v of stage p has the n layers from (v * stages + p)
 * * n on. False: it is not known, or the proof says otherwise. */
static bool usual_layers(const struct ofs_solve *s,
    const struct ofs_solve_buffer *f, uint32_t v, uint32_t n, const bool *found,
    uint32_t nlayers, bool *keep)
{
	uint32_t per, first;
	int rank = -1;

	for (uint32_t i = f->first; i < f->first + f->n && rank < 0; i++)
		if (s->bucket[i].chunks.n > 0)
			rank = s->bucket[i].chunks.at[0].rank;
	if (s->own_layout || s->stages == 0 || s->virtual_stages != n ||
	    rank < 0 || s->nlayers == 0 ||
	    s->nlayers % ((uint64_t)s->stages * n) != 0)
		return false;
	per = s->nlayers / s->stages / n;
	first = (v * s->stages + stage_of(s, (uint32_t)rank)) * per;
	for (uint32_t i = 0; i < nlayers; i++) {
		keep[i] = i >= first && i < first + per;
		if (found[i] && !keep[i])
			return false;
	}
	return true;
}

/* Solves the buffers of a rank again, each with the layers that are not surely
 * in another. */
static int solve_again(struct ofs_solve *s, uint32_t first, uint32_t n)
{
	uint32_t nlayers = most_layers(s);
	bool *found, *keep;
	int ret = 0;

	if (!ofs_solve_spend(s, (uint64_t)n * n * (nlayers + 1ull)))
		return 0;
	found = ofs_alloc((n + 1ull) * (nlayers + 1ull), 1, s->err);
	if (found == NULL)
		return -1;
	keep = found + (size_t)n * nlayers;
	for (uint32_t v = 0; v < n && ret == 0; v++)
		find_layers(s, &s->buffer[first + v],
		    found + (size_t)v * nlayers, nlayers);
	for (uint32_t v = 0; v < n && ret == 0; v++) {
		struct ofs_solve_buffer *f = &s->buffer[first + v];
		const bool *own = found + (size_t)v * nlayers;

		if (!usual_layers(s, f, v, n, own, nlayers, keep))
			for (uint32_t i = 0; i < nlayers; i++) {
				keep[i] = true;
				for (uint32_t w = 0; w < n && !own[i]; w++)
					keep[i] = keep[i] &&
					    !found[(size_t)w * nlayers + i];
			}
		keep_layers(s, f, keep, nlayers);
		ret = ofs_solve_one(s, f);
	}
	free(found);
	return ret;
}

/* A parameter that two slices of one rank claim is in neither. */
static int drop_repeated(struct ofs_solve *s, uint32_t first, uint32_t n)
{
	uint32_t *by = ofs_alloc((size_t)s->nparams + 1, sizeof(*by), s->err);

	if (by == NULL)
		return -1;
	for (uint32_t i = s->buffer[first].first;
	     i < s->buffer[first + n - 1].first + s->buffer[first + n - 1].n;
	     i++)
		for (uint32_t k = 0; k < s->bucket[i].nslices; k++) {
			uint32_t at = s->bucket[i].slice + k;
			struct ofs_solve_slice *x = &s->slice[at];

			if (x->param == OFS_NONE)
				continue;
			if (by[x->param] != 0) {
				s->slice[by[x->param] - 1].how = OFS_SOLVE_OPEN;
				x->how = OFS_SOLVE_OPEN;
			}
			by[x->param] = at + 1;
		}
	free(by);
	return 0;
}

static int solve_rank(struct ofs_solve *s, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		if (ofs_solve_one(s, &s->buffer[i]) == -1)
			return -1;
	if (n == 1)
		return 0;
	return solve_again(s, first, n) == -1 ? -1 : drop_repeated(s, first, n);
}

static int solve_all(struct ofs_solve *s)
{
	uint32_t n;

	read_facts(s);
	if (ofs_solve_model(s) == -1)
		return -1;
	find_world(s);
	if (find_all_candidates(s) == -1 || ofs_solve_cache_load(s) == -1 ||
	    ofs_sampler_open(s) == -1)
		return -1;
	for (uint32_t i = 0; i < s->nbuffers; i += n) {
		n = siblings(s, i);
		if (solve_rank(s, i, n) == -1)
			return -1;
	}
	ofs_sampler_close(s);
	ofs_solve_cache_save(s);
	return ofs_solve_states(s);
}

int ofs_megatron_solve(struct ofs_megatron *m, struct optimfs_error *err)
{
	struct ofs_solve s = { .m = m, .err = err, .work = MAX_WORK };
	int ret = ofs_solve_buckets(&s);

	if (ret == 0 && s.nbuckets > 0)
		ret = solve_all(&s);
	ofs_sampler_close(&s);
	ofs_solve_buckets_free(&s);
	for (uint32_t i = 0; i < s.nparams; i++)
		free(s.param[i].sample);
	free(s.param);
	free(s.slice);
	free(s.known);
	return ret;
}
