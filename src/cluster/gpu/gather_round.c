/* gather_round.c - gather blocks, lay them out and copy them to the reader */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/gather_impl.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/wire.h"
#include "store/runs.h"

/* Owners with many readers are sometimes out of memory. It becomes free in the
 * time of a transfer, unless readers wait for each other in a circle. */
enum { STAGE_TRIES = 50, STAGE_PAUSE_MS = 2 };
/* Interval of asking whether what is waited for can still come. */
#define LOOK_NS 1000000000

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

/* Requests to other ranks before a transfer; errors go to err of the round. */

/* Asks all owners that were not asked yet to read what they have to send. Sets the
 * tokens of those that succeed, even if others fail. EBUSY: an owner has no free
 * memory at the moment. */
static int ask_owners(struct ofs_round *r)
{
	const struct optimfs_group *w = r->s->group;
	struct ofs_ask ask[ROUND_BLOCKS];
	struct ofs_buf bytes[ROUND_BLOCKS] = { { 0 } };
	struct ofs_want *who[ROUND_BLOCKS];
	size_t n = 0;
	int ret = 0;

	for (uint32_t i = 0; i < r->nwants; i++) {
		struct ofs_want *t = &r->want[i];
		struct ofs_buf *q = &bytes[n];

		if (t->hit || t->token != 0)
			continue;
		ofs_wire_u8(q, OFS_WIRE_STAGE);
		ofs_wire_u32(q, r->s->number);
		ofs_wire_u32(q, t->owner->index);
		ofs_wire_u64(q, t->lo);
		ofs_wire_u64(q, t->hi - t->lo);
		if (q->bad)
			ret = ofs_no_memory(&r->err);
		who[n] = t;
		ask[n++] = (struct ofs_ask){ .to = t->owner->rank,
			.request = q->data,
			.nrequest = q->len,
			.want = 8 };
	}
	if (ret == 0) {
		ret = ofs_group_ask_all(w, ask, n, &r->err);
		for (size_t i = 0; i < n; i++)
			if (ask[i].err.code == 0)
				who[i]->token = ofs_le64(ask[i].answer);
		w->ops->release(w->w, ask, n);
	}
	for (size_t i = 0; i < n; i++)
		ofs_buf_fini(&bytes[i]);
	return ret;
}

/* Draws the sequence numbers of this rank and of n owners. Without an answer of rank
 * 0 there are no transfers any more, and numbers that it has given may be missing. */
static int draw(struct ofs_round *r, const int *owner, uint32_t n,
    uint64_t *sequence)
{
	unsigned connection = atomic_load(&r->b->connection);
	const struct optimfs_group *w = r->s->group;
	uint8_t answer[(ROUND_BLOCKS + 1) * 8];
	struct ofs_buf q = { 0 };
	int ret;

	if (w->rank == 0)
		return ofs_gpu_gather_draw(r->b, 0, owner, n, sequence,
		    &r->err);
	ofs_wire_u8(&q, OFS_WIRE_SEQUENCE);
	ofs_wire_u32(&q, n);
	for (uint32_t i = 0; i < n; i++)
		ofs_wire_u32(&q, (uint32_t)owner[i]);
	ret = ofs_group_ask(w, 0, &q, answer, (n + 1) * UINT64_C(8), &r->err);
	for (uint32_t i = 0; i <= n && ret == 0; i++)
		sequence[i] = ofs_le64(answer + 8 * i);
	ofs_buf_fini(&q);
	if (ret == -1 && (r->err.code == EHOSTDOWN || r->err.code == ETIMEDOUT))
		ofs_gpu_gather_hang_up(r->b, connection, &r->err);
	return ret;
}

static void put_send(const struct ofs_round *r, int owner, uint64_t sequence,
    struct ofs_buf *q)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->nwants; i++)
		n += r->want[i].token != 0 && r->want[i].owner->rank == owner;
	ofs_wire_u8(q, OFS_WIRE_SEND);
	ofs_wire_u64(q, sequence);
	ofs_wire_u32(q, n);
	for (uint32_t i = 0; i < r->nwants; i++)
		if (r->want[i].token != 0 && r->want[i].owner->rank == owner)
			ofs_wire_u64(q, r->want[i].token);
}

