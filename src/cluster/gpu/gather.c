/* gather.c - set up gathering through GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/gather.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/module.h"
#include "cluster/allgather.h"
#include "cluster/gpu/gather_impl.h"
#include "cluster/wire.h"

/* All ranks take the steps of the setup together. A failure on one rank is
 * reported in the next step, so that all ranks reach the same result. */
struct setup {
	struct optimfs_group *w;
	struct optimfs_gather how;
	char device[64];
	struct optimfs_error own; /* local error; code 0: none */
	struct ofs_allgather all;
	int who; /* the first rank that has failed, if why does not say it */
	struct optimfs_error why;
};

/* Exchanges status and some bytes: in all, until the next call. */
static int say_all(struct setup *s, const void *p, uint64_t n,
    struct optimfs_error *err)
{
	const struct ofs_buf mine = { .data = (uint8_t *)(uintptr_t)p,
		.len = n };

	ofs_allgather_fini(&s->all);
	s->all = (struct ofs_allgather){ .own = &s->own, .mine = &mine };
	if (ofs_allgather(s->w, &s->all, err) == -1)
		return -1;
	for (int r = 0; r < s->w->size; r++)
		if (ofs_cursor_left(&s->all.of[r]) != n)
			return ofs_wire_malformed(err);
	return 0;
}

/* The options of rank 0 apply to all. */
static int agree_how(struct setup *s, struct optimfs_error *err)
{
	uint8_t how = (uint8_t)s->how.how;

	if (say_all(s, &how, 1, err) == -1)
		return -1;
	how = ofs_cursor_u8(&s->all.of[0]);
	if (how > OPTIMFS_GATHER_NCCL)
		return ofs_wire_malformed(err);
	s->how.how = how;
	return 0;
}

/* Have all ranks succeeded so far? The first failure gives the reason. 1: not
 * all. */
static int agree(struct setup *s, const void *more, size_t nmore,
    struct optimfs_error *err)
{
	if (say_all(s, more, nmore, err) == -1)
		return -1;
	s->who = s->all.failed;
	s->why = s->all.why;
	return s->who != -1;
}

/* The bytes that rank r added in agree. */
static const void *added(const struct setup *s, int r)
{
	return s->all.of[r].p;
}

/* Opening the GPU. */

static const struct ofs_gpu_ops *load(struct optimfs_error *err)
{
	const struct ofs_gpu_ops *ops;
	char why[256];

	ops = ofs_module_load("nccl", OFS_GPU_SYMBOL, RTLD_LOCAL, why);
	if (ops != NULL && ops->version == OFS_GPU_VERSION)
		return ops;
	optimfs_fail(err, ENODEV, "OFS903 no usable GPU: %s",
	    ops == NULL ? why : "optimfs-nccl.so is of another version");
	return NULL;
}

static unsigned local_number(const struct optimfs_group *w)
{
	unsigned n = 0;

	for (int r = 0; r < w->rank; r++)
		n += w->ops->node(w->w, r) == w->ops->node(w->w, w->rank);
	return n;
}

static uint32_t blocks_for(uint64_t cache)
{
	uint64_t n = cache / OFS_GPU_BLOCK;

	return MIN_BLOCKS + (uint32_t)(n < UINT32_MAX / 2 ? n : UINT32_MAX / 2);
}

/* Opens the GPU; without the cache if it does not fit. */
static int open_gpu(struct ofs_gpu_gather *b, unsigned timeout, char device[64],
    struct optimfs_error *err)
{
	struct ofs_gpu_config config = { .timeout = timeout,
		.local = local_number(b->group),
		.blocks = blocks_for(b->how.gpu_cache) };

	b->ops = load(err);
	if (b->ops == NULL)
		return -1;
	b->gpu = b->ops->open(&config, device, err);
	if (b->gpu == NULL && err->code == ENOMEM && b->how.gpu_cache > 0) {
		ofs_gpu_gather_say(b, err->text,
		    "continuing without gpu_cache=");
		b->how.gpu_cache = 0;
		config.blocks = MIN_BLOCKS;
		b->gpu = b->ops->open(&config, device, err);
	}
	if (b->gpu == NULL)
		return -1;
	b->blocks = ofs_blocks_new(config.blocks, err);
	return b->blocks == NULL ? -1 : 0;
}

static void stop(struct optimfs_group *w)
{
	if (w->gpu_gather != NULL)
		ofs_gpu_gather_stop(w->gpu_gather);
}

static void group_free(struct optimfs_group *w)
{
	struct ofs_gpu_gather *b = w->gpu_gather;

	w->gpu_gather = NULL;
	w->gather = NULL;
	if (b == NULL || atomic_load(&b->stuck))
		return; /* the module may still use it */
	if (b->gpu != NULL)
		b->ops->close(b->gpu);
	ofs_blocks_free(b->blocks);
	pthread_cond_destroy(&b->changed);
	pthread_cond_destroy(&b->freed);
	pthread_mutex_destroy(&b->lock);
	pthread_mutex_destroy(&b->connecting);
	free(b->sequence);
	free(b->name);
	free(b);
}

static const struct ofs_gather_ops gather_ops = {
	.is_used = ofs_gpu_gather_is_used,
	.fetch = ofs_gpu_gather_fetch,
	.stop = stop,
	.free = group_free,
};

