/* gather_answer.c - answer requests of gathering ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cluster/gpu/gather_impl.h"
#include "cluster/wire.h"

/* A rank that has not requested its bytes for this time never will. */
#define LEASE_MS (60 * 1000)

/* Missing: the requesting rank uses the other transport. */
static int not_here(const struct ofs_gpu_gather *b, struct optimfs_error *err)
{
	if (b != NULL && ofs_gpu_gather_is_on(b))
		return 0;
	return optimfs_fail(err, ENOTCONN,
	    "OFS901 NCCL: this rank is not connected");
}

/* Stages. */

static bool abandoned(const struct ofs_gpu_gather *b, const struct stage *s)
{
	const struct optimfs_group *w = b->group;

	return !s->going &&
	    (ofs_clock_ms() - s->since > LEASE_MS || w->ops->dead(w->w, s->to));
}

/* Counts as going while it is filled, so that it is not taken for an abandoned
 * one. */
static int get_stage(struct ofs_gpu_gather *b, int to, uint64_t len,
    uint64_t *token, struct optimfs_error *err)
{
	int found = -1;

	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < OFS_GPU_STAGES && found == -1; i++)
		if (b->stage[i].token == 0 || abandoned(b, &b->stage[i]))
			found = i;
	if (found != -1) {
		*token = ++b->token * OFS_GPU_STAGES + (uint64_t)found;
		b->stage[found] = (struct stage){
			.token = *token, .len = len, .to = to, .going = true
		};
	}
	pthread_mutex_unlock(&b->lock);
	if (found == -1)
		optimfs_fail(err, EBUSY, "no memory to send from is free");
	return found;
}

void ofs_gpu_gather_free_stage(struct ofs_gpu_gather *b, uint32_t i)
{
	pthread_mutex_lock(&b->lock);
	b->stage[i] = (struct stage){ 0 };
	pthread_mutex_unlock(&b->lock);
}

int ofs_gpu_gather_take_stage(struct ofs_gpu_gather *b, uint64_t token, int to,
    uint64_t *len)
{
	uint32_t i = token % OFS_GPU_STAGES;
	struct stage *s = &b->stage[i];
	bool found;

	pthread_mutex_lock(&b->lock);
	found = token != 0 && s->token == token && s->to == to && !s->going;
	if (found) {
		s->going = true;
		*len = s->len;
	}
	pthread_mutex_unlock(&b->lock);
	return found ? (int)i : -1;
}

void ofs_gpu_gather_drop(struct ofs_gpu_gather *b, uint64_t token, int to)
{
	uint64_t len;
	int i = ofs_gpu_gather_take_stage(b, token, to, &len);

	if (i != -1)
		ofs_gpu_gather_free_stage(b, (uint32_t)i);
}

