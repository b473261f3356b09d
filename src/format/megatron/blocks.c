/* blocks.c - states stored as flattened blocks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/megatron/megatron.h"

/* fully_sharded_model_space (Megatron-Core 0.7 to 0.15;
 * docs/formats/megatron.md): model parallelism cuts a parameter of shape [X, Y]
 * into blocks of [x, y]. Its state is stored as [X/x, Y/y, x*y]. The last axis
 * is a block in C order, and each data-parallel rank stores a range of it. A
 * range of a block consists of at most 2d - 1 boxes of the parameter, and each
 * box is part of the stored item. The model's tensor of the same name gives the
 * parameter's shape. */

struct shape {
	const uint64_t *v;
	unsigned int n;
};

/* The keys of the model. */
struct models {
	struct ofs_keys keys;
	uint32_t *entry; /* of each */
};

static struct ofs_str key_text(const struct ofs_catalog *cat, uint32_t entry)
{
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(cat, cat->entries[entry].path, &n);

	if (n != 1 || cat->entries[entry].kind != OFS_ENTRY_TENSOR)
		return (struct ofs_str){ NULL, 0 };
	return ofs_catalog_string(cat, c[0]);
}

static int collect(struct ofs_megatron *m, struct models *models,
    struct optimfs_error *err)
{
	struct ofs_megatron_key key;

	models->entry = calloc(m->cat->nentries + 1ull, sizeof(uint32_t));
	if (models->entry == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < m->cat->nentries; i++) {
		struct ofs_str s = key_text(m->cat, i);
		uint32_t number;

		if (s.p == NULL)
			continue;
		ofs_megatron_parse(s, &key);
		if (key.kind != OFS_MEGATRON_MODEL)
			continue;
		number = ofs_keys_add(&models->keys, s, err);
		if (number == OFS_NONE)
			return -1;
		models->entry[number] = i;
	}
	return 0;
}

/* The state that is being rebuilt. */
struct blocks {
	struct ofs_megatron *m;
	struct ofs_tensor t;          /* as stored */
	struct shape whole;           /* of the parameter */
	uint64_t block[OFS_MAX_DIMS]; /* of one block */
	struct ofs_shard *shard;
	uint32_t n, cap;
	struct optimfs_error *err;
};

/* Computes b->block from the d + 1 stored sizes; false: they are not those of
 * blocks of the parameter. */
static bool divides(struct blocks *b)
{
	const uint64_t *stored = b->m->cat->dims + b->t.shape;
	uint64_t numel = 1;

	if (b->t.ndim != b->whole.n + 1 || b->whole.n == 0)
		return false;
	for (unsigned int i = 0; i < b->whole.n; i++) {
		if (stored[i] == 0 || b->whole.v[i] == 0 ||
		    b->whole.v[i] % stored[i] != 0)
			return false;
		b->block[i] = b->whole.v[i] / stored[i];
		if (!ofs_mul_u64(numel, b->block[i], &numel))
			return false;
	}
	return numel == stored[b->whole.n];
}

static int add_shard(struct blocks *b, const struct ofs_shard *s)
{
	if (ofs_grow(b->shard, b->n, b->cap, b->err) == -1)
		return -1;
	b->shard[b->n++] = *s;
	return 0;
}

/* Splits a shard, which is a range of one block, into boxes. 1: done; 0: it is
 * no such range, or the budget is used up. */
static int rebuild_shard(struct blocks *b, const struct ofs_shard *s)
{
	unsigned int d = b->whole.n;
	uint64_t lo[OFS_MAX_DIMS], n[OFS_MAX_DIMS], at[OFS_MAX_DIMS],
	    size[OFS_MAX_DIMS], end, from, len;
	const uint64_t *stored = b->m->cat->dims + b->t.shape;

	if (s->view != OFS_NONE)
		return 0;
	ofs_shard_box(b->m->cat, &b->t, s, lo, n);
	for (unsigned int i = 0; i < d; i++)
		if (n[i] != 1 || lo[i] >= stored[i])
			return 0;
	if (!ofs_add_u64(lo[d], n[d], &end) || end > stored[d])
		return 0;
	for (from = lo[d]; from < end; from += len) {
		struct ofs_shard part = *s;

		if (b->m->budget == 0)
			return 0;
		b->m->budget--;
		len = ofs_megatron_next_box(b->block, d, from, end, at, size);
		for (unsigned int i = 0; i < d; i++)
			at[i] += lo[i] * b->block[i];
		if (ofs_megatron_box(b->m->cat, d, at, size, from - lo[d], n[d],
			&part, b->err) == -1 ||
		    add_shard(b, &part) == -1)
			return -1;
	}
	return 1;
}

