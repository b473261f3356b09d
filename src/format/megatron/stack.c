/* stack.c - stacked layers, split into one tensor per layer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/megatron/megatron.h"

/* More layers than any model has. */
#define MAX_LAYERS 4096

/* A shard of one layer; order is its position in the stack. */
struct piece {
	uint64_t layer;
	uint32_t order;
	struct ofs_shard s;
};

struct stack {
	struct ofs_megatron *m;
	struct ofs_tensor t; /* of all layers */
	uint64_t nlayers;
	uint64_t shape[OFS_MAX_DIMS]; /* of a layer */
	unsigned int ndim;
	struct piece *piece;
	uint32_t npieces;
	const char *wrong; /* a message with its code; NULL: nothing is wrong */
	struct optimfs_error *err;
};

/* The number of shards of all layers together; false: too many, or a chunk
 * reaches beyond the stack. */
static bool count_pieces(struct stack *k, uint64_t *n)
{
	const struct ofs_catalog *cat = k->m->cat;
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS], end;

	*n = 0;
	for (uint32_t i = 0; i < k->t.nshards; i++) {
		ofs_shard_box(cat, &k->t, &cat->shards[k->t.shard + i], lo,
		    size);
		if (!ofs_add_u64(lo[0], size[0], &end) || end > k->nlayers) {
			k->wrong = "OFS609 a chunk extends past the layers";
			*n = 0;
			return true;
		}
		*n += size[0];
		if (*n > k->t.nshards + k->m->budget)
			return false;
	}
	return true;
}

/* The box of a shard without its first axis. */
static int set_box(struct stack *k, const uint64_t *lo, const uint64_t *size,
    struct ofs_shard *s)
{
	uint64_t box[2 * OFS_MAX_DIMS];
	bool whole = true;

	for (unsigned int i = 0; i < k->ndim; i++)
		whole = whole && lo[i] == 0 && size[i] == k->shape[i];
	s->box = OFS_NONE;
	if (whole)
		return 0;
	memcpy(box, lo, k->ndim * sizeof(*lo));
	memcpy(box + k->ndim, size, k->ndim * sizeof(*size));
	s->box = ofs_catalog_dims(k->m->cat, box, 2 * (size_t)k->ndim, k->err);
	return s->box == OFS_NONE ? -1 : 0;
}

/* The view of layer at in a chunk of n layers. size is the chunk's size without
 * the first axis. */
static int set_view(struct stack *k, const uint64_t *size, uint64_t at,
    uint64_t n, const struct ofs_shard *whole, struct ofs_shard *s)
{
	struct ofs_catalog *cat = k->m->cat;
	uint64_t stride[OFS_MAX_DIMS + 1], pitch = 1;
	struct ofs_view v = { 0 };

	if (whole->view == OFS_NONE && n == 1)
		return 0; /* a stored item may have or lack the first axis */
	if (whole->view != OFS_NONE) {
		v = cat->views[whole->view];
		memcpy(stride, cat->dims + v.stride,
		    (k->ndim + 1) * sizeof(*stride));
		pitch = stride[0];
		memmove(stride, stride + 1, k->ndim * sizeof(*stride));
	} else {
		for (unsigned int i = k->ndim; i-- > 0;) {
			stride[i] = pitch;
			if (!ofs_mul_u64(pitch, size[i], &pitch))
				pitch = 0;
		}
		if (pitch == 0 || !ofs_mul_u64(pitch, n, &v.numel)) {
			k->wrong = "OFS606 a chunk's elements overflow";
			return 0;
		}
	}
	v.offset += at * pitch; /* reading refuses an offset beyond v.numel */
	v.stride = ofs_catalog_dims(cat, stride, k->ndim, k->err);
	s->view = ofs_catalog_view(cat, &v, k->err);
	return s->view == OFS_NONE ? -1 : 0;
}

static bool is_empty(const struct stack *k, const uint64_t *size)
{
	for (unsigned int i = 0; i <= k->ndim; i++)
		if (size[i] == 0)
			return true;
	return false;
}

static int cut_shard(struct stack *k, uint32_t index)
{
	const struct ofs_shard whole = k->m->cat->shards[index];
	uint64_t lo[OFS_MAX_DIMS], size[OFS_MAX_DIMS];

	ofs_shard_box(k->m->cat, &k->t, &whole, lo, size);
	if (is_empty(k, size))
		return 0;
	for (uint64_t i = 0; i < size[0]; i++) {
		struct piece *p = &k->piece[k->npieces];

		*p = (struct piece){ lo[0] + i, k->npieces, whole };
		if (set_box(k, lo + 1, size + 1, &p->s) == -1 ||
		    set_view(k, size + 1, i, size[0], &whole, &p->s) == -1)
			return -1;
		k->npieces++;
	}
	return 0;
}

OFS_COMPARE_BY2(by_layer, struct piece, layer, order)

/* Stores the pieces in place of the stack's shards if there is room, else at
 * the end. Returns the first index. */
static uint32_t put_pieces(struct stack *k)
{
	struct ofs_catalog *cat = k->m->cat;
	uint32_t first = k->t.shard;

	if (k->npieces <= k->t.nshards) {
		for (uint32_t i = 0; i < k->npieces; i++)
			cat->shards[first + i] = k->piece[i].s;
		return first;
	}
	first = cat->nshards;
	for (uint32_t i = 0; i < k->npieces; i++)
		ofs_catalog_shard(cat, &k->piece[i].s, k->err);
	return ofs_catalog_failed(cat, k->err) ? OFS_NONE : first;
}

