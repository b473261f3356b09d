/* renew_meet.c - what a rank says and hears when all agree again */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/renew_impl.h"

/* How often who waits looks whether rank 0 is still there, and how long it has
 * for the others, in units of timeout=: some may look through slow disks. */
#define LOOK_NS (100 * 1000 * 1000)
enum { PATIENCE = 20 };

int ofs_renewal_malformed(struct optimfs_error *err)
{
	return optimfs_fail(err, EPROTO,
	    "OFS913 a request that makes no sense: are all ranks of one "
	    "version?");
}

int ofs_renewal_late(struct optimfs_error *err)
{
	return optimfs_fail(err, ECANCELED,
	    "it is too late for that, or this rank is leaving");
}

void ofs_renewal_wait(struct ofs_renewal *r)
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

static int take(const struct ofs_renewal *r, const uint8_t *p, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, n);

	for (int i = 0; i < r->world->size; i++) {
		uint64_t len = ofs_cursor_le64(&c);
		const uint8_t *said = ofs_cursor_take(&c, len);

		if (c.bad)
			return ofs_renewal_malformed(err);
		all[i].p = malloc(len + 1);
		if (all[i].p == NULL)
			return optimfs_fail(err, ENOMEM,
			    "out of memory for lists of files");
		memcpy(all[i].p, said, len);
		all[i].n = len;
	}
	return ofs_cursor_left(&c) == 0 ? 0 : ofs_renewal_malformed(err);
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
	const struct optimfs_group *w = r->world;
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
		ofs_renewal_wait(r);
	}
	return 0;
}

int ofs_renewal_exchange(void *ctx, const void *mine, uint64_t n,
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
	return ret == 0 ? take(r, r->heard, r->total, all, err) : -1;
}

static int hear(struct ofs_renewal *r, struct ofs_cursor *c, uint8_t *out,
    uint64_t want, struct optimfs_error *err)
{
	uint8_t round = ofs_cursor_u8(c);
	bool said;

	if (c->bad || ofs_cursor_left(c) != 0 || want != 9)
		return ofs_renewal_malformed(err);
	if (r->failed.code != 0)
		return optimfs_fail_as(err, r->failed.code, "%s",
		    r->failed.text);
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
		return ofs_renewal_malformed(err);
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
		return ofs_renewal_malformed(err);
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

int ofs_renewal_meet(struct ofs_renewal *r, enum ofs_renew_op op,
    uint32_t number, struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err)
{
	int ret;

	pthread_mutex_lock(&r->lock);
	ret = number != r->number     ? ofs_renewal_late(err)
	    : op == OFS_RENEW_HEAR    ? hear(r, c, out, want, err)
	    : op == OFS_RENEW_HEAR_AT ? hear_at(r, c, out, want, err)
				      : tell(r, c, err);
	pthread_mutex_unlock(&r->lock);
	return ret;
}
