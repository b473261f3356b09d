/* layout.c - random tensors, cut and stored at random, for property tests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

uint8_t *random_bytes(uint64_t *rng, size_t n)
{
	uint8_t *p = malloc(n + 1);

	if (p == NULL)
		bail_out("out of memory");
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)tap_random(rng);
	return p;
}

static void *need(void *p)
{
	if (p == NULL)
		bail_out("out of memory");
	return p;
}

uint64_t layout_numel(const uint64_t *size, unsigned int ndim)
{
	uint64_t n = 1;

	for (unsigned int k = 0; k < ndim; k++)
		n *= size[k];
	return n;
}

void layout_add(struct layout *l, const uint64_t *lo, const uint64_t *size)
{
	struct layout_box *b;

	if (l->n == l->cap) {
		l->cap = l->cap == 0 ? 8 : l->cap * 2;
		l->box = need(reallocarray(l->box, l->cap, sizeof(*l->box)));
	}
	b = &l->box[l->n++];
	*b = (struct layout_box){ 0 };
	memcpy(b->lo, lo, l->ndim * sizeof(*lo));
	memcpy(b->size, size, l->ndim * sizeof(*size));
}

void layout_shape(struct layout *l, uint64_t *rng)
{
	static const enum ofs_dtype types[] = { OFS_FLOAT32, OFS_BFLOAT16,
		OFS_UINT8, OFS_COMPLEX128, OFS_INT64 };
	static const uint64_t most[] = { 1, 200, 24, 12, 7, 5 };

	*l = (struct layout){ 0 };
	l->ndim = (unsigned int)tap_below(rng, LAYOUT_DIMS + 1);
	l->dtype = types[tap_below(rng, 5)];
	for (unsigned int k = 0; k < l->ndim; k++)
		l->shape[k] = 1 + tap_below(rng, most[l->ndim]);
	if (l->ndim > 0 && tap_below(rng, 40) == 0)
		l->shape[tap_below(rng, l->ndim)] = 0;
}

/* Cuts [0, n) at random into pieces, some of them empty, that end at cut[i]. */
static uint32_t cuts(uint64_t n, uint32_t most, uint64_t *rng, uint64_t *cut)
{
	uint32_t pieces = 0;
	uint64_t at = 0;

	while (at < n && pieces + 1 < most) {
		at += tap_below(rng, 1 + n / 2);
		cut[pieces++] = at < n ? at : n;
	}
	cut[pieces++] = n;
	return pieces;
}

static void cut_dim(struct layout *l, unsigned int dim, uint64_t *rng)
{
	uint64_t lo[LAYOUT_DIMS] = { 0 }, size[LAYOUT_DIMS], cut[32];
	uint32_t n = cuts(l->shape[dim], 32, rng, cut);

	memcpy(size, l->shape, sizeof(size));
	for (uint32_t i = 0; i < n; i++) {
		lo[dim] = i == 0 ? 0 : cut[i - 1];
		size[dim] = cut[i] - lo[dim];
		layout_add(l, lo, size);
	}
}

static void cut_grid(struct layout *l, uint64_t *rng)
{
	uint64_t cut[LAYOUT_DIMS][32], lo[LAYOUT_DIMS], size[LAYOUT_DIMS];
	uint32_t n[LAYOUT_DIMS], at[LAYOUT_DIMS] = { 0 };
	unsigned int k;

	for (k = 0; k < l->ndim; k++)
		n[k] = cuts(l->shape[k], l->ndim < 3 ? 16 : 5, rng, cut[k]);
	do {
		for (k = 0; k < l->ndim; k++) {
			lo[k] = at[k] == 0 ? 0 : cut[k][at[k] - 1];
			size[k] = cut[k][at[k]] - lo[k];
		}
		layout_add(l, lo, size);
		for (k = 0; k < l->ndim; k++) {
			if (++at[k] < n[k])
				break;
			at[k] = 0;
		}
	} while (k < l->ndim);
}

