/* scatter.c - elements of a tensor, written to their stored positions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/scatter.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/io.h"
#include "base/memory.h"
#include "catalog/owners.h"
#include "plan/fix.h"
#include "read/locate.h"

/* Runs of at least this length are written one by one. Shorter ones are in
 * windows of the file that are read, filled and written back. Nothing else may
 * write to a window meanwhile, so a window locks the file exclusively, and
 * single runs share the lock. */
#define LONG_RUN 4096
#define WINDOW   (2u << 20)
#define NLOCKS   16

static pthread_rwlock_t locks[NLOCKS] = {
	[0 ... NLOCKS - 1] = PTHREAD_RWLOCK_INITIALIZER,
};

/* Writing. */

static int write_runs(int fd, int64_t delta, const struct ofs_segment *seg,
    const uint8_t *buf, struct optimfs_error *err)
{
	uint64_t len = seg->len, n = seg->n;
	int ret = 0;

	if (n > 1 && seg->src_pitch == (int64_t)len &&
	    seg->dst_pitch == (int64_t)len) {
		len *= n;
		n = 1;
	}
	for (uint64_t i = 0; i < n && ret == 0; i++)
		ret = ofs_write_all(fd,
		    buf + seg->dst + (int64_t)i * seg->dst_pitch, len,
		    seg->src + (uint64_t)((int64_t)i * seg->src_pitch + delta),
		    err);
	return ret;
}

/* Write runs [i, i + n), whose pitch in the file is positive, in one window. */
static int write_window(int fd, int64_t delta, const struct ofs_segment *seg,
    uint64_t i, uint64_t n, const uint8_t *buf, uint8_t *window,
    struct optimfs_error *err)
{
	uint64_t pitch = (uint64_t)seg->src_pitch;
	uint64_t at = seg->src + i * pitch + (uint64_t)delta;
	uint64_t len = (n - 1) * pitch + seg->len;

	if (ofs_pread_all(fd, window, len, at, err) == -1)
		return -1;
	for (uint64_t k = 0; k < n; k++)
		memcpy(window + k * pitch,
		    buf + seg->dst + (int64_t)(i + k) * seg->dst_pitch,
		    seg->len);
	return ofs_write_all(fd, window, len, at, err);
}

static int write_windows(int fd, int64_t delta, const struct ofs_segment *seg,
    const uint8_t *buf, struct optimfs_error *err)
{
	uint64_t step = WINDOW / (uint64_t)seg->src_pitch;
	uint8_t *window = malloc(WINDOW);
	int ret = 0;

	if (window == NULL)
		return ofs_no_memory(err);
	for (uint64_t i = 0; i < seg->n && ret == 0; i += step)
		ret = write_window(fd, delta, seg, i,
		    seg->n - i < step ? seg->n - i : step, buf, window, err);
	free(window);
	return ret;
}

/* Write one segment; its dst is relative to buf. */
static int write_segment(int fd, int64_t delta, const struct ofs_segment *seg,
    const void *buf, struct optimfs_error *err)
{
	pthread_rwlock_t *lock = &locks[(unsigned)fd % NLOCKS];
	bool windows = seg->n > 1 && seg->len < LONG_RUN &&
	    seg->src_pitch > (int64_t)seg->len &&
	    seg->src_pitch <= (int64_t)(16 * LONG_RUN);
	int ret;

	if (windows)
		pthread_rwlock_wrlock(lock);
	else
		pthread_rwlock_rdlock(lock);
	ret = windows ? write_windows(fd, delta, seg, buf, err)
		      : write_runs(fd, delta, seg, buf, err);
	pthread_rwlock_unlock(lock);
	return ret;
}

/* Planning. */

/* The copies of each shard that one round writes: in round 0 the shards, in
 * round k the replica k of each. */
struct copies {
	struct ofs_reader *reader;
	uint32_t round;
	bool more; /* some shard has a replica for a later round */
	struct ofs_place **place; /* of replicas, for freeing */
	size_t n, cap;
};

static struct ofs_place *keep(struct copies *c, struct ofs_place *p,
    struct optimfs_error *err)
{
	if (p != NULL && ofs_grow(c->place, c->n, c->cap, err) == -1) {
		free(p);
		return NULL;
	}
	if (p != NULL)
		c->place[c->n++] = p;
	return p;
}

static const struct ofs_place *place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct copies *c = ctx;
	const struct ofs_replica *copy;
	struct ofs_place *p;
	uint32_t n;

	copy = ofs_replicas(c->reader->cat, shard, &n);
	c->more = c->more || n > c->round;
	if (c->round == 0)
		return ofs_locate_shard(c->reader, t, shard, err);
	if (c->round <= n)
		return keep(c,
		    ofs_locate_replica(c->reader, t, &copy[c->round - 1], err),
		    err);
	/* this shard has no replica for this round */
	p = ofs_alloc(1, sizeof(*p) + t->grid_ndim * sizeof(p->stride[0]), err);
	if (p != NULL)
		p->object = OFS_NONE;
	return keep(c, p, err);
}

static void drop_nowhere(struct ofs_plan *plan, size_t from)
{
	size_t n = from;

	for (size_t i = from; i < plan->n; i++)
		if (plan->seg[i].object != OFS_NONE)
			plan->seg[n++] = plan->seg[i];
	plan->n = n;
}

int ofs_scatter_plan(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct ofs_plan *plan,
    struct optimfs_error *err)
{
	struct copies c = { .reader = r, .more = true };
	int ret = 0;

	for (; ret == 0 && c.more; c.round++) {
		size_t from = plan->n;

		c.more = false;
		ret = ofs_plan_elements(r->cat, t, first, count, place, &c,
		    plan, err);
		drop_nowhere(plan, from);
	}
	if (ret == 0 && plan->nzeros > 0)
		ret = optimfs_fail(err, EIO,
		    "OFS607 no shard has room for a part of what was written");
	for (size_t i = 0; i < c.n; i++)
		free(c.place[i]);
	free(c.place);
	return ret;
}

static int write_to(const struct ofs_target *target,
    const struct ofs_segment *seg, const void *buf, struct optimfs_error *err)
{
	int64_t delta = 0;
	int fd = -1;

	if (target->at(target->ctx, seg, &fd, &delta, err) == -1 ||
	    write_segment(fd, delta, seg, buf, err) == -1)
		return -1;
	if (target->written != NULL)
		target->written(target->ctx, seg, buf);
	return 0;
}

/* Convert elements to their stored form: every fix is its own inverse. */
static int write_fixed(const struct ofs_target *target,
    const struct ofs_segment *seg, const void *buf, uint64_t size,
    struct optimfs_error *err)
{
	uint8_t *copy;
	int ret;

	if (seg->fix == OFS_FIX_NONE)
		return write_to(target, seg, buf, err);
	if ((seg->fix & OFS_FIX_ROUND) != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS822 a rounded tensor cannot be written");
	copy = malloc(size + 1);
	if (copy == NULL)
		return ofs_no_memory(err);
	memcpy(copy, buf, size);
	ofs_fix_segment(seg, copy);
	ret = write_to(target, seg, copy, err);
	free(copy);
	return ret;
}

int ofs_scatter(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, const void *buf,
    const struct ofs_target *target, struct optimfs_error *err)
{
	uint64_t size = count * ofs_dtype_size(t->dtype);
	struct ofs_plan plan = { 0 };
	int ret = ofs_scatter_plan(r, t, first, count, &plan, err);

	for (size_t i = 0; i < plan.n && ret == 0; i++)
		ret = write_fixed(target, &plan.seg[i], buf, size, err);
	ofs_plan_fini(&plan);
	return ret;
}
