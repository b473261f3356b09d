/* solve_model.c - the parameters that ranks may have in their buckets */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/megatron/solve.h"

/* The model is stored by name, one chunk for what one rank has of one layer or
 * expert. So a chunk is as long as the parameter is in a bucket of that rank.
 * Two kinds of parameters are several chunks: a gated linear_fc1, whose two
 * matrices lie half a tensor apart, and parameters that are stored under several
 * keys. */

/* Parameters that are stored in parts, in the order that they have in memory,
 * by the ends of the keys. */
static const char *const families[][OFS_SOLVE_PARTS + 1] = {
	{ "_w", "_v" },
	{ ".z", ".x", ".B", ".C", ".dt" },
	{ ".query", ".key", ".value", ".z", ".beta", ".alpha" },
	{ ".x", ".B", ".C" },
	{ ".query", ".key", ".value" },
};
#define NFAMILIES (sizeof(families) / sizeof(*families))

/* A chunk of a tensor, by its box. */
struct chunk {
	uint32_t box, shard;
};

struct tensor {
	uint32_t entry;
	struct ofs_megatron_key key;
	struct chunk *chunk; /* sorted by box */
	uint32_t first, n;
};

struct model {
	struct ofs_solve *s;
	struct ofs_catalog *cat;
	struct ofs_keys keys;
	struct tensor *tensor; /* of each key */
	uint32_t cap;
	struct chunk *chunk;
	uint32_t nchunks, chunk_cap;
};

OFS_COMPARE_BY2(by_box, struct chunk, box, shard)
OFS_COMPARE_KEY(find_box, uint32_t, struct chunk, box)

static const struct ofs_tensor *tensor_of(const struct model *k, uint32_t entry)
{
	return &k->cat->tensors[k->cat->entries[entry].ref];
}

/* Collecting the tensors. */

static int add_chunks(struct model *k, struct tensor *t)
{
	const struct ofs_tensor *stored = tensor_of(k, t->entry);
	uint64_t box[2 * OFS_MAX_DIMS];

	t->first = k->nchunks;
	t->n = stored->nshards;
	if (ofs_reserve(k->chunk, (uint64_t)k->nchunks + t->n, k->chunk_cap,
		k->s->err) == -1)
		return -1;
	for (uint32_t i = 0; i < t->n; i++) {
		const struct ofs_shard *s = &k->cat->shards[stored->shard + i];
		uint32_t dims = s->box;

		if (dims == OFS_NONE) {
			ofs_shard_box(k->cat, stored, s, box,
			    box + stored->grid_ndim);
			dims = ofs_catalog_dims(k->cat, box,
			    2 * (size_t)stored->grid_ndim, k->s->err);
			if (dims == OFS_NONE)
				return -1;
			stored = tensor_of(k, t->entry);
		}
		k->chunk[k->nchunks++] =
		    (struct chunk){ dims, stored->shard + i };
	}
	if (t->n > 0)
		qsort(k->chunk + t->first, t->n, sizeof(*k->chunk), by_box);
	return 0;
}

static bool is_extra(struct ofs_str name)
{
	return ofs_str_ends(name, "_extra_state");
}

static int add_tensor(struct model *k, uint32_t entry)
{
	struct ofs_catalog *cat = k->cat;
	uint32_t n, number, known;
	const uint32_t *c =
	    ofs_catalog_components(cat, cat->entries[entry].path, &n);
	const struct ofs_tensor *stored;
	struct tensor t = { .entry = entry };

	if (n != 1 || cat->entries[entry].kind != OFS_ENTRY_TENSOR)
		return 0;
	stored = tensor_of(k, entry);
	ofs_megatron_parse(ofs_catalog_string(cat, c[0]), &t.key);
	if (t.key.kind != OFS_MEGATRON_MODEL || is_extra(t.key.name) ||
	    !ofs_dtype_is_float(stored->dtype) || stored->ndim == 0 ||
	    stored->error != OFS_NONE)
		return 0;
	known = k->keys.n;
	number = ofs_keys_add(&k->keys, t.key.name, k->s->err);
	if (number == OFS_NONE)
		return -1;
	if (number < known)
		return 0; /* repeated */
	if (ofs_grow(k->tensor, number, k->cap, k->s->err) == -1 ||
	    add_chunks(k, &t) == -1)
		return -1;
	k->tensor[number] = t;
	return 0;
}

