/* renew_follow.c - a rank that does not write follows a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/commit/participant.h"
#include "cluster/renew_impl.h"
#include "fs/fs.h"

struct ofs_renewal *ofs_renewal_new(struct optimfs_group *w,
    struct ofs_manifest *share, struct optimfs_error *err)
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
	ofs_async_init(&r->errand);
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
		(void)ofs_async_poll(&r->errand, &done, NULL);
		if (done)
			break;
		pthread_mutex_lock(&r->lock);
		ofs_renewal_wait(r);
		pthread_mutex_unlock(&r->lock);
	}
}

void ofs_renewal_free(struct ofs_renewal *r)
{
	if (r == NULL)
		return;
	ofs_async_fini(&r->errand);
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

struct ofs_manifest *ofs_renewal_share(const struct ofs_renewal *r)
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

struct optimfs_group *ofs_renewal_world(const struct ofs_renewal *r)
{
	return r->world;
}

void ofs_renewal_succeed(struct ofs_renewal *r, struct ofs_manifest *next)
{
	ofs_participant_move(r->share, next);
	ofs_group_drop(r->world, r->before);
	r->before = r->share;
	r->share = r->read = next;
}

void ofs_renewal_said(struct ofs_renewal *r, struct ofs_buf *out)
{
	const struct optimfs_group *w = r->world;
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

/* Errands. */

static int agree(struct ofs_renewal *r, struct optimfs_error *err)
{
	struct ofs_meeting meeting = { ofs_renewal_exchange, r };
	struct optimfs_error own = { 0 };
	struct ofs_manifest *next = ofs_manifest_again(r->share, &own);

	if (next != NULL) {
		next->number = r->number;
		ofs_group_put(r->world, next);
	}
	pthread_mutex_lock(&r->lock);
	r->next = next;
	pthread_mutex_unlock(&r->lock);
	return ofs_manifest_agree(next, r->world, r->share->path, &own,
	    &meeting, err);
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
	struct ofs_manifest *next;

	pthread_mutex_lock(&r->shown);
	drop_now(r);
	pthread_mutex_unlock(&r->shown);
	pthread_mutex_lock(&r->lock);
	next = r->next;
	r->next = NULL;
	r->ready = false;
	pthread_mutex_unlock(&r->lock);
	ofs_group_drop(r->world, next);
}

/* Readers get what there is. With shown held. */
static void give_up(struct ofs_renewal *r)
{
	struct optimfs_error why;

	pthread_mutex_lock(&r->lock);
	why = r->why;
	pthread_mutex_unlock(&r->lock);
	if (r->fs != NULL && why.code != 0)
		optimfs_log_error(r->fs, &why);
	let_readers_go(r);
}

/* Whoever drops it comes before this has its end, or finds it ready. */
static int run_look(void *arg, struct optimfs_error *err)
{
	struct ofs_renewal *r = arg;
	int ret;

	drop_next(r); /* of an earlier time */
	ret = agree(r, err);
	if (ret == 0)
		ret = read_index(r, err);
	pthread_mutex_lock(&r->lock);
	if (ret == 0 && r->dropped)
		ret = optimfs_fail(err, ECANCELED, "dropped by rank 0");
	r->ready = ret == 0;
	if (ret == -1)
		r->failed = *err;
	pthread_mutex_unlock(&r->lock);
	if (ret == 0)
		return 0;
	drop_next(r);
	pthread_mutex_lock(&r->shown);
	give_up(r);
	pthread_mutex_unlock(&r->shown);
	return -1;
}

