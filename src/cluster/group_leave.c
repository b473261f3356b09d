/* group_leave.c - a rank leaves its job when all are done */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cluster/allgather.h"
#include "cluster/call.h"
#include "cluster/group_impl.h"
#include "cluster/manifest.h"

/* Interval at which a waiting rank checks whether others have died. */
#define LOOK_NS (100 * 1000 * 1000)
/* When ranks that wait for the end first ask whether others are there, in ms. Then
 * they do so less and less often: a rank that is asked polls more often for a
 * second. */
enum { WATCH_MS = 1000, WATCH_MAX_MS = 8000 };

int ofs_group_answer_over(struct ofs_request *q, struct optimfs_error *err)
{
	struct optimfs_group *w = q->group;
	bool lost = ofs_cursor_u8(&q->c) != 0;

	(void)err;
	pthread_mutex_lock(&w->lock);
	w->over = true;
	w->lost |= lost;
	/* the others do not wait for this rank */
	for (int r = 0; r < w->size && lost; r++)
		if (r != w->rank)
			w->ops->forget(w->w, r);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/* Is rank still reading? The lock is held. */
static bool awaited(const struct optimfs_group *w, const bool *worker, int rank)
{
	return worker[rank] && !w->done[rank] && !ofs_group_is_gone(w, rank);
}

/* The rank that knows who is done, and tells all when everybody is: the lowest
 * that is not lost. If a machine is, none of its ranks is asked. The lock is
 * held. */
static int find_keeper(const struct optimfs_group *w)
{
	int r = 0;

	while (r != w->rank && ofs_group_is_gone(w, r))
		r++;
	return r;
}

/* May this rank leave? The lock is held. */
static bool is_over(const struct optimfs_group *w, const bool *worker)
{
	if (w->over || find_keeper(w) != w->rank)
		return w->over;
	for (int r = 0; r < w->size; r++)
		if (awaited(w, worker, r))
			return false;
	return true;
}

/* The lowest rank on a machine above another one that is not lost; -1: none. The
 * lock is held. */
static int find_next(const struct optimfs_group *w, int machine, int above)
{
	for (int r = above + 1; r < w->size; r++)
		if (w->ops->node(w->w, r) == machine &&
		    !ofs_group_is_gone(w, r))
			return r;
	return -1;
}

/* The ranks that this one watches: the first of a machine all of the next machine,
 * the second the first. So each is watched, and all of a machine at once, since
 * only ranks on one machine notice each other's death. The lock is held. */
static size_t find_watched(const struct optimfs_group *w, struct ofs_ask *ask)
{
	static const uint8_t ping = OFS_WIRE_PING;
	int own = w->ops->node(w->w, w->rank), machine = own;
	int first = find_next(w, own, -1), second = find_next(w, own, first);
	size_t n = 0;

	do
		machine = (machine + 1) % w->size;
	while (machine != own && find_next(w, machine, -1) == -1);
	for (int r = 0; r < w->size; r++)
		if (r != w->rank && !ofs_group_is_gone(w, r) &&
		    (first == w->rank ? w->ops->node(w->w, r) == machine
				      : second == w->rank && r == first))
			ask[n++] = (struct ofs_ask){
				.to = r, .request = &ping, .nrequest = 1
			};
	return n;
}

/* Is any rank lost? Then more may be. */
static bool any_lost(struct optimfs_group *w)
{
	bool lost;

	pthread_mutex_lock(&w->lock);
	lost = w->lost;
	pthread_mutex_unlock(&w->lock);
	return lost;
}

static const uint8_t done_request = OFS_WIRE_DONE;

/* Also asks the keeper, if that is another rank, to note that this one has been a
 * worker, and is done. False: no memory. */
static bool watch(struct optimfs_group *w, const bool *worker, int keeper)
{
	struct ofs_ask *ask = calloc((size_t)w->size, sizeof(*ask));
	size_t n;

	if (ask == NULL)
		return false;
	pthread_mutex_lock(&w->lock);
	n = find_watched(w, ask);
	pthread_mutex_unlock(&w->lock);
	if (keeper != w->rank && worker[w->rank])
		ask[n++] = (struct ofs_ask){
			.to = keeper, .request = &done_request, .nrequest = 1
		};
	ofs_group_ask_any(w, ask, n);
	free(ask);
	return true;
}

/* Sends DONE to a rank (-1: none), once, if this one has been a worker. told is by
 * rank. */
static void tell_done(struct optimfs_group *w, const bool *worker, bool *told,
    int rank)
{
	if (rank == -1 || rank == w->rank || !worker[w->rank] || told[rank])
		return;
	told[rank] = true;
	ofs_group_post_to(w, rank, &done_request, 1);
}

/* Returns whether a rank is lost. */
static bool wait_for_all(struct optimfs_group *w, const bool *worker,
    bool *told)
{
	uint8_t over[2] = { OFS_WIRE_OVER };
	int64_t asked = ofs_clock_ms(), interval = WATCH_MS;
	int next,
	    sure = -1; /* the keeper that surely knows that this one is done */
	bool lost;

	pthread_mutex_lock(&w->lock);
	while (!is_over(w, worker)) {
		next = find_keeper(w);
		pthread_mutex_unlock(&w->lock);
		tell_done(w, worker, told, next);
		ofs_group_tell_dead(w);
		if (w->timeout != 0 && ofs_clock_ms() - asked >= interval) {
			/* Nobody knows whether a post has arrived: so the
			 * keeper is asked as well, once. Then it knows, or
			 * is lost. */
			if (watch(w, worker, next == sure ? w->rank : next))
				sure = next;
			asked = ofs_clock_ms();
			if (any_lost(w))
				interval = WATCH_MS;
			else if (interval < WATCH_MAX_MS)
				interval *= 2;
		}
		pthread_mutex_lock(&w->lock);
		if (!is_over(w, worker))
			ofs_clock_wait(&w->changed, &w->lock, LOOK_NS);
	}
	for (int r = 0; r < w->size; r++)
		w->lost |= w->ops->dead(w->w, r);
	lost = w->lost;
	next = w->over ? -1 : find_keeper(w);
	w->over = true;
	pthread_mutex_unlock(&w->lock);
	over[1] = lost;
	if (next == w->rank)
		ofs_group_post(w, over, sizeof(over));
	return lost;
}

/* Data attached by services may refer to manifests, so it is freed first. */
static void forget(const struct optimfs_group *w, struct ofs_manifest *s)
{
	struct ofs_manifest *older = s->older;

	for (size_t i = 0; w->services[i] != NULL; i++)
		if (w->services[i]->detach != NULL)
			w->services[i]->detach(s->offered);
	ofs_manifest_let(s);
	ofs_manifest_let(older);
}

void optimfs_group_leave(struct optimfs_group *w, const bool *worker)
{
	bool *told, lost;
	int beside[3];

	if (w == NULL)
		return;
	told = calloc((size_t)w->size, sizeof(*told));
	ofs_group_set_done(w, w->rank);
	/* those that may wait for a letter of this one: allgather.h */
	ofs_allgather_beside(w, beside);
	for (int i = 0; i < 3 && told != NULL; i++)
		tell_done(w, worker, told, beside[i]);
	lost = told == NULL || wait_for_all(w, worker, told);
	ofs_group_end_posts(w, lost);
	free(told);
	if (w->gather != NULL)
		w->gather->stop(w);
	ofs_calls_stop(w->calls);
	w->ops->leave(w->w, !lost);
	/* requests are no longer answered */
	if (w->gather != NULL)
		w->gather->free(w);
	for (uint32_t i = 0; i < w->nmanifests; i++)
		forget(w, w->manifest[i]);
	ofs_group_free(w);
}
