/* gather_round.c - gather blocks, lay them out and copy them to the reader */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/gather_round.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/runs.h"

/* Owners with many readers are sometimes out of memory. It becomes free in the
 * time of a transfer, unless readers wait for each other in a circle. */
enum { STAGE_TRIES = 50, STAGE_PAUSE_MS = 2 };

/* Gathering. */

static int pin(struct ofs_round *r)
{
	for (uint32_t i = 0; i < r->nwants; i++) {
		struct ofs_want *w = &r->want[i];
		struct ofs_block_key key = { r->s->number, w->file, w->index };

		w->block = ofs_blocks_get(r->b->blocks,
		    r->b->how.gpu_cache > 0 ? &key : NULL, &w->hit);
		if (w->block == OFS_NO_BLOCK)
			return optimfs_fail(&r->err, EBUSY,
			    "all blocks are in use");
		w->owner = w->hit
		    ? NULL
		    : ofs_manifest_choose(r->s, w->file, w->index, NULL);
	}
	return 0;
}

static void unpin(struct ofs_round *r, bool good)
{
	for (uint32_t i = 0; i < r->nwants; i++)
		if (r->want[i].block != OFS_NO_BLOCK)
			ofs_blocks_put(r->b->blocks, r->want[i].block,
			    good || r->want[i].hit);
}

/* Laying out. */