static int fill(struct ofs_manifest *s, uint32_t i, uint32_t file, uint64_t off,
    uint64_t len, struct optimfs_error *err)
{
	struct ofs_segment seg = {
		.object = file, .src = off, .len = len, .n = 1
	};
	struct ofs_gpu_gather *b = s->group->gpu_gather;

	if (ofs_transport_fetch(s->transport, &seg, 1, b->ops->stage(b->gpu, i),
		err) == -1) {
		ofs_gpu_gather_free_stage(b, i);
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
	struct ofs_gpu_gather *b = s->group->gpu_gather;
	uint32_t file = ofs_cursor_le32(c);
	uint64_t off = ofs_cursor_le64(c), len = ofs_cursor_le64(c), token;
	int i;

	if (c->bad || ofs_cursor_left(c) != 0 || q->want != 8 || len == 0 ||
	    len > OFS_GPU_BLOCK || file >= s->files->nobjects)
		return ofs_wire_malformed(err);
	if (not_here(b, err) == -1)
		return -1;
	i = get_stage(b, q->from, len, &token, err);
	if (i == -1 || fill(s, (uint32_t)i, file, off, len, err) == -1)
		return -1;
	ofs_put_le(q->out, token, 8);
	return 0;
}

/* Sequence numbers. */

/* Does the connection have this rank? The lock is held. */
static bool is_connected(const struct ofs_gpu_gather *b, int rank)
{
	return ofs_gpu_gather_is_on(b) &&
	    OFS_CONNECTION_OF(b->sequence[rank]) == atomic_load(&b->connection);
}

int ofs_gpu_gather_draw(struct ofs_gpu_gather *b, int from, const int *owner,
    uint32_t n, uint64_t *sequence, struct optimfs_error *err)
{
	bool all;

	for (uint32_t i = 0; i < n; i++)
		if (owner[i] < 0 || owner[i] >= b->group->size ||
		    owner[i] == from)
			return ofs_wire_malformed(err);
	pthread_mutex_lock(&b->lock);
	all = is_connected(b, from);
	for (uint32_t i = 0; i < n; i++)
		all &= is_connected(b, owner[i]);
	if (all)
		sequence[0] = b->sequence[from]++;
	for (uint32_t i = 0; i < n && all; i++)
		sequence[i + 1] = b->sequence[owner[i]]++;
	pthread_mutex_unlock(&b->lock);
	return all ? 0
		   : optimfs_fail(err, ENOTCONN,
			 "OFS901 NCCL: not all ranks are connected");
}

static int answer_sequence(struct ofs_request *q, struct optimfs_error *err)
{
	const struct optimfs_group *w = q->group;
	struct ofs_cursor *c = &q->c;
	uint64_t sequence[ROUND_BLOCKS + 1];
	int owner[ROUND_BLOCKS];
	uint32_t n = ofs_cursor_le32(c);

	if (n > ROUND_BLOCKS || q->want != (n + 1) * UINT64_C(8) ||
	    w->rank != 0)
		return ofs_wire_malformed(err);
	for (uint32_t i = 0; i < n; i++)
		owner[i] = (int)ofs_cursor_le32(c);
	if (c->bad || ofs_cursor_left(c) != 0)
		return ofs_wire_malformed(err);
	if (not_here(w->gpu_gather, err) == -1 ||
	    ofs_gpu_gather_draw(w->gpu_gather, q->from, owner, n, sequence,
		err) == -1)
		return -1;
	for (uint32_t i = 0; i <= n; i++)
		ofs_put_le(q->out + 8 * i, sequence[i], 8);
	return 0;
}

/* Sending. */

struct sending {
	struct ofs_gpu_work work;
	struct ofs_gpu_gather *gather;
	struct ofs_gpu_send send[ROUND_BLOCKS];
};

static void sent(struct ofs_gpu_work *work)
{
	struct sending *s = work->ctx;

	for (uint32_t i = 0; i < work->nsends; i++) {
		ofs_gpu_gather_free_stage(s->gather, s->send[i].stage);
		if (work->err.code == 0)
			atomic_fetch_add(&s->gather->sent, s->send[i].len);
	}
	if (work->err.code != 0)
		ofs_gpu_gather_lost(s->gather,
		    OFS_CONNECTION_OF(work->sequence), &work->err);
	free(s);
}

static bool add(struct sending *s, uint64_t token, int to)
{
	struct ofs_gpu_send *g = &s->send[s->work.nsends];
	int i = ofs_gpu_gather_take_stage(s->gather, token, to, &g->len);

	if (i == -1)
		return false;
	g->to = to;
	g->stage = (uint32_t)i;
	s->work.nsends++;
	return true;
}

/* Sends what was promised, or gives up the connection: the other rank waits for
 * it. */
static int send(struct ofs_gpu_gather *b, int to, uint64_t sequence,
    const uint64_t *token, uint32_t n, struct optimfs_error *err)
{
	struct sending *s = calloc(1, sizeof(*s));
	uint32_t i = 0;

	if (s != NULL) {
		s->gather = b;
		s->work = (struct ofs_gpu_work){ .sequence = sequence,
			.send = s->send,
			.done = sent,
			.ctx = s };
		while (i < n && add(s, token[i], to))
			i++;
	}
	if (s != NULL && i == n) {
		b->ops->submit(b->gpu, &s->work);
		return 0;
	}
	optimfs_fail(err, ENOTCONN,
	    "OFS901 NCCL: the data for rank %d is no longer here", to);
	ofs_gpu_gather_hang_up(b, OFS_CONNECTION_OF(sequence), err);
	for (i = 0; s != NULL && i < s->work.nsends; i++)
		ofs_gpu_gather_free_stage(b, s->send[i].stage);
	free(s);
	return -1;
}

static int answer_send(struct ofs_request *q, struct optimfs_error *err)
{
	const struct optimfs_group *w = q->group;
	struct ofs_cursor *c = &q->c;
	uint64_t sequence = ofs_cursor_le64(c), token[ROUND_BLOCKS];
	uint32_t n = ofs_cursor_le32(c);

	if (n == 0 || n > ROUND_BLOCKS)
		return ofs_wire_malformed(err);
	for (uint32_t i = 0; i < n; i++)
		token[i] = ofs_cursor_le64(c);
	if (c->bad || ofs_cursor_left(c) != 0)
		return ofs_wire_malformed(err);
	if (sequence != OFS_NO_SEQUENCE && not_here(w->gpu_gather, err) == 0)
		return send(w->gpu_gather, q->from, sequence, token, n, err);
	for (uint32_t i = 0; i < n && w->gpu_gather != NULL; i++)
		ofs_gpu_gather_drop(w->gpu_gather, token[i], q->from);
	return sequence == OFS_NO_SEQUENCE ? 0 : -1;
}

static const struct ofs_handler handlers[] = {
	{ OFS_WIRE_STAGE, answer_stage, true },
	{ OFS_WIRE_SEQUENCE, answer_sequence, false },
	{ OFS_WIRE_SEND, answer_send, false },
	{ OFS_WIRE_CONNECT, ofs_gpu_gather_answer_connect, false },
	{ OFS_WIRE_HANG_UP, ofs_gpu_gather_answer_hang_up, false },
};

const struct ofs_group_service ofs_gpu_service = {
	.handler = handlers,
	.nhandlers = sizeof(handlers) / sizeof(*handlers),
};
