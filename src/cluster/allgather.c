/* allgather.c - exchange bytes among all ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/allgather.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cluster/mail.h"
#include "cluster/wire.h"

/* A letter is the error of the allgather, after code 0 with contributions: rank
 * (4), error, length (8) and bytes of each. */

/* Something has failed; news is the first failure (code 0: none). The rank (-1:
 * none) is lost if it has died or is silent. */
static void take_news(struct optimfs_group *w, struct optimfs_error *news,
    int rank, const struct optimfs_error *err)
{
	if (rank != -1)
		ofs_group_set_lost(w, rank, err);
	if (news->code == 0)
		*news = *err;
}

int ofs_allgather_size(const struct optimfs_group *w)
{
	return w->together ? w->machine[w->nmachines] : w->size;
}

/* The rank at a place of the tree; -1: none. */
static int rank_at(const struct optimfs_group *w, int place)
{
	if (place >= ofs_allgather_size(w))
		return -1;
	return w->together ? w->reader[place] : place;
}

void ofs_allgather_beside(const struct optimfs_group *w, int beside[3])
{
	int place = w->together ? 0 : w->rank, n = ofs_allgather_size(w);

	while (place < n && rank_at(w, place) != w->rank)
		place++;
	beside[0] = place == 0 || place == n ? -1 : rank_at(w, (place - 1) / 2);
	beside[1] = rank_at(w, 2 * place + 1);
	beside[2] = rank_at(w, 2 * place + 2);
}

static void put_own(const struct optimfs_group *w,
    const struct ofs_allgather *a, struct ofs_buf *b)
{
	static const struct optimfs_error well;
	static const struct ofs_buf nothing;
	const struct ofs_buf *mine = a->mine == NULL ? &nothing : a->mine;

	ofs_wire_u32(b, (uint32_t)w->rank);
	ofs_wire_error(b, a->own == NULL ? &well : a->own);
	ofs_wire_u64(b, mine->len);
	ofs_buf_put(b, mine->data, mine->len);
	b->bad |= mine->bad;
}

static int send_all(struct optimfs_group *w, int to, uint64_t tag,
    const struct optimfs_error *news, const struct ofs_buf *all,
    struct optimfs_error *err)
{
	struct ofs_buf letter = { 0 };
	int ret;

	if (ofs_group_is_lost(w, to, err))
		return -1;
	ofs_wire_error(&letter, news);
	if (news->code == 0)
		ofs_buf_put(&letter, all->data, all->len);
	ret = ofs_mail_send(w, to, tag, &letter, err);
	ofs_buf_fini(&letter);
	return ret;
}

/* Adds the contents of a letter to all, or to the news. */
static void take_letter(struct optimfs_group *w, struct ofs_awaited *a,
    struct optimfs_error *news, struct ofs_buf *all)
{
	struct ofs_cursor c = ofs_cursor_of(a->letter.data, a->letter.len);
	struct optimfs_error err;

	if (a->err.code != 0)
		take_news(w, news, a->from, &a->err);
	if (a->letter.len == 0)
		return; /* none has come, or before */
	ofs_wire_take_error(&c, &err);
	if (c.bad)
		ofs_wire_malformed(&err);
	if (err.code == 0)
		ofs_buf_put(all, c.p, ofs_cursor_left(&c));
	else
		take_news(w, news, -1, &err);
	ofs_buf_fini(&a->letter);
}

/* From n ranks at once. */
static void receive_all(struct optimfs_group *w, struct ofs_awaited *a,
    size_t n, const struct ofs_tick *tick, struct optimfs_error *news,
    struct ofs_buf *all)
{
	ofs_mail_await(w, a, n, true, tick);
	for (size_t i = 0; i < n; i++)
		take_letter(w, &a[i], news, all);
}

/* The children may die while this rank waits for its parent. */
static void receive_down(struct optimfs_group *w, struct ofs_awaited *a,
    size_t nchildren, const struct ofs_tick *tick, struct optimfs_error *news,
    struct ofs_buf *all)
{
	size_t n = news->code == 0 ? nchildren : 0;