static void cut_anywhere(struct layout *l, uint64_t *rng)
{
	static const uint64_t origin[LAYOUT_DIMS];
	uint32_t times = (uint32_t)tap_below(rng, 60);

	layout_add(l, origin, l->shape);
	for (uint32_t i = 0; i < times; i++) {
		uint32_t which = (uint32_t)tap_below(rng, l->n);
		struct layout_box left = l->box[which], right = left;
		unsigned int k = (unsigned int)tap_below(rng, l->ndim);

		if (left.size[k] < 2)
			continue;
		left.size[k] = 1 + tap_below(rng, left.size[k] - 1);
		right.lo[k] += left.size[k];
		right.size[k] -= left.size[k];
		l->box[which] = left;
		layout_add(l, right.lo, right.size);
	}
}

void layout_cut(struct layout *l, enum layout_kind kind, uint64_t *rng)
{
	static const uint64_t origin[LAYOUT_DIMS];

	l->n = 0;
	if (l->ndim == 0 || kind == LAYOUT_WHOLE)
		layout_add(l, origin, l->shape);
	else if (kind == LAYOUT_ROWS)
		cut_dim(l, 0, rng);
	else if (kind == LAYOUT_COLUMNS)
		cut_dim(l, l->ndim - 1, rng);
	else if (kind == LAYOUT_GRID)
		cut_grid(l, rng);
	else
		cut_anywhere(l, rng);
	layout_shuffle(l, rng);
}

void layout_shuffle(struct layout *l, uint64_t *rng)
{
	for (uint32_t i = l->n; i > 1; i--) {
		uint32_t j = (uint32_t)tap_below(rng, i);
		struct layout_box b = l->box[i - 1];

		l->box[i - 1] = l->box[j];
		l->box[j] = b;
	}
}

void layout_fini(struct layout *l)
{
	free(l->box);
	*l = (struct layout){ 0 };
}

/* Strides in elements of a box; with mixed in a random order of dimensions and
 * with gaps. Returns the number of elements that they span. */
static uint64_t strides(const struct layout *l, const uint64_t *size,
    bool mixed, uint64_t *rng, int64_t *stride)
{
	unsigned int order[LAYOUT_DIMS];
	uint64_t span = 1;

	for (unsigned int k = 0; k < l->ndim; k++)
		order[k] = l->ndim - 1 - k;
	for (unsigned int k = l->ndim; mixed && k > 1; k--) {
		unsigned int j = (unsigned int)tap_below(rng, k);
		unsigned int o = order[k - 1];

		order[k - 1] = order[j];
		order[j] = o;
	}
	for (unsigned int k = 0; k < l->ndim; k++) {
		if (mixed && tap_below(rng, 3) == 0)
			span += tap_below(rng, 3);
		stride[order[k]] = (int64_t)span;
		span *= size[order[k]];
	}
	return span;
}

/* Copies the elements of a box from the whole tensor to its storage. */
static void scatter(const struct layout *l, const struct layout_box *b,
    size_t item, const uint8_t *from, uint8_t *to, const int64_t *stride)
{
	uint64_t n = layout_numel(b->size, l->ndim);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t rest = i, src = 0, dst = 0, pitch = 1;

		for (unsigned int k = l->ndim; k-- > 0;) {
			uint64_t c = rest % b->size[k];

			rest /= b->size[k];
			src += (b->lo[k] + c) * pitch;
			pitch *= l->shape[k];
			dst += c * (uint64_t)stride[k];
		}
		memcpy(to + dst * item, from + src * item, item);
	}
}

