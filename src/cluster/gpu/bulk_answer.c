/* bulk_answer.c - what a rank does so that others can gather from it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/gpu/bulk_impl.h"
#include "cluster/wire.h"

/* Who has not said for so long to send what it asked for never will. */
#define LEASE_MS (60 * 1000)

static int malformed(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request about GPUs that makes no sense");
}

/* Not there, or gone: the rank that asks takes the other way. */
static int not_here(const struct ofs_bulk *b, struct optimfs_error *err)
{
	if (b != NULL && !atomic_load(&b->off))
		return 0;
	return optimfs_fail(err, ENOTCONN,
	    "OFS901 NCCL: this rank uses it no more");
}

/* Stages. */

static bool abandoned(const struct ofs_bulk *b, const struct stage *s)
{
	const struct optimfs_group *w = b->world;

	return !s->going &&
	    (ofs_clock_ms() - s->since > LEASE_MS || w->ops->dead(w->w, s->to));
}

/* It counts as going while it is being filled: nobody takes it for an
 * abandoned one. */
static int get_stage(struct ofs_bulk *b, int to, uint64_t len, uint64_t *token,
    struct optimfs_error *err)
{
	int found = -1;

	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < OFS_GPU_STAGES && found == -1; i++)
		if (b->stage[i].token == 0 || abandoned(b, &b->stage[i]))
			found = i;
	if (found != -1) {
		*token = ++b->token;
		b->stage[found] = (struct stage){
			.token = *token, .len = len, .to = to, .going = true
		};
	}
	pthread_mutex_unlock(&b->lock);
	if (found == -1)
		optimfs_fail(err, EBUSY, "no memory to send from is free");
	return found;
}

void ofs_bulk_free_stage(struct ofs_bulk *b, uint32_t i)
{
	pthread_mutex_lock(&b->lock);
	b->stage[i] = (struct stage){ 0 };
	pthread_mutex_unlock(&b->lock);
}

int ofs_bulk_take_stage(struct ofs_bulk *b, uint64_t token, int to,
    uint64_t *len)
{
	int found = -1;

	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < OFS_GPU_STAGES; i++) {
		struct stage *s = &b->stage[i];

		if (s->token != token || token == 0 || s->to != to || s->going)
			continue;
		s->going = true;
		*len = s->len;
		found = i;
	}
	pthread_mutex_unlock(&b->lock);
	return found;
}

void ofs_bulk_drop(struct ofs_bulk *b, uint64_t token, int to)
{
	uint64_t len;
	int i = ofs_bulk_take_stage(b, token, to, &len);

	if (i != -1)
		ofs_bulk_free_stage(b, (uint32_t)i);
}

static int fill(struct ofs_manifest *s, uint32_t i, uint32_t file, uint64_t off,
    uint64_t len, struct optimfs_error *err)
{
	struct ofs_segment seg = {
		.object = file, .src = off, .len = len, .n = 1
	};
	struct ofs_bulk *b = s->world->bulk;

	if (ofs_transport_fetch(s->transport, &seg, 1, b->ops->stage(b->gpu, i),
		err) == -1) {
		ofs_bulk_free_stage(b, i);
		return -1;
	}
	pthread_mutex_lock(&b->lock);
	b->stage[i].going = false;
	b->stage[i].since = ofs_clock_ms();
	pthread_mutex_unlock(&b->lock);
	return 0;
}

static int answer_stage(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_manifest *s = q->manifest;
	struct ofs_cursor *c = &q->c;
	struct ofs_bulk *b = s->world->bulk;
	uint32_t file = ofs_cursor_le32(c);
	uint64_t off = ofs_cursor_le64(c), len = ofs_cursor_le64(c), token;
	int i;

	if (c->bad || ofs_cursor_left(c) != 0 || q->want != 8 || len == 0 ||
	    len > OFS_GPU_BLOCK || file >= s->files->nobjects)
		return malformed(err);
	if (not_here(b, err) == -1)
		return -1;
	i = get_stage(b, q->from, len, &token, err);
	if (i == -1 || fill(s, (uint32_t)i, file, off, len, err) == -1)
		return -1;
	ofs_put_le64(q->out, token);
	return 0;
}

/* Turns. */

int ofs_bulk_draw(struct ofs_bulk *b, int from, const int *owner, uint32_t n,
    uint64_t *turns, struct optimfs_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (owner[i] < 0 || owner[i] >= b->world->size ||
		    owner[i] == from)
			return malformed(err);
	pthread_mutex_lock(&b->lock);
	turns[0] = b->turn[from]++;
	for (uint32_t i = 0; i < n; i++)
		turns[i + 1] = b->turn[owner[i]]++;
	pthread_mutex_unlock(&b->lock);
	return 0;
}

