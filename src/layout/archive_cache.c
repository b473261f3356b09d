/* archive_cache.c - archives of a view, made at their first use */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/archive_cache.h"

#include <stdlib.h>

#include "base/memory.h"

void ofs_torch_cache_init(struct ofs_torch_cache *c,
    const struct ofs_layout *to, ofs_torch_build_fn *build, void *ctx)
{
	*c = (struct ofs_torch_cache){
		.build = build, .ctx = ctx, .crc = to->crc, .cast = to->dtype
	};
	pthread_mutex_init(&c->lock, NULL);
}

static void cached_free(struct ofs_torch_cached *x)
{
	if (x != NULL)
		ofs_torch_new_fini(&x->a);
	free(x);
}

void ofs_torch_cache_fini(struct ofs_torch_cache *c)
{
	for (unsigned i = 0; i < OFS_TORCH_CACHED; i++)
		cached_free(c->slot[i]);
	pthread_mutex_destroy(&c->lock);
}

static struct ofs_torch_cached *build(const struct ofs_torch_cache *c,
    uint32_t file, struct optimfs_error *err)
{
	struct ofs_torch_cached *x = calloc(1, sizeof(*x));
	struct ofs_buf pickle = { 0 };
	int ret;

	if (x == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	x->file = file;
	x->refs = 1;
	x->a.crc = c->crc;
	x->a.cast = c->cast;
	ret = c->build(c->ctx, file, &x->a, &pickle, err);
	if (ret == 0)
		ret = ofs_torch_new_place(&x->a, &pickle, err);
	ofs_buf_fini(&pickle);
	if (ret == 0)
		return x;
	cached_free(x);
	return NULL;
}

/* Put x into a free slot, or replace the least recently used archive without
 * users. Without a slot x belongs to its user only. */
static void keep(struct ofs_torch_cache *c, struct ofs_torch_cached *x)
{
	struct ofs_torch_cached **best = NULL;

	for (unsigned i = 0; i < OFS_TORCH_CACHED; i++) {
		struct ofs_torch_cached **slot = &c->slot[i];

		if (*slot == NULL) {
			best = slot;
			break;
		}
		if ((*slot)->refs == 0 &&
		    (best == NULL || (*slot)->used < (*best)->used))
			best = slot;
	}
	if (best == NULL)
		return;
	cached_free(*best);
	*best = x;
}

static struct ofs_torch_cached *acquire(struct ofs_torch_cache *c,
    uint32_t file, struct optimfs_error *err)
{
	struct ofs_torch_cached *x = NULL;

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < OFS_TORCH_CACHED && x == NULL; i++)
		if (c->slot[i] != NULL && c->slot[i]->file == file)
			x = c->slot[i];
	if (x != NULL)
		x->refs++;
	pthread_mutex_unlock(&c->lock);
	if (x != NULL)
		return x;
	x = build(c, file, err);
	if (x == NULL)
		return NULL;
	pthread_mutex_lock(&c->lock);
	keep(c, x);
	pthread_mutex_unlock(&c->lock);
	return x;
}

static void release(struct ofs_torch_cache *c, struct ofs_torch_cached *x)
{
	bool kept = false;

	pthread_mutex_lock(&c->lock);
	x->refs--;
	x->used = ++c->clock;
	for (unsigned i = 0; i < OFS_TORCH_CACHED; i++)
		kept = kept || c->slot[i] == x;
	pthread_mutex_unlock(&c->lock);
	if (!kept)
		cached_free(x);
}

int ofs_torch_cache_spans(struct ofs_torch_cache *c, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	struct ofs_torch_cached *x = acquire(c, file, err);
	int ret;

	if (x == NULL)
		return -1;
	ret = ofs_torch_new_spans(&x->a, out, err);
	release(c, x);
	return ret;
}

int ofs_torch_cache_make(struct ofs_torch_cache *c,
    const struct ofs_catalog *cat, uint32_t file, const struct ofs_span *span,
    uint64_t at, struct ofs_composition *out, struct optimfs_error *err)
{
	struct ofs_torch_cached *x = acquire(c, file, err);
	int ret;

	if (x == NULL)
		return -1;
	ret = ofs_torch_new_make(&x->a, cat, span, at, out, err);
	release(c, x);
	return ret;
}
