/* renew_follow.c - a rank that does not write follows a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs.h"
#include "keeper.h"
#include "renew_impl.h"

/* How often who waits looks whether rank 0 is still there, and how long it has
 * for the others, in units of timeout=: some may look through slow disks. */
#define LOOK_NS (100 * 1000 * 1000)
enum { PATIENCE = 20 };

static int malformed(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request that makes no sense: are all ranks of one "
	    "version?");
}

struct ofs_renewal *ofs_renewal_new(struct optimfs_world *w,
    struct ofs_share *share, struct optimfs_error *err)
{
	struct ofs_renewal *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		optimfs_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	r->world = w;
	r->share = r->read = share;
	pthread_mutex_init(&r->shown, NULL);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	ofs_errand_init(&r->errand);
	return r;
}

/* What was read and is not to be shown. With shown held. */
static void drop_now(struct ofs_renewal *r)
{
	optimfs_close(r->now);
	r->now = NULL;
}

static void let_readers_go(struct ofs_renewal *r)
{
	if (r->alerted && r->fs != NULL)
		ofs_gate_let(r->fs);
	r->alerted = false;
}

/* With the lock. */
static void wait_a_moment(struct ofs_renewal *r)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOOK_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&r->changed, &r->lock, &until);
}

void ofs_renewal_stop(struct ofs_renewal *r)
{
	bool done;

	if (r == NULL)
		return;
	pthread_mutex_lock(&r->lock);
	r->dropped = r->stopped = true;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	for (;;) {
		(void)ofs_errand_poll(&r->errand, &done, NULL);
		if (done)
			break;
		pthread_mutex_lock(&r->lock);
		wait_a_moment(r);
		pthread_mutex_unlock(&r->lock);
	}
}

void ofs_renewal_free(struct ofs_renewal *r)
{
	if (r == NULL)
		return;
	ofs_errand_fini(&r->errand);
	drop_now(r);
	free(r->heard);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	pthread_mutex_destroy(&r->shown);
	free(r);
}

void ofs_renewal_begin(struct ofs_renewal *r)
{
	pthread_mutex_lock(&r->shown);
}

void ofs_renewal_follow(struct ofs_renewal *r, struct optimfs *fs)
{
	r->fs = fs;
	if (fs != NULL)
		fs->renewal = r;
	pthread_mutex_unlock(&r->shown);
}

struct ofs_share *ofs_renewal_share(const struct ofs_renewal *r)
{
	return r->read;
}

void ofs_renewal_leave(struct ofs_renewal *r)
{
	pthread_mutex_lock(&r->shown);
	r->fs = NULL;
	r->alerted = false;
	pthread_mutex_unlock(&r->shown);
}

const char *ofs_renewal_path(const struct ofs_renewal *r)
{
	return r->share->path;
}

struct optimfs_world *ofs_renewal_world(const struct ofs_renewal *r)
{
	return r->world;
}

void ofs_renewal_succeed(struct ofs_renewal *r, struct ofs_share *next)
{
	ofs_keeper_move(r->share, next);
	ofs_world_drop(r->world, r->before);
	r->before = r->share;
	r->share = r->read = next;
}

void ofs_renewal_said(struct ofs_renewal *r, struct ofs_buf *out)
{
	const struct optimfs_world *w = r->world;
	struct optimfs_error why;

	pthread_mutex_lock(&r->lock);
	why = r->why;
	pthread_mutex_unlock(&r->lock);
	ofs_buf_printf(out,
	    "read-only rank 0 (%s) writes; what it commits is seen here\n",
	    w->ops->host(w->w, 0));
	if (why.code != 0)
		ofs_buf_printf(out, "outdated %s\n", why.text);
}

/* What is said and heard. */

int ofs_renewal_take(const struct ofs_renewal *r, const uint8_t *p, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, n);

	for (int i = 0; i < r->world->size; i++) {
		uint64_t len = ofs_cursor_le64(&c);
		const uint8_t *said = ofs_cursor_take(&c, len);

		if (c.bad)
			return malformed(err);
		all[i].p = malloc(len + 1);
		if (all[i].p == NULL)
			return optimfs_fail(err, ENOMEM,
			    "out of memory for lists of files");
		memcpy(all[i].p, said, len);
		all[i].n = len;
	}
	return ofs_cursor_left(&c) == 0 ? 0 : malformed(err);
}