/* Making parameters of chunks. */

/* What the axes of a tensor are. */
struct axes {
	bool stacked, experts; /* there is an axis of layers, of experts */
	unsigned int lead;     /* axes before those of the parameter */
};

static struct axes axes_of(const struct tensor *t, const struct ofs_tensor *st)
{
	static const char word[] = ".experts.experts.";
	bool bias = ofs_str_ends(t->key.name, "bias");
	struct axes a = { .stacked = ofs_megatron_layer_at(t->key.name) != 0 };

	a.experts = memmem(t->key.name.p, t->key.name.len, word,
			sizeof(word) - 1) != NULL &&
	    st->ndim > a.stacked + (bias ? 1u : 2u);
	a.lead = (unsigned int)a.stacked + a.experts;
	return a;
}

/* The number after "layers."; UINT64_MAX: there is none. */
static uint64_t layer_in(struct ofs_str name)
{
	static const char word[] = "layers.";
	const char *at = name.p;
	uint64_t layer;

	while ((at = memmem(at, name.len - (size_t)(at - name.p), word,
		    sizeof(word) - 1)) != NULL) {
		struct ofs_str rest = ofs_str_after(name,
		    (size_t)(at - name.p) + sizeof(word) - 1);

		if (ofs_str_take_number(&rest, &layer) && layer < UINT32_MAX)
			return layer;
		at++;
	}
	return UINT64_MAX;
}

/* The shard of t with this box; OFS_NONE. */
static uint32_t find_chunk(struct model *k, const struct tensor *t,
    const uint64_t *box, unsigned int ndim, uint32_t *shard)
{
	uint32_t dims =
	    ofs_catalog_dims(k->cat, box, 2 * (size_t)ndim, k->s->err);
	const struct chunk *found;

	*shard = OFS_NONE;
	if (dims == OFS_NONE)
		return OFS_NONE;
	found = ofs_search(&dims, k->chunk + t->first, t->n, sizeof(*k->chunk),
	    find_box);
	if (found != NULL)
		*shard = found->shard;
	return 0;
}

static bool add_part(struct ofs_solve_param *p, uint32_t entry, uint32_t shard,
    const uint64_t *size, unsigned int ndim)
{
	uint64_t len;

	if (p->nparts == OFS_SOLVE_PARTS || !ofs_numel(size, ndim, &len) ||
	    len == 0 || !ofs_add_u64(p->len, len, &p->len) ||
	    p->len > INT64_MAX)
		return false;
	p->part[p->nparts].entry = entry;
	p->part[p->nparts++].shard = shard;
	return true;
}

static int add_param(struct ofs_solve *s, const struct ofs_solve_param *p)
{
	if (ofs_grow(s->param, s->nparams, s->param_cap, s->err) == -1)
		return -1;
	s->param[s->nparams++] = *p;
	return 0;
}

/* Adds a parameter, and as another one the output layer that shares the
 * embedding. */
static int add_named(struct model *k, struct ofs_solve_param *p,
    struct ofs_str name, uint64_t layer, uint64_t expert)
{
	ofs_bucket_param_init(&p->name, name, layer, expert, false);
	if (add_param(k->s, p) == -1)
		return -1;
	if (!k->s->tied ||
	    !ofs_str_ends(name, "embedding.word_embeddings.weight"))
		return 0;
	ofs_bucket_param_init(&p->name, name, layer, expert, true);
	p->output = true;
	return add_param(k->s, p);
}

