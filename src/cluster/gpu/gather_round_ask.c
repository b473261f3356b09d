/* gather_round_ask.c - requests to other ranks before a transfer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/memory.h"
#include "cluster/gpu/gather_round.h"
#include "cluster/wire.h"

int ofs_round_stage(struct ofs_round *r)
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

int ofs_round_draw(struct ofs_round *r, const int *owner, uint32_t n,
    uint64_t *sequence)
{
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

int ofs_round_tell(struct ofs_round *r, const int *owner, uint32_t n,
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

uint32_t ofs_round_owners(const struct ofs_round *r, int *owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->nwants; i++) {
		const struct ofs_want *w = &r->want[i];

		if (!w->hit && w->owner->rank != r->s->group->rank)
			n = add_owner(owner, n, w->owner->rank);
	}
	return n;
}

void ofs_round_drop(struct ofs_round *r)
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
	ofs_round_tell(r, owner, n, NULL);
	r->err = first;
}