static int64_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* With the lock. */
static int hear_all(struct ofs_renewal *r, struct optimfs_error *err)
{
	const struct optimfs_world *w = r->world;
	int64_t end = now_s() + (int64_t)w->timeout * PATIENCE;

	while (r->total == 0 || r->nheard < r->total) {
		if (r->dropped)
			return optimfs_fail(err, ECANCELED,
			    "dropped by rank 0");
		if (w->ops->dead(w->w, 0))
			return optimfs_fail(err, EHOSTDOWN,
			    "OFS911 rank 0 has died");
		if (w->timeout != 0 && now_s() > end)
			return optimfs_fail(err, ETIMEDOUT,
			    "OFS912 nothing more is heard from rank 0");
		wait_a_moment(r);
	}
	return 0;
}

static int exchange(void *ctx, const void *mine, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err)
{
	struct ofs_renewal *r = ctx;
	int ret;

	pthread_mutex_lock(&r->lock);
	free(r->heard);
	r->heard = NULL;
	r->nheard = r->total = 0;
	r->mine = mine;
	r->nmine = n;
	r->round++;
	r->speaking = true;
	ret = hear_all(r, err);
	r->speaking = false;
	pthread_mutex_unlock(&r->lock);
	return ret == 0 ? ofs_renewal_take(r, r->heard, r->total, all, err)
			: -1;
}

static int hear(struct ofs_renewal *r, struct ofs_cursor *c, uint8_t *out,
    uint64_t want, struct optimfs_error *err)
{
	uint8_t round = ofs_cursor_u8(c);
	bool said;

	if (c->bad || ofs_cursor_left(c) != 0 || want != 9)
		return malformed(err);
	said = r->speaking && r->round == round;
	out[0] = said;
	for (unsigned i = 0; i < 8; i++)
		out[1 + i] = said ? (uint8_t)(r->nmine >> 8 * i) : 0;
	return 0;
}

static int hear_at(struct ofs_renewal *r, struct ofs_cursor *c, uint8_t *out,
    uint64_t want, struct optimfs_error *err)
{
	uint8_t round = ofs_cursor_u8(c);
	uint64_t off = ofs_cursor_le64(c);

	if (c->bad || ofs_cursor_left(c) != 0 || !r->speaking ||
	    r->round != round || off > r->nmine || want > r->nmine - off)
		return malformed(err);
	memcpy(out, (const uint8_t *)r->mine + off, want);
	return 0;
}

/* In order. */
static int tell(struct ofs_renewal *r, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	uint8_t round = ofs_cursor_u8(c);
	uint64_t total = ofs_cursor_le64(c), off = ofs_cursor_le64(c);
	uint64_t n = ofs_cursor_left(c);
	const uint8_t *p = ofs_cursor_take(c, n);

	if (c->bad || !r->speaking || r->round != round || off != r->nheard ||
	    total == 0 || n > total - off ||
	    (r->heard != NULL && r->total != total))
		return malformed(err);
	if (r->heard == NULL)
		r->heard = malloc(total);
	if (r->heard == NULL)
		return optimfs_fail(err, ENOMEM,
		    "out of memory for lists of files");
	r->total = total;
	memcpy(r->heard + off, p, n);
	r->nheard += n;
	pthread_cond_broadcast(&r->changed);
	return 0;
}

/* Errands. */

static int agree(struct ofs_renewal *r, struct optimfs_error *err)
{
	struct ofs_meeting meeting = { exchange, r };
	struct optimfs_error own = { 0 };
	struct ofs_share *next = ofs_share_again(r->share, &own);

	if (next != NULL) {
		next->number = r->number;
		ofs_world_put(r->world, next);
	}
	pthread_mutex_lock(&r->lock);
	r->next = next;
	pthread_mutex_unlock(&r->lock);
	return ofs_share_agree(next, r->world, r->share->path, &own, &meeting,
	    err);
}

static int read_index(struct ofs_renewal *r, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&r->shown);
	if (r->fs != NULL) {
		r->read = r->next;
		r->now = ofs_fs_read_again(r->fs, err);
		r->read = r->share;
		ret = r->now == NULL ? -1 : 0;
	}
	pthread_mutex_unlock(&r->shown);
	return ret;
}

static void drop_next(struct ofs_renewal *r)
{
	struct ofs_share *next;

	pthread_mutex_lock(&r->shown);
	drop_now(r);
	pthread_mutex_unlock(&r->shown);
	pthread_mutex_lock(&r->lock);
	next = r->next;
	r->next = NULL;
	r->ready = false;
	pthread_mutex_unlock(&r->lock);
	ofs_world_drop(r->world, next);
}