/* The chunk of a tensor that is being made a parameter. */
struct making {
	struct model *k;
	const struct tensor *t;
	const struct ofs_tensor *stored;
	struct axes axes;
	uint64_t box[2 * OFS_MAX_DIMS], *size;
	uint64_t shape[OFS_MAX_DIMS];
	uint64_t layer, expert;
};

static bool is_whole(const struct making *g, uint64_t rows)
{
	for (unsigned int i = g->axes.lead; i < g->stored->ndim; i++)
		if (g->size[i] != (i == g->axes.lead ? rows : g->shape[i]))
			return false;
	return true;
}

static struct ofs_solve_param begin_param(const struct making *g)
{
	return (struct ofs_solve_param){ .dtype = g->stored->dtype };
}

static bool is_gated(struct ofs_str name)
{
	return ofs_str_ends(name, "linear_fc1.weight") ||
	    ofs_str_ends(name, "linear_fc1.bias");
}

static int add_gated(struct making *g, uint32_t shard)
{
	unsigned int d = g->stored->ndim, lead = g->axes.lead;
	struct ofs_solve_param p = begin_param(g);
	uint64_t half = g->shape[lead] / 2, box[2 * OFS_MAX_DIMS];
	uint32_t other;

	if (g->box[lead] >= half)
		return 0;
	memcpy(box, g->box, 2 * d * sizeof(*box));
	box[lead] += half;
	if (find_chunk(g->k, g->t, box, d, &other) == OFS_NONE)
		return -1;
	p.whole = is_whole(g, half);
	if (other == OFS_NONE ||
	    !add_part(&p, g->t->entry, shard, g->size, d) ||
	    !add_part(&p, g->t->entry, other, g->size, d))
		return 0;
	return add_named(g->k, &p, g->t->key.name, g->layer, g->expert);
}

static int add_single(struct making *g, uint32_t shard)
{
	struct ofs_solve_param p = begin_param(g);

	p.whole = is_whole(g, g->shape[g->axes.lead]);
	if (!add_part(&p, g->t->entry, shard, g->size, g->stored->ndim))
		return 0;
	return add_named(g->k, &p, g->t->key.name, g->layer, g->expert);
}

/* The tensor whose name is that of t with another end; NULL. */
static const struct tensor *sibling(const struct model *k,
    const struct tensor *t, const char *end, const char *other)
{
	char name[1024];
	size_t n = t->key.name.len - strlen(end), m = strlen(other);
	uint32_t found;

	if (n + m > sizeof(name))
		return NULL;
	memcpy(name, t->key.name.p, n);
	memcpy(name + n, other, m);
	found = ofs_keys_find(&k->keys, name, n + m);
	return found == OFS_NONE ? NULL : &k->tensor[found];
}

/* The family that t is the first of; *member: it is a part of any. */
static const char *const *family_of(const struct model *k,
    const struct tensor *t, bool *member)
{
	*member = false;
	for (size_t f = 0; f < NFAMILIES; f++) {
		const char *const *end = families[f];
		const char *own = NULL;
		bool all = true;

		for (size_t i = 0; end[i] != NULL; i++)
			if (ofs_str_ends(t->key.name, end[i]))
				own = end[i];
		for (size_t i = 0; own != NULL && end[i] != NULL; i++)
			all = all && sibling(k, t, own, end[i]) != NULL;
		if (own == NULL || !all)
			continue;
		*member = true;
		return own == end[0] ? end : NULL;
	}
	return NULL;
}

/* Adds the part of a sibling: the same share of its rows. 1, 0; -1. */
static int add_share(struct making *g, const struct tensor *t,
    struct ofs_solve_param *p)
{
	const struct ofs_tensor *st = tensor_of(g->k, t->entry);
	unsigned int d = g->stored->ndim, lead = g->axes.lead;
	uint64_t box[2 * OFS_MAX_DIMS], rows, shares;
	uint32_t shard;