/* Tells each owner to send at its sequence number. NULL: not to send. */
static int tell_owners(struct ofs_round *r, const int *owner, uint32_t n,
    const uint64_t *sequence)
{
	const struct optimfs_group *w = r->s->group;
	struct ofs_buf q[ROUND_BLOCKS] = { { 0 } };
	struct ofs_ask ask[ROUND_BLOCKS];
	int ret = 0;

	for (uint32_t i = 0; i < n; i++) {
		put_send(r, owner[i],
		    sequence == NULL ? OFS_NO_SEQUENCE : sequence[i], &q[i]);
		if (q[i].bad)
			ret = ofs_no_memory(&r->err);
		ask[i] = (struct ofs_ask){ .to = owner[i],
			.request = q[i].data,
			.nrequest = q[i].len };
	}
	if (ret == 0 && n > 0) {
		ret = ofs_group_ask_all(w, ask, n, &r->err);
		w->ops->release(w->w, ask, n);
	}
	for (uint32_t i = 0; i < n; i++)
		ofs_buf_fini(&q[i]);
	return ret;
}

/* Once each. */
static uint32_t add_owner(int *owner, uint32_t n, int rank)
{
	for (uint32_t i = 0; i < n; i++)
		if (owner[i] == rank)
			return n;
	owner[n] = rank;
	return n + 1;
}

/* The other ranks that send something. */
static uint32_t find_owners(const struct ofs_round *r, int *owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->nwants; i++) {
		const struct ofs_want *w = &r->want[i];

		if (!w->hit && w->owner->rank != r->s->group->rank)
			n = add_owner(owner, n, w->owner->rank);
	}
	return n;
}

/* Releases what owners have read in vain. */
static void drop_staged(struct ofs_round *r)
{
	struct optimfs_error first = r->err;
	int owner[ROUND_BLOCKS], mine = r->s->group->rank;
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->nwants; i++) {
		struct ofs_want *w = &r->want[i];

		if (w->token == 0)
			continue;
		if (w->owner->rank != mine) {
			n = add_owner(owner, n, w->owner->rank);
			continue;
		}
		ofs_gpu_gather_drop(r->b, w->token, mine);
		w->token = 0;
	}
	tell_owners(r, owner, n, NULL);
	r->err = first;
}

/* Transfer and layout. */

static void done(struct ofs_gpu_work *work)
{
	struct ofs_round *r = work->ctx;

	pthread_mutex_lock(&r->lock);
	r->done = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
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
		ofs_clock_wait(&r->changed, &r->lock, LOOK_NS);
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
		ofs_clock_wait(&b->freed, &b->lock, LOOK_NS);
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

static int add_take(struct ofs_round *r, const struct ofs_want *w)
{
	struct ofs_gpu_work *work = &r->work;
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

static int add_takes(struct ofs_round *r)
{
	int ret = 0;

	for (uint32_t i = 0; i < r->nwants && ret == 0; i++)
		if (!r->want[i].hit)
			ret = add_take(r, &r->want[i]);
	return ret;
}

static void free_gives(const struct ofs_round *r)
{
	for (uint32_t i = 0; i < r->work.nsends; i++)
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

/* Receives from n owners, and lays everything out; sequence: the number of this
 * rank, and those of the owners. These are drawn: if the transfer does not happen,
 * the connection is unusable. */
static int transfer(struct ofs_round *r, const int *owner, uint32_t n,
    const uint64_t *sequence)
{
	unsigned connection = OFS_CONNECTION_OF(sequence[0]);
	struct ofs_gpu_work *work = &r->work;
	struct ofs_gpu_gather *b = r->b;
	int ret;

	work->sequence = sequence[0];
	b->ops->submit(b->gpu, work);
	ret = tell_owners(r, owner, n, sequence + 1);
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
	int ret = ask_owners(r);

	for (int i = 0; i < STAGE_TRIES && ret == -1 && r->err.code == EBUSY;
	     i++) {
		nanosleep(&pause, NULL);
		ret = ask_owners(r);
	}
	return ret;
}

static int gather(struct ofs_round *r)
{
	uint64_t sequence[ROUND_BLOCKS + 1];
	int owner[ROUND_BLOCKS], ret = -1;
	uint32_t n = find_owners(r, owner);

	if (stage(r) == -1 || add_takes(r) == -1 ||
	    draw(r, owner, n, sequence) == -1)
		drop_staged(r);
	else
		ret = transfer(r, owner, n, sequence);
	if (!r->left)
		free_gives(r);
	return ret;
}

static int run_in(struct ofs_round *r)
{
	static const uint64_t none;
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
		ret = all ? transfer(r, NULL, 0, &none) : gather(r);
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