static int replace(struct blocks *b, uint32_t index)
{
	struct ofs_catalog *cat = b->m->cat;
	struct ofs_tensor t = b->t;

	t.ndim = t.grid_ndim = (uint8_t)b->whole.n;
	t.shape = t.grid =
	    ofs_catalog_dims(cat, b->whole.v, b->whole.n, b->err);
	t.nshards = b->n;
	if (t.shape == OFS_NONE)
		return -1;
	if (b->n > b->t.nshards)
		t.shard = cat->nshards;
	for (uint32_t i = 0; i < b->n; i++)
		if (b->n <= b->t.nshards)
			cat->shards[t.shard + i] = b->shard[i];
		else if (ofs_catalog_shard(cat, &b->shard[i], b->err) ==
		    OFS_NONE)
			return -1;
	cat->tensors[index] = t;
	return 0;
}

/* 1: done; 0: the state is stored in another way. */
static int rebuild(struct ofs_megatron *m, uint32_t entry, struct shape whole,
    struct optimfs_error *err)
{
	uint32_t index = m->cat->entries[entry].ref;
	struct blocks b = {
		.m = m, .t = m->cat->tensors[index], .whole = whole, .err = err
	};
	int ret = b.t.error == OFS_NONE && divides(&b);

	for (uint32_t i = 0; ret == 1 && i < b.t.nshards; i++) {
		struct ofs_shard s = m->cat->shards[b.t.shard + i];

		ret = rebuild_shard(&b, &s);
	}
	if (ret == 1)
		ret = replace(&b, index) == -1 ? -1 : 1;
	free(b.shard);
	return ret;
}

/* Rebuilds an entry that is a state with another shape than its parameter. */
static int look(struct ofs_megatron *m, const struct models *models,
    uint32_t entry, struct optimfs_error *err)
{
	struct ofs_str s = key_text(m->cat, entry);
	uint64_t dims[OFS_MAX_DIMS];
	struct ofs_megatron_key key;
	const struct ofs_tensor *t, *p = NULL;
	uint32_t found;
	int ret = 0;

	if (s.p == NULL)
		return 0;
	ofs_megatron_parse(s, &key);
	if (key.kind != OFS_MEGATRON_STATE)
		return 0;
	found = ofs_keys_find(&models->keys, key.name.p, key.name.len);
	t = &m->cat->tensors[m->cat->entries[entry].ref];
	if (found != OFS_NONE)
		p = &m->cat->tensors[m->cat->entries[models->entry[found]].ref];
	if (p == NULL ? !m->model_space : t->ndim <= p->ndim)
		return 0;
	if (p != NULL) {
		memcpy(dims, m->cat->dims + p->shape, p->ndim * sizeof(*dims));
		ret = rebuild(m, entry, (struct shape){ dims, p->ndim }, err);
	}
	if (ret != 0)
		return ret == 1 ? 0 : -1;
	return ofs_catalog_note(m->cat, OFS_NOTE_WARNING, EOPNOTSUPP, err,
	    "OFS647 %.*s: a flat block of its parameter, whose shape %s",
	    OFS_STR_ARGS(s, 200),
	    p == NULL ? "is not here: the model is needed" : "does not fit it");
}

int ofs_megatron_blocks(struct ofs_megatron *m, struct optimfs_error *err)
{
	struct models models = { 0 };
	int ret = collect(m, &models, err);

	for (uint32_t i = 0; ret == 0 && i < m->cat->nentries; i++)
		ret = look(m, &models, i, err);
	ofs_keys_fini(&models.keys);
	free(models.entry);
	return ret;
}