	if (st->ndim != d || g->size[lead] == 0 ||
	    g->shape[lead] % g->size[lead] != 0)
		return 0;
	shares = g->shape[lead] / g->size[lead];
	rows = g->k->cat->dims[st->shape + lead];
	if (shares == 0 || rows % shares != 0)
		return 0;
	memcpy(box, g->box, 2 * d * sizeof(*box));
	box[d + lead] = rows / shares;
	box[lead] = g->box[lead] / g->size[lead] * box[d + lead];
	for (unsigned int i = lead + 1; i < d; i++)
		if (box[i] == 0 && box[d + i] == g->shape[i])
			box[d + i] = g->k->cat->dims[st->shape + i];
	if (find_chunk(g->k, t, box, d, &shard) == OFS_NONE)
		return -1;
	return shard != OFS_NONE && add_part(p, t->entry, shard, box + d, d);
}

static int add_family(struct making *g, const char *const *end)
{
	struct ofs_solve_param p = begin_param(g);
	struct ofs_str name = g->t->key.name;
	int ret = 1;

	p.whole = is_whole(g, g->shape[g->axes.lead]);
	for (size_t i = 0; end[i] != NULL && ret == 1; i++)
		ret = add_share(g, sibling(g->k, g->t, end[0], end[i]), &p);
	if (ret != 1)
		return ret;
	name.len -= (uint32_t)strlen(end[0]);
	return add_named(g->k, &p, name, g->layer, g->expert);
}

static int make(struct making *g, uint32_t shard, const char *const *family,
    bool member)
{
	const struct ofs_solve *s = g->k->s;
	bool gated = is_gated(g->t->key.name) && g->stored->ndim > g->axes.lead;

	if (member)
		return family == NULL ? 0 : add_family(g, family);
	if (gated && s->gated != 0 && add_gated(g, shard) == -1)
		return -1;
	return gated && s->gated == 1 ? 0 : add_single(g, shard);
}

static int make_all(struct model *k, const struct tensor *t)
{
	struct making g = { .k = k, .t = t };
	unsigned int d = tensor_of(k, t->entry)->ndim;
	bool member;
	const char *const *family = family_of(k, t, &member);

	g.axes = axes_of(t, tensor_of(k, t->entry));
	if (d <= g.axes.lead)
		return 0;
	for (uint32_t i = 0; i < t->n; i++) {
		const struct chunk *c = &k->chunk[t->first + i];

		g.stored = tensor_of(k, t->entry);
		memcpy(g.shape, ofs_tensor_shape(k->cat, g.stored),
		    d * sizeof(*g.shape));
		memcpy(g.box, k->cat->dims + c->box, 2 * d * sizeof(*g.box));
		g.size = g.box + d;
		if ((i > 0 && c->box == c[-1].box) ||
		    (g.axes.lead > 0 && g.size[0] != 1) ||
		    (g.axes.lead > 1 && g.size[1] != 1))
			continue;
		g.layer = g.axes.stacked ? g.box[0] : layer_in(t->key.name);
		g.expert = g.axes.experts ? g.box[g.axes.stacked] : UINT64_MAX;
		if (make(&g, c->shard, family, member) == -1)
			return -1;
	}
	return 0;
}

static bool has_output_layer(const struct model *k)
{
	for (uint32_t i = 0; i < k->keys.n; i++)
		if (ofs_str_ends(k->keys.v[i], "output_layer.weight"))
			return true;
	return false;
}

int ofs_solve_model(struct ofs_solve *s)
{
	struct model k = { .s = s, .cat = s->m->cat };
	int ret = 0;

	for (uint32_t i = 0; i < k.cat->nentries && ret == 0; i++)
		ret = add_tensor(&k, i);
	s->tied = !has_output_layer(&k);
	for (uint32_t i = 0; i < k.keys.n && ret == 0; i++)
		ret = make_all(&k, &k.tensor[i]);
	ofs_keys_fini(&k.keys);
	free(k.tensor);
	free(k.chunk);
	return ret;
}