/* Whoever drops it comes before this has its end, or finds it ready. */
static int run_look(void *arg, struct optimfs_error *err)
{
	struct ofs_renewal *r = arg;
	int ret = agree(r, err);

	if (ret == 0)
		ret = read_index(r, err);
	pthread_mutex_lock(&r->lock);
	if (ret == 0 && r->dropped)
		ret = optimfs_fail(err, ECANCELED, "dropped by rank 0");
	r->ready = ret == 0;
	pthread_mutex_unlock(&r->lock);
	if (ret == -1)
		drop_next(r);
	return ret;
}

static int run_show(void *arg, struct optimfs_error *err)
{
	struct ofs_renewal *r = arg;
	struct ofs_share *next;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	next = r->ready ? r->next : NULL;
	pthread_mutex_unlock(&r->lock);
	if (next == NULL)
		return malformed(err);
	pthread_mutex_lock(&r->shown);
	if (r->fs != NULL && r->now != NULL)
		ret = ofs_fs_become(r->fs, r->now, err);
	if (ret == 0) {
		ofs_renewal_succeed(r, next);
		let_readers_go(r);
	}
	pthread_mutex_unlock(&r->shown);
	if (ret == 0) {
		pthread_mutex_lock(&r->lock);
		r->next = NULL;
		r->why.code = 0;
		pthread_mutex_unlock(&r->lock);
	}
	drop_next(r); /* what was shown before, where it is not still */
	return ret;
}

/* Answers. */

static int begin_look(struct ofs_renewal *r, uint32_t number,
    struct optimfs_error *err)
{
	bool done;

	(void)ofs_errand_poll(&r->errand, &done, NULL);
	if (!done)
		return optimfs_fail(err, EBUSY,
		    "OFS815 a commit is being followed already");
	drop_next(r);
	pthread_mutex_lock(&r->lock);
	r->number = number;
	r->round = 0;
	r->dropped = r->stopped;
	done = r->stopped;
	pthread_mutex_unlock(&r->lock);
	if (done)
		return optimfs_fail(err, ECANCELED, "this rank is leaving");
	return ofs_errand_begin(&r->errand, run_look, r, err);
}

static int poll_errand(struct ofs_renewal *r, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	bool done;

	if (want != 1)
		return malformed(err);
	if (ofs_errand_poll(&r->errand, &done, err) == -1)
		return -1;
	out[0] = done;
	return 0;
}

/* What fails because files are replaced is tried again when that is over. */
static int alert(struct ofs_renewal *r, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	uint8_t on = ofs_cursor_u8(c);

	if (c->bad || ofs_cursor_left(c) != 0)
		return malformed(err);
	pthread_mutex_lock(&r->shown);
	let_readers_go(r);
	if (on != 0 && r->fs != NULL)
		r->alerted = ofs_gate_hold(r->fs, true, NULL) == 0;
	pthread_mutex_unlock(&r->shown);
	return 0;
}

static int drop(struct ofs_renewal *r, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	const char *why = ofs_wire_take_str(c);
	struct optimfs_error said;
	bool ready;

	if (c->bad || ofs_cursor_left(c) != 0)
		return malformed(err);
	optimfs_fail(&said, ESTALE, "%s", why);
	pthread_mutex_lock(&r->lock);
	r->dropped = true;
	r->why = said;
	ready = r->ready;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	if (ready)
		drop_next(r);
	pthread_mutex_lock(&r->shown);
	if (r->fs != NULL)
		optimfs_log_error(r->fs, &said);
	let_readers_go(r);
	pthread_mutex_unlock(&r->shown);
	return 0;
}

static int answer_locked(struct ofs_renewal *r, enum ofs_renew_op op,
    struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&r->lock);
	ret = op == OFS_RENEW_HEAR    ? hear(r, c, out, want, err)
	    : op == OFS_RENEW_HEAR_AT ? hear_at(r, c, out, want, err)
				      : tell(r, c, err);
	pthread_mutex_unlock(&r->lock);
	return ret;
}

int ofs_renewal_answer(struct ofs_renewal *r, uint32_t number,
    struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	enum ofs_renew_op op = (enum ofs_renew_op)ofs_cursor_u8(c);

	if (c->bad)
		return malformed(err);
	switch (op) {
	case OFS_RENEW_ALERT:
		return alert(r, c, err);
	case OFS_RENEW_LOOK:
		return begin_look(r, number, err);
	case OFS_RENEW_HEAR:
	case OFS_RENEW_HEAR_AT:
	case OFS_RENEW_TELL:
		return answer_locked(r, op, c, out, want, err);
	case OFS_RENEW_POLL:
		return poll_errand(r, out, want, err);
	case OFS_RENEW_SHOW:
		return ofs_errand_begin(&r->errand, run_show, r, err);
	case OFS_RENEW_DROP:
		return drop(r, c, err);
	}
	return malformed(err);
}