static void store(struct stored *s, const struct layout *l, uint32_t i,
    const uint8_t *bytes, bool mixed, uint64_t *rng)
{
	int64_t stride[LAYOUT_DIMS] = { 0 };
	uint64_t span = strides(l, l->box[i].size, mixed, rng, stride);
	uint64_t base = mixed ? tap_below(rng, 100) : 0;
	struct ofs_place *p;

	s->len[i] = base + span * s->item;
	s->bytes[i] = need(calloc(1, s->len[i] + 1));
	p = need(calloc(1, sizeof(*p) + l->ndim * sizeof(*p->stride)));
	p->base = base;
	p->object = i;
	for (unsigned int k = 0; k < l->ndim; k++)
		p->stride[k] = stride[k] * (int64_t)s->item;
	s->place[i] = p;
	scatter(l, &l->box[i], s->item, bytes, s->bytes[i] + base, stride);
}

static void catalog(struct stored *s, const struct layout *l)
{
	struct optimfs_error err = { 0 };
	struct ofs_dir dir;
	struct ofs_tensor t = { .ndim = (uint8_t)l->ndim,
		.grid_ndim = (uint8_t)l->ndim,
		.dtype = (uint8_t)l->dtype,
		.nshards = l->n,
		.error = OFS_NONE };
	char name[32];

	if (ofs_dir_open("/", &dir, &err) == -1 ||
	    (s->cat = ofs_catalog_new(&dir, &err)) == NULL)
		bail_out("%s", err.text);
	t.shape = t.grid = ofs_catalog_dims(s->cat, l->shape, l->ndim, &err);
	for (uint32_t i = 0; i < l->n; i++) {
		struct ofs_shard shard = { .view = OFS_NONE };
		uint64_t box[2 * LAYOUT_DIMS];

		memcpy(box, l->box[i].lo, l->ndim * sizeof(*box));
		memcpy(box + l->ndim, l->box[i].size, l->ndim * sizeof(*box));
		snprintf(name, sizeof(name), "no/such/%06u", i);
		shard.at.object = ofs_catalog_object(s->cat, name, -1, &err);
		shard.at.len = 1;
		shard.box = ofs_catalog_dims(s->cat, box, 2 * l->ndim, &err);
		if (shard.at.object == OFS_NONE || shard.box == OFS_NONE ||
		    ofs_catalog_shard(s->cat, &shard, &err) != i)
			bail_out("%s", err.text);
	}
	if (ofs_catalog_tensor(s->cat, &t, &err) != 0 ||
	    ofs_catalog_finish(s->cat, &err) == -1)
		bail_out("%s", err.text);
	s->t = s->cat->tensors;
}

void stored_init(struct stored *s, const struct layout *l, const uint8_t *bytes,
    bool mixed, uint64_t *rng)
{
	*s = (struct stored){ .n = l->n, .item = ofs_dtype_size(l->dtype) };
	s->bytes = need(calloc(l->n, sizeof(*s->bytes)));
	s->len = need(calloc(l->n, sizeof(*s->len)));
	s->place = need(calloc(l->n, sizeof(*s->place)));
	for (uint32_t i = 0; i < l->n; i++)
		store(s, l, i, bytes, mixed, rng);
	catalog(s, l);
}

void stored_fini(struct stored *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		free(s->bytes[i]);
		free(s->place[i]);
	}
	free(s->bytes);
	free(s->len);
	free(s->place);
	ofs_catalog_free(s->cat);
}

const struct ofs_place *stored_place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct stored *s = ctx;

	(void)t;
	(void)err;
	s->asked++;
	return s->place[s->cat->shards[shard].at.object];
}

void stored_run(const struct stored *s, const struct ofs_plan *plan,
    uint8_t *dst, uint8_t *count)
{
	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_segment *g = &plan->seg[i];

		for (uint64_t k = 0; k < g->n; k++) {
			uint64_t to = g->dst + k * (uint64_t)g->dst_pitch;
			uint64_t from = g->src + k * (uint64_t)g->src_pitch;

			memcpy(dst + to, s->bytes[g->object] + from, g->len);
			for (uint64_t b = 0; count != NULL && b < g->len; b++)
				count[to + b]++;
		}
	}
}