static void done(struct ofs_gpu_work *work)
{
	struct ofs_round *r = work->ctx;

	pthread_mutex_lock(&r->lock);
	r->done = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

/* Waits for a change, for at most a second. */
static void wait_a_while(pthread_cond_t *changed, pthread_mutex_t *lock)
{
	ofs_clock_wait(changed, lock, 1000000000);
}

/* An owner that has died sends nothing any more: then no transfer ends. */
static void check_owners(const struct ofs_round *r)
{
	const struct optimfs_group *w = r->s->group;
	struct optimfs_error why;

	for (uint32_t i = 0; i < r->nwants; i++) {
		const struct ofs_want *t = &r->want[i];

		if (t->hit || !w->ops->dead(w->w, t->owner->rank))
			continue;
		optimfs_fail(&why, ENOTCONN,
		    "OFS901 NCCL: rank %d ended during a transfer",
		    t->owner->rank);
		ofs_gpu_gather_hang_up(r->b,
		    OFS_CONNECTION_OF(r->work.sequence), &why);
	}
}

static int wait_done(struct ofs_round *r)
{
	pthread_mutex_lock(&r->lock);
	while (!r->done && !r->left) {
		wait_a_while(&r->changed, &r->lock);
		if (r->done)
			break;
		pthread_mutex_unlock(&r->lock);
		check_owners(r);
		pthread_mutex_lock(&r->lock);
		r->left = !r->done && ofs_gpu_gather_is_stuck(r->b);
	}
	pthread_mutex_unlock(&r->lock);
	if (r->left)
		return optimfs_fail(&r->err, EIO, "OFS902 the GPU is stuck");
	return 0;
}

static int get_window(struct ofs_round *r)
{
	struct ofs_gpu_gather *b = r->b;
	bool stuck = false;

	pthread_mutex_lock(&b->lock);
	while (b->window[0] && b->window[1] && !stuck) {
		wait_a_while(&b->freed, &b->lock);
		stuck = atomic_load(&b->stuck);
	}
	if (!stuck) {
		r->window = b->window[0] ? 1 : 0;
		b->window[r->window] = true;
	}
	pthread_mutex_unlock(&b->lock);
	return stuck ? optimfs_fail(&r->err, EIO, "OFS902 the GPU is stuck")
		     : 0;
}

static void put_window(struct ofs_round *r)
{
	struct ofs_gpu_gather *b = r->b;

	pthread_mutex_lock(&b->lock);
	b->window[r->window] = false;
	pthread_cond_signal(&b->freed);
	pthread_mutex_unlock(&b->lock);
}

/* Bytes have the same offset in a block of GPU memory as in the block of the
 * file, even if only few of them are present. */
static void address(struct ofs_round *r)
{
	for (uint32_t i = 0; i < r->nruns; i++) {
		const struct ofs_want *w = &r->want[r->run[i].src >> 32];

		r->run[i].src =
		    w->block * OFS_GPU_BLOCK + (uint32_t)r->run[i].src;
	}
}

static int add_take(struct ofs_round *r, struct ofs_gpu_work *work,
    const struct ofs_want *w)
{
	uint64_t len;
	int stage;

	r->receive[work->nreceives++] =
	    (struct ofs_gpu_receive){ w->owner->rank, w->block,
		    w->lo % OFS_GPU_BLOCK, w->hi - w->lo };
	if (w->owner->rank != r->s->group->rank)
		return 0;
	stage = ofs_gpu_gather_take_stage(r->b, w->token, w->owner->rank, &len);
	if (stage == -1)
		return optimfs_fail(&r->err, ETIMEDOUT,
		    "the data to send is no longer here");
	r->send[work->nsends++] =
	    (struct ofs_gpu_send){ w->owner->rank, (uint32_t)stage, len };
	return 0;
}

static int add_takes(struct ofs_round *r, struct ofs_gpu_work *work)
{
	int ret = 0;

	for (uint32_t i = 0; i < r->nwants && ret == 0; i++)
		if (!r->want[i].hit)
			ret = add_take(r, work, &r->want[i]);
	return ret;
}

static void free_gives(const struct ofs_round *r,
    const struct ofs_gpu_work *work)
{
	for (uint32_t i = 0; i < work->nsends; i++)
		ofs_gpu_gather_free_stage(r->b, r->send[i].stage);
}

/* Copies to the reader's buffer: only the requested bytes, since the rest
 * belongs to others. */
static void copy_out(const struct ofs_round *r)
{
	const uint8_t *from = r->b->ops->window(r->b->gpu, r->window);

	if (r->ncopied == r->end - r->start) {
		memcpy(r->buf + r->base + r->start, from + r->start,
		    r->ncopied);
		return;
	}
	for (uint32_t i = 0; i < r->nruns; i++) {
		const struct ofs_gpu_run *u = &r->run[i];

		ofs_copy_runs(r->buf + r->base + u->dst, u->dst_pitch,
		    from + u->dst, u->dst_pitch, u->len, u->n);
	}
}

/* The sequence numbers are drawn: if the transfer does not happen, the
 * connection is unusable. */
static int transfer(struct ofs_round *r, struct ofs_gpu_work *work,
    const int *owner, uint32_t n, const uint64_t *sequence)
{
	unsigned connection = OFS_CONNECTION_OF(sequence[0]);
	struct ofs_gpu_gather *b = r->b;
	int ret;

	work->sequence = sequence[0];
	b->ops->submit(b->gpu, work);
	ret = ofs_round_tell(r, owner, n, sequence + 1);
	if (ret == -1)
		ofs_gpu_gather_hang_up(b, connection, &r->err);
	if (wait_done(r) == -1)
		return -1;
	if (work->err.code != 0)
		ofs_gpu_gather_lost(b, connection, &work->err);
	if (ret == -1 || work->err.code != 0)
		return -1;
	for (uint32_t i = 0; i < work->nreceives; i++)
		atomic_fetch_add(&b->bytes, r->receive[i].len);
	return 0;
}

static int stage(struct ofs_round *r)
{
	static const struct timespec pause = { .tv_nsec =
						   STAGE_PAUSE_MS * 1000000 };
	int ret = ofs_round_stage(r);

	for (int i = 0; i < STAGE_TRIES && ret == -1 && r->err.code == EBUSY;
	     i++) {
		nanosleep(&pause, NULL);
		ret = ofs_round_stage(r);
	}
	return ret;
}

/* Without an answer of rank 0 there are no transfers any more, and numbers that it
 * has given may be missing. */
static int draw(struct ofs_round *r, const int *owner, uint32_t n,
    uint64_t *sequence)
{
	unsigned connection = atomic_load(&r->b->connection);
	int ret = ofs_round_draw(r, owner, n, sequence);

	if (ret == -1 && (r->err.code == EHOSTDOWN || r->err.code == ETIMEDOUT))
		ofs_gpu_gather_hang_up(r->b, connection, &r->err);
	return ret;
}

static int gather(struct ofs_round *r, struct ofs_gpu_work *work)
{
	uint64_t sequence[ROUND_BLOCKS + 1];
	int owner[ROUND_BLOCKS], ret;
	uint32_t n;

	if (stage(r) == -1 || add_takes(r, work) == -1) {
		free_gives(r, work);
		ofs_round_drop(r);
		return -1;
	}
	n = ofs_round_owners(r, owner);
	ret = draw(r, owner, n, sequence);
	if (ret == 0)
		ret = transfer(r, work, owner, n, sequence);
	else
		ofs_round_drop(r);
	if (!r->left)
		free_gives(r, work);
	return ret;
}

static int lay_out(struct ofs_round *r, struct ofs_gpu_work *work)
{
	r->b->ops->submit(r->b->gpu, work);
	if (wait_done(r) == -1)
		return -1;
	if (work->err.code == 0)
		return 0;
	ofs_gpu_gather_lost(r->b, 0, &work->err);
	return -1;
}

static int run_in(struct ofs_round *r)
{
	bool all = true;
	int ret = pin(r);

	r->work = (struct ofs_gpu_work){ .receive = r->receive,
		.send = r->send,
		.run = r->run,
		.nruns = r->nruns,
		.window = r->window,
		.at = r->start,
		.nout = r->end - r->start,
		.done = done,
		.ctx = r };

	for (uint32_t i = 0; i < r->nwants; i++)
		all &= r->want[i].hit;
	if (ret == 0) {
		address(r);
		r->done = false;
		ret = all ? lay_out(r, &r->work) : gather(r, &r->work);
	}
	if (ret == 0)
		copy_out(r);
	if (!r->left)
		unpin(r, ret == 0);
	return ret;
}

int ofs_round_run(struct ofs_round *r)
{
	int ret = 0;

	if (r->nruns > 0) {
		ret = get_window(r);
		if (ret == -1)
			return -1;
		ret = run_in(r);
		if (!r->left)
			put_window(r);
		atomic_fetch_add(&r->b->rounds, 1);
	}
	r->nwants = r->nruns = 0;
	r->start = r->end = r->ncopied = 0;
	return ret;
}