static int prepare(struct setup *s, unsigned timeout, struct optimfs_error *err)
{
	struct ofs_gpu_gather *b = ofs_alloc(1, sizeof(*b), err);

	if (b == NULL)
		return -1;
	b->sequence = calloc((size_t)s->w->size, sizeof(*b->sequence));
	if (b->sequence == NULL ||
	    asprintf(&b->name, "rank %d (%s)", s->w->rank,
		s->w->ops->host(s->w->w, s->w->rank)) == -1) {
		free(b->sequence);
		free(b);
		return ofs_no_memory(err);
	}
	pthread_mutex_init(&b->connecting, NULL);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->freed, NULL);
	pthread_cond_init(&b->changed, NULL);
	b->group = s->w;
	b->how = s->how;
	atomic_store(&b->decided,
	    s->how.how == OPTIMFS_GATHER_AUTO ? OFS_WAY_OPEN : OFS_WAY_NCCL);
	s->w->gpu_gather = b;
	s->w->gather = &gather_ops;
	return open_gpu(b, timeout, s->device, err);
}

/* NCCL needs a GPU for each rank. 1: two have the same. */
static int find_twins(struct setup *s)
{
	const struct ofs_group_ops *ops = s->w->ops;

	for (int r = 0; r < s->w->size; r++)
		for (int q = 0; q < r; q++) {
			if (ops->node(s->w->w, q) != ops->node(s->w->w, r) ||
			    memcmp(added(s, q), added(s, r),
				sizeof(s->device)) != 0)
				continue;
			s->who = r;
			optimfs_fail(&s->why, ENODEV,
			    "OFS903 no usable GPU: it would have to share one "
			    "with rank %d",
			    q);
			return 1;
		}
	return 0;
}

static int open_all(struct setup *s, unsigned timeout,
    struct optimfs_error *err)
{
	int ret;

	if (prepare(s, timeout, &s->own) == 0)
		s->own.code = 0;
	ret = agree(s, s->device, sizeof(s->device), err);
	return ret == 0 ? find_twins(s) : ret;
}

/* Rank 0 connects all; its error names the rank that could not be. */
static int connect_all(struct setup *s, struct optimfs_error *err)
{
	struct ofs_gpu_gather *b = s->w->gpu_gather;
	int n, ret;

	s->own.code = 0;
	if (s->w->rank == 0 && ofs_gpu_gather_connect(b, &n, &s->own) == 0 &&
	    ofs_gpu_gather_keep(b, &s->own) == 0)
		s->own.code = 0;
	ret = agree(s, NULL, 0, err);
	s->who = -1;
	return ret;
}

/* Not all ranks can: an error, or rank 0 reports it and the other transport is
 * used. */
static int without(struct setup *s, struct optimfs_error *err)
{
	const struct optimfs_group *w = s->w;
	char text[1024];

	if (s->who != -1)
		ofs_group_error_in(w, s->who, &s->why);
	if (s->how.how == OPTIMFS_GATHER_NCCL && s->why.code == ENODEV)
		return optimfs_fail_with(err, &s->why);
	snprintf(text, sizeof(text), "%s; gathering over MPI", s->why.text);
	if (w->rank == 0 && s->how.say != NULL)
		s->how.say(s->how.ctx, text);
	return 0;
}

static int set_up(struct setup *s, struct optimfs_error *err)
{
	/* leaves time for the other transport */
	unsigned timeout = (s->w->timeout + 1) / 2;
	int ret;

	if (agree_how(s, err) == -1)
		return -1;
	if (s->how.how == OPTIMFS_GATHER_MPI ||
	    (s->how.how == OPTIMFS_GATHER_AUTO && s->w->size == 1))
		return 0;
	ret = open_all(s, timeout, err);
	if (ret == 0)
		ret = connect_all(s, err);
	if (ret == 1) {
		stop(s->w);
		group_free(s->w);
		ret = without(s, err);
	}
	return ret;
}

/* No requests come before all are ready: offered files are read later. */
int optimfs_group_gather(struct optimfs_group *w,
    const struct optimfs_gather *how, struct optimfs_error *err)
{
	struct setup s = { .w = w, .how = *how };
	int ret = set_up(&s, err);

	ofs_allgather_fini(&s.all);
	return ret;
}

void ofs_gpu_gather_stats(const struct optimfs_group *w, struct ofs_buf *out)
{
	struct ofs_gpu_gather *b = w->gpu_gather;
	struct ofs_blocks_counts c;

	if (b == NULL)
		return;
	c = ofs_blocks_count(b->blocks);
	ofs_buf_printf(out, "gpu.used %d\n", ofs_gpu_gather_is_used(w));
	ofs_gpu_gather_trial_stats(b, out);
	ofs_buf_printf(out, "gpu.connections %u\n",
	    atomic_load(&b->connection));
	ofs_buf_printf(out, "gpu.rounds %" PRIu64 "\n",
	    atomic_load(&b->rounds));
	ofs_buf_printf(out, "gpu.received %" PRIu64 "\n",
	    atomic_load(&b->bytes));
	ofs_buf_printf(out, "gpu.sent %" PRIu64 "\n", atomic_load(&b->sent));
	ofs_buf_printf(out, "gpu.refused %" PRIu64 "\n",
	    atomic_load(&b->refused));
	ofs_buf_printf(out, "gpu.cache_hits %" PRIu64 "\n", c.hits);
	ofs_buf_printf(out, "gpu.cache_misses %" PRIu64 "\n", c.misses);
	ofs_buf_printf(out, "gpu.cached %" PRIu64 "\n", c.kept * OFS_GPU_BLOCK);
}