static int cut(struct stack *k)
{
	uint64_t n;

	k->npieces = 0;
	if (!count_pieces(k, &n))
		return 0;
	k->piece = malloc((n + 1) * sizeof(*k->piece));
	if (k->piece == NULL)
		return ofs_no_memory(k->err);
	if (n > k->t.nshards)
		k->m->budget -= n - k->t.nshards;
	for (uint32_t i = 0; i < k->t.nshards && k->wrong == NULL; i++)
		if (cut_shard(k, k->t.shard + i) == -1)
			return -1;
	if (k->npieces > 0)
		qsort(k->piece, k->npieces, sizeof(*k->piece), by_layer);
	return 1;
}

/* Adds the tensor and entry of one layer, whose pieces begin at *from; *from
 * then is at the next layer's. The first layer replaces the stack. */
static int layer_tensor(struct stack *k, uint64_t layer, uint32_t shards,
    uint32_t *from, uint32_t index, struct ofs_entry *e)
{
	struct ofs_tensor t = k->t;
	uint32_t n = *from;

	while (n < k->npieces && k->piece[n].layer == layer)
		n++;
	t.ndim = t.grid_ndim = (uint8_t)k->ndim;
	t.shape = t.grid =
	    ofs_catalog_dims(k->m->cat, k->shape, k->ndim, k->err);
	if (t.shape == OFS_NONE)
		return -1;
	t.shard = shards + *from;
	t.nshards = n - *from;
	*from = n;
	if (layer == 0) {
		k->m->cat->tensors[index] = t;
		return 0;
	}
	e->ref = ofs_catalog_tensor(k->m->cat, &t, k->err);
	return ofs_catalog_entry(k->m->cat, e, k->err) == OFS_NONE ? -1 : 0;
}

static int emit(struct stack *k, uint32_t entry,
    const struct ofs_megatron_key *key, uint32_t at)
{
	struct ofs_entry e = k->m->cat->entries[entry];
	uint32_t index = e.ref, from = 0, first = put_pieces(k);

	if (first == OFS_NONE)
		return -1;
	for (uint64_t i = 0; i < k->nlayers; i++) {
		if (ofs_megatron_layer_path(k->m, key, at, i, NULL, 0, &e.path,
			k->err) == -1)
			return -1;
		if (i == 0)
			k->m->cat->entries[entry].path = e.path;
		if (layer_tensor(k, i, first, &from, index, &e) == -1)
			return -1;
	}
	return 0;
}

/* An impossible chunk makes the tensors of all layers damaged. */
static int spoil(struct stack *k, const struct ofs_megatron_key *key)
{
	struct optimfs_error why;

	if (k->wrong == NULL)
		return 0;
	k->npieces = 0;
	if (k->t.error == OFS_NONE) {
		optimfs_fail_as(&why, EUCLEAN, "%s", k->wrong);
		optimfs_fail_in(&why, "%.200s", key->name.p);
		k->t.error = ofs_catalog_error(k->m->cat, &why, k->err);
	}
	return k->t.error == OFS_NONE ? -1 : 0;
}

/* All stacks of a checkpoint must have the same number of layers. */
static int check_layers(struct stack *k, const struct ofs_megatron_key *key,
    uint32_t at)
{
	static const char decoder[] = "decoder.layers.";
	uint32_t n = sizeof(decoder) - 1;
	struct ofs_megatron *m = k->m;
	uint64_t want = m->num_layers;

	if (at < n || memcmp(key->name.p + at - n, decoder, n) != 0)
		return 0;
	if (m->seen_layers == 0)
		m->seen_layers = k->nlayers;
	if (want == 0)
		want = m->seen_layers;
	if (want == k->nlayers)
		return 0;
	return ofs_catalog_note(m->cat, OFS_NOTE_WARNING, EUCLEAN, k->err,
	    "OFS645 %.200s: %" PRIu64 " layers are stacked, %s %" PRIu64,
	    key->name.p, k->nlayers,
	    m->num_layers != 0 ? "num_layers is" : "other tensors have", want);
}

/* A stack that must not be split stays one tensor. */
static int keep(struct stack *k, const struct ofs_megatron_key *key)
{
	return ofs_catalog_note(k->m->cat, OFS_NOTE_WARNING, E2BIG, k->err,
	    "OFS646 %.200s: %" PRIu64
	    " layers, or too many chunks, are stacked: shown as one tensor",
	    key->name.p, k->nlayers);
}

int ofs_megatron_unstack(struct ofs_megatron *m, uint32_t entry,
    const struct ofs_megatron_key *key, struct optimfs_error *err)
{
	struct stack k = { .m = m, .err = err };
	uint32_t at = key->kind == OFS_MEGATRON_BUCKET
	    ? 0
	    : ofs_megatron_layer_at(key->name);
	int ret;

	k.t = m->cat->tensors[m->cat->entries[entry].ref];
	if (at == 0 || k.t.ndim == 0)
		return 0;
	k.ndim = k.t.ndim - 1u;
	memcpy(k.shape, m->cat->dims + k.t.shape + 1,
	    k.ndim * sizeof(*k.shape));
	k.nlayers = m->cat->dims[k.t.shape];
	if (k.nlayers == 0)
		return 0;
	if (k.nlayers > MAX_LAYERS || k.nlayers > m->budget)
		return keep(&k, key);
	ret = cut(&k);
	if (ret == 0)
		return keep(&k, key);
	m->budget -= k.nlayers;
	if (ret == 1 &&
	    (spoil(&k, key) == -1 || check_layers(&k, key, at) == -1 ||
		emit(&k, entry, key, at) == -1))
		ret = -1;
	free(k.piece);
	return ret;
}
