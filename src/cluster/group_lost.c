/* group_lost.c - ranks that have died, or do not answer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/group_impl.h"

/* The lock is held. */
bool ofs_group_is_gone(const struct optimfs_group *w, int rank)
{
	return w->ops->dead(w->w, rank) || w->gone[rank];
}

bool ofs_group_is_lost(struct optimfs_group *w, int rank,
    struct optimfs_error *err)
{
	bool dead = w->ops->dead(w->w, rank), gone;

	pthread_mutex_lock(&w->lock);
	gone = w->gone[rank];
	if (gone && !dead)
		optimfs_fail_with(err, &w->why);
	pthread_mutex_unlock(&w->lock);
	if (dead) {
		optimfs_fail(err, EHOSTDOWN, "OFS911 it has died");
		ofs_group_error_in(w, rank, err);
	}
	return gone || dead;
}

bool ofs_group_says_lost(const struct optimfs_error *why)
{
	return why->code == EHOSTDOWN || why->code == ETIMEDOUT;
}

/* To all that are not lost, and at the end to these, too: they may come back. */
size_t ofs_group_address(struct optimfs_group *w, struct ofs_ask *ask,
    const void *request, size_t len)
{
	size_t n = 0;

	pthread_mutex_lock(&w->lock);
	for (int r = 0; r < w->size; r++)
		if (r != w->rank && (w->over || !ofs_group_is_gone(w, r)))
			ask[n++] = (struct ofs_ask){
				.to = r, .request = request, .nrequest = len
			};
	pthread_mutex_unlock(&w->lock);
	return n;
}

/* Notes that ranks are lost; false: that was known. The lock is held. */
static bool set_gone(struct optimfs_group *w, const int *rank, size_t n,
    const struct optimfs_error *why)
{
	bool news = false;

	for (size_t i = 0; i < n; i++) {
		if (w->gone[rank[i]] || rank[i] == w->rank)
			continue;
		if (w->why.code == 0)
			w->why = *why;
		news = w->lost = w->gone[rank[i]] = true;
		w->ops->forget(w->w, rank[i]);
	}
	pthread_cond_broadcast(&w->changed);
	return news;
}

static void lose(struct optimfs_group *w, const int *rank, size_t n,
    const struct optimfs_error *why);

/* Asks ranks; those that do not answer are lost. */
void ofs_group_ask_any(struct optimfs_group *w, struct ofs_ask *ask, size_t n)
{
	int *lost = calloc(n + 1, sizeof(*lost));
	struct optimfs_error why = { 0 };
	size_t nlost = 0;

	w->ops->ask(w->w, ask, n);
	for (size_t i = 0; i < n && lost != NULL; i++)
		if (ofs_group_says_lost(&ask[i].err)) {
			why = ask[i].err;
			ofs_group_error_in(w, ask[i].to, &why);
			lost[nlost++] = ask[i].to;
		}
	w->ops->release(w->w, ask, n);
	if (nlost > 0)
		lose(w, lost, nlost, &why);
	free(lost);
}

/* Notes that ranks are lost, and tells the others, so that each loss costs one
 * timeout, and not one for each rank that notices. Nobody is told at the end. */
static void lose(struct optimfs_group *w, const int *rank, size_t n,
    const struct optimfs_error *why)
{
	struct ofs_ask *ask = calloc((size_t)w->size, sizeof(*ask));
	struct ofs_buf b = { 0 };
	bool news;

	pthread_mutex_lock(&w->lock);
	news = set_gone(w, rank, n, why) && !w->over;
	pthread_mutex_unlock(&w->lock);
	ofs_wire_u8(&b, OFS_WIRE_LOST);
	ofs_wire_error(&b, why);
	for (size_t i = 0; i < n; i++)
		ofs_wire_u32(&b, (uint32_t)rank[i]);
	if (news && !b.bad && ask != NULL)
		ofs_group_ask_any(w, ask,
		    ofs_group_address(w, ask, b.data, b.len));
	ofs_buf_fini(&b);
	free(ask);
}

void ofs_group_set_lost(struct optimfs_group *w, int rank,
    const struct optimfs_error *why)
{
	int machine = w->ops->node(w->w, rank), *lost;
	size_t n = 0;

	if (!ofs_group_says_lost(why))
		return;
	/* of those on its own machine this rank would know */
	lost = why->code != ETIMEDOUT || machine == w->ops->node(w->w, w->rank)
	    ? NULL
	    : calloc((size_t)w->size, sizeof(*lost));
	for (int r = 0; lost != NULL && r < w->size; r++)
		if (w->ops->node(w->w, r) == machine)
			lost[n++] = r;
	lose(w, lost == NULL ? &rank : lost, lost == NULL ? 1 : n, why);
	free(lost);
}

void ofs_group_tell_dead(struct optimfs_group *w)
{
	struct optimfs_error why;
	bool gone;

	for (int r = 0; r < w->size; r++) {
		if (!w->ops->dead(w->w, r))
			continue;
		pthread_mutex_lock(&w->lock);
		gone = w->gone[r];
		pthread_mutex_unlock(&w->lock);
		if (!gone && ofs_group_is_lost(w, r, &why))
			lose(w, &r, 1, &why);
	}
}

int ofs_group_answer_lost(struct ofs_request *q, struct optimfs_error *err)
{
	struct optimfs_group *w = q->group;
	struct optimfs_error why;

	ofs_wire_take_error(&q->c, &why);
	q->c.bad |= why.code == 0;
	pthread_mutex_lock(&w->lock);
	while (!q->c.bad && ofs_cursor_left(&q->c) > 0) {
		int rank = (int)ofs_cursor_le32(&q->c);

		q->c.bad |= rank < 0 || rank >= w->size;
		if (!q->c.bad)
			(void)set_gone(w, &rank, 1, &why);
	}
	pthread_mutex_unlock(&w->lock);
	return q->c.bad ? ofs_wire_malformed(err) : 0;
}