static int run_show(void *arg, struct optimfs_error *err)
{
	struct ofs_renewal *r = arg;
	struct ofs_manifest *next;
	int ret = 0;

	pthread_mutex_lock(&r->lock);
	next = r->ready ? r->next : NULL;
	pthread_mutex_unlock(&r->lock);
	if (next == NULL)
		return ofs_renewal_malformed(err);
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

/* What comes late may come in another order. An errand that rank 0 has given up
 * meanwhile ends soon. */
static int begin_look(struct ofs_renewal *r, uint32_t number,
    struct optimfs_error *err)
{
	bool done, late;

	(void)ofs_async_poll(&r->errand, &done, NULL);
	pthread_mutex_lock(&r->lock);
	late = r->stopped || number <= r->number || number <= r->gone;
	if (!late && !done) {
		r->dropped = true;
		pthread_cond_broadcast(&r->changed);
	}
	if (!late && done) {
		r->number = number;
		r->round = 0;
		r->dropped = false;
		r->failed.code = 0;
	}
	pthread_mutex_unlock(&r->lock);
	if (late)
		return ofs_renewal_late(err);
	if (!done)
		return optimfs_fail(err, EBUSY,
		    "OFS815 a commit is being followed already");
	return ofs_async_begin(&r->errand, run_look, r, err);
}

static int begin_show(struct ofs_renewal *r, uint32_t number,
    struct optimfs_error *err)
{
	bool now;

	pthread_mutex_lock(&r->lock);
	now = r->ready && r->number == number;
	pthread_mutex_unlock(&r->lock);
	return now ? ofs_async_begin(&r->errand, run_show, r, err)
		   : ofs_renewal_late(err);
}

static int poll_errand(struct ofs_renewal *r, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	bool done;

	if (want != 1)
		return ofs_renewal_malformed(err);
	if (ofs_async_poll(&r->errand, &done, err) == -1)
		return -1;
	out[0] = done;
	return 0;
}

/* What fails because files are replaced is tried again when that is over. While
 * something is done with what is shown, which may take long and need answers of
 * this rank, that is not worth waiting for. */
static int alert(struct ofs_renewal *r, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	uint8_t on = ofs_cursor_u8(c);

	if (c->bad || ofs_cursor_left(c) != 0)
		return ofs_renewal_malformed(err);
	if (pthread_mutex_trylock(&r->shown) != 0)
		return 0;
	let_readers_go(r);
	if (on != 0 && r->fs != NULL)
		r->alerted = ofs_gate_hold(r->fs, true, NULL) == 0;
	pthread_mutex_unlock(&r->shown);
	return 0;
}

/* An errand that has not come to its end gives up by itself; what is left of it
 * otherwise goes with the next one at the latest. */
static int drop(struct ofs_renewal *r, uint32_t number, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	const char *why = ofs_wire_take_str(c);
	bool over;

	if (c->bad || ofs_cursor_left(c) != 0)
		return ofs_renewal_malformed(err);
	pthread_mutex_lock(&r->lock);
	over = r->ready || r->failed.code != 0;
	r->gone = number;
	r->dropped = true;
	r->ready = false;
	optimfs_fail_as(&r->why, ESTALE, "%s", why);
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
	if (over && pthread_mutex_trylock(&r->shown) == 0) {
		drop_now(r);
		give_up(r);
		pthread_mutex_unlock(&r->shown);
	}
	return 0;
}

int ofs_renewal_answer(struct ofs_renewal *r, uint32_t number,
    struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	enum ofs_renew_op op = (enum ofs_renew_op)ofs_cursor_u8(c);

	if (c->bad)
		return ofs_renewal_malformed(err);
	switch (op) {
	case OFS_RENEW_ALERT:
		return alert(r, c, err);
	case OFS_RENEW_LOOK:
		return begin_look(r, number, err);
	case OFS_RENEW_HEAR:
	case OFS_RENEW_HEAR_AT:
	case OFS_RENEW_TELL:
		return ofs_renewal_meet(r, op, number, c, out, want, err);
	case OFS_RENEW_POLL:
		return poll_errand(r, out, want, err);
	case OFS_RENEW_SHOW:
		return begin_show(r, number, err);
	case OFS_RENEW_DROP:
		return drop(r, number, c, err);
	}
	return ofs_renewal_malformed(err);
}