static int answer_turn(struct ofs_request *q, struct optimfs_error *err)
{
	const struct optimfs_group *w = q->group;
	struct ofs_cursor *c = &q->c;
	uint64_t turns[ROUND_BLOCKS + 1];
	int owner[ROUND_BLOCKS];
	uint32_t n = ofs_cursor_le32(c);

	if (n > ROUND_BLOCKS || q->want != (n + 1) * UINT64_C(8) ||
	    w->rank != 0)
		return malformed(err);
	for (uint32_t i = 0; i < n; i++)
		owner[i] = (int)ofs_cursor_le32(c);
	if (c->bad || ofs_cursor_left(c) != 0)
		return malformed(err);
	if (not_here(w->bulk, err) == -1 ||
	    ofs_bulk_draw(w->bulk, q->from, owner, n, turns, err) == -1)
		return -1;
	for (uint32_t i = 0; i <= n; i++)
		ofs_put_le64(q->out + 8 * i, turns[i]);
	return 0;
}

/* Sending. */

struct sending {
	struct ofs_gpu_work work;
	struct ofs_bulk *bulk;
	struct ofs_gpu_give give[ROUND_BLOCKS];
};

static void sent(struct ofs_gpu_work *work)
{
	struct sending *s = work->ctx;

	for (uint32_t i = 0; i < work->ngives; i++) {
		ofs_bulk_free_stage(s->bulk, s->give[i].stage);
		if (work->err.code == 0)
			atomic_fetch_add(&s->bulk->sent, s->give[i].len);
	}
	if (work->err.code != 0)
		ofs_bulk_lost(s->bulk, &work->err);
	free(s);
}

static bool add(struct sending *s, uint64_t token, int to)
{
	struct ofs_gpu_give *g = &s->give[s->work.ngives];
	int i = ofs_bulk_take_stage(s->bulk, token, to, &g->len);

	if (i == -1)
		return false;
	g->to = to;
	g->stage = (uint32_t)i;
	s->work.ngives++;
	return true;
}

/* What was promised is sent, or the connection is given up: the rank that asked
 * waits for it. */
static int send(struct ofs_bulk *b, int to, uint64_t turn,
    const uint64_t *token, uint32_t n, struct optimfs_error *err)
{
	struct sending *s = calloc(1, sizeof(*s));
	uint32_t i = 0;

	if (s != NULL) {
		s->bulk = b;
		s->work = (struct ofs_gpu_work){
			.turn = turn, .give = s->give, .done = sent, .ctx = s
		};
		while (i < n && add(s, token[i], to))
			i++;
	}
	if (s != NULL && i == n) {
		b->ops->submit(b->gpu, &s->work);
		return 0;
	}
	optimfs_fail(err, ENOTCONN,
	    "OFS901 NCCL: what rank %d waits for is not here any more", to);
	ofs_bulk_hang_up(b, err);
	for (i = 0; s != NULL && i < s->work.ngives; i++)
		ofs_bulk_free_stage(b, s->give[i].stage);
	free(s);
	return -1;
}

static int answer_give(struct ofs_request *q, struct optimfs_error *err)
{
	const struct optimfs_group *w = q->group;
	struct ofs_cursor *c = &q->c;
	uint64_t turn = ofs_cursor_le64(c), token[ROUND_BLOCKS];
	uint32_t n = ofs_cursor_le32(c);

	if (n == 0 || n > ROUND_BLOCKS)
		return malformed(err);
	for (uint32_t i = 0; i < n; i++)
		token[i] = ofs_cursor_le64(c);
	if (c->bad || ofs_cursor_left(c) != 0)
		return malformed(err);
	if (turn != OFS_NO_TURN && not_here(w->bulk, err) == 0)
		return send(w->bulk, q->from, turn, token, n, err);
	for (uint32_t i = 0; i < n && w->bulk != NULL; i++)
		ofs_bulk_drop(w->bulk, token[i], q->from);
	return turn == OFS_NO_TURN ? 0 : -1;
}

static const struct ofs_handler handlers[] = {
	{ OFS_WIRE_STAGE, answer_stage, true },
	{ OFS_WIRE_TURN, answer_turn, false },
	{ OFS_WIRE_GIVE, answer_give, false },
};

const struct ofs_group_service ofs_gpu_service = {
	.handler = handlers,
	.nhandlers = sizeof(handlers) / sizeof(*handlers),
};