	all->len = 0;
	receive_all(w, a + nchildren - n, n + 1, tick, news, all);
}

/* Is the error of this rank to be told rather than what was found so far? */
static bool comes_first(const struct ofs_allgather *a, int rank,
    const struct optimfs_error *e)
{
	bool own = e->code != ECANCELED, was = a->why.code != ECANCELED;

	return e->code != 0 &&
	    (a->failed == -1 || (own == was ? rank < a->failed : own));
}

/* Finds the contribution of each rank, which must occur once. */
static int split(const struct optimfs_group *w, struct ofs_allgather *a,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(a->bytes.data, a->bytes.len);
	int n = 0;

	a->failed = -1;
	a->of = calloc((size_t)w->size, sizeof(*a->of));
	if (a->of == NULL)
		return ofs_no_memory(err);
	for (; n < w->size && ofs_cursor_left(&c) > 0; n++) {
		uint32_t rank = ofs_cursor_le32(&c);
		struct optimfs_error its;
		const uint8_t *p;
		uint64_t len;

		ofs_wire_take_error(&c, &its);
		len = ofs_cursor_le64(&c);
		p = ofs_cursor_take(&c, len);
		if (c.bad || rank >= (uint32_t)w->size || a->of[rank].p != NULL)
			return ofs_wire_malformed(err);
		a->of[rank] = ofs_cursor_of(p, len);
		if (comes_first(a, (int)rank, &its)) {
			a->failed = (int)rank;
			a->why = its;
		}
	}
	return n == ofs_allgather_size(w) && ofs_cursor_left(&c) == 0
	    ? 0
	    : ofs_wire_malformed(err);
}

int ofs_allgather(struct optimfs_group *w, struct ofs_allgather *a,
    struct optimfs_error *err)
{
	uint32_t id = ++w->gathers;
	uint64_t up = ofs_mail_tag(OFS_MAIL_UP, id);
	uint64_t down = ofs_mail_tag(OFS_MAIL_DOWN, id);
	struct ofs_awaited from[3] = { 0 };
	struct ofs_buf all = { 0 };
	struct optimfs_error news = { 0 }, own;
	size_t n = 0;
	int beside[3];

	ofs_allgather_beside(w, beside);
	for (int i = 1; i <= 2; i++)
		if (beside[i] != -1)
			from[n++] = (struct ofs_awaited){ .from = beside[i],
				.tag = up };
	from[n] = (struct ofs_awaited){ .from = beside[0], .tag = down };
	put_own(w, a, &all);
	receive_all(w, from, n, &a->tick, &news, &all);
	if (all.bad && ofs_no_memory(&own) == -1)
		take_news(w, &news, -1, &own);
	if (beside[0] != -1) {
		if (send_all(w, beside[0], up, &news, &all, &own) == -1)
			take_news(w, &news, beside[0], &own);
		else
			receive_down(w, from, n, &a->tick, &news, &all);
		if (all.bad && ofs_no_memory(&own) == -1)
			take_news(w, &news, -1, &own);
	}
	for (size_t i = 0; i < n; i++)
		(void)send_all(w, from[i].from, down, &news, &all, NULL);
	a->bytes = all;
	if (news.code != 0)
		return optimfs_fail_with(err, &news);
	return split(w, a, err);
}

void ofs_allgather_fini(struct ofs_allgather *a)
{
	free(a->of);
	ofs_buf_fini(&a->bytes);
	a->of = NULL;
}

int ofs_allgather_verdict(const struct optimfs_group *w,
    const struct ofs_allgather *a, bool name_rank, struct optimfs_error *err)
{
	if (a->failed == -1)
		return 0;
	optimfs_fail_with(err, &a->why);
	return name_rank ? ofs_group_error_in(w, a->failed, err) : -1;
}

int ofs_group_vote(struct optimfs_group *w, const struct optimfs_error *own,
    bool name_rank, struct optimfs_error *err)
{
	struct ofs_allgather a = { .own = own };
	int ret = ofs_allgather(w, &a, err);

	if (ret == 0)
		ret = ofs_allgather_verdict(w, &a, name_rank, err);
	ofs_allgather_fini(&a);
	return ret;
}
