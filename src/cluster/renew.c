/* renew.c - rank 0 leads all ranks to what it has committed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/commit/coordinator.h"
#include "cluster/renew_impl.h"
#include "fs/fs.h"
#include "overlay/overlay.h"

/* How long to wait before asking again, ns. */
#define REST_MIN (500 * 1000)
#define REST_MAX (50 * 1000 * 1000)
/* Of what all have said, in one request. */
#define PIECE ((uint64_t)960 << 10)

/* Ranks that take part, but for this one. */
struct council {
	struct ofs_renewal *r;
	int *rank;
	uint32_t n;
	uint8_t round;
};

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "out of memory for an agreement");
}

static void begin_request(const struct council *c, enum ofs_renew_op op,
    struct ofs_buf *b)
{
	b->len = 0;
	ofs_wire_u8(b, OFS_WIRE_RENEW);
	ofs_wire_u32(b, c->r->number);
	ofs_wire_u8(b, (uint8_t)op);
}

/* Ask all at once; out gets want bytes of each. Fails with the first that
 * does, when all have answered. */
static int ask_all(const struct council *c, const struct ofs_buf *b,
    uint8_t *out, uint64_t want, struct optimfs_error *err)
{
	const struct optimfs_group *w = c->r->world;
	struct ofs_ask *ask = calloc((size_t)c->n + 1, sizeof(*ask));
	int ret = 0;

	if (b->bad || ask == NULL) {
		free(ask);
		return no_memory(err);
	}
	for (uint32_t i = 0; i < c->n; i++)
		ask[i] = (struct ofs_ask){ .to = c->rank[i],
			.request = b->data,
			.nrequest = b->len,
			.want = want };
	w->ops->ask(w->w, ask, c->n);
	for (uint32_t i = 0; i < c->n; i++) {
		if (ask[i].err.code == 0 && want > 0)
			memcpy(out + i * want, ask[i].answer, want);
		if (ask[i].err.code == 0 || ret == -1)
			continue;
		ofs_group_blame(w, c->rank[i], &ask[i].err);
		ret = optimfs_fail_as(err, ask[i].err.code, "%s",
		    ask[i].err.text);
	}
	w->ops->release(w->w, ask, c->n);
	free(ask);
	return ret;
}

static int order(const struct council *c, enum ofs_renew_op op,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	begin_request(c, op, &b);
	ret = ask_all(c, &b, NULL, 0, err);
	ofs_buf_fini(&b);
	return ret;
}

static void rest(long *ns)
{
	struct timespec t = { .tv_nsec = *ns };

	nanosleep(&t, NULL);
	*ns = *ns * 2 < REST_MAX ? *ns * 2 : REST_MAX;
}

/* Until the first of the want bytes of each answer is not 0. */
static int ask_until(const struct council *c, const struct ofs_buf *b,
    uint8_t *out, uint64_t want, struct optimfs_error *err)
{
	long ns = REST_MIN;
	uint32_t n;

	for (;;) {
		if (ask_all(c, b, out, want, err) == -1)
			return -1;
		for (n = 0; n < c->n && out[n * want] != 0; n++)
			;
		if (n == c->n)
			return 0;
		rest(&ns);
	}
}

/* The errand of each has come to its end. */
static int await(const struct council *c, struct optimfs_error *err)
{
	uint8_t *done = malloc((size_t)c->n + 1);
	struct ofs_buf b = { 0 };
	int ret = -1;

	begin_request(c, OFS_RENEW_POLL, &b);
	if (done == NULL)
		no_memory(err);
	else
		ret = ask_until(c, &b, done, 1, err);
	ofs_buf_fini(&b);
	free(done);
	return ret;
}

/* What each says in a round, then what all have said to each. */

static int hear_one(const struct council *c, uint32_t i, uint64_t n,
    struct ofs_said *said, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	uint64_t len;
	int ret = 0;

	said->p = malloc(n + 1);
	if (said->p == NULL)
		return no_memory(err);
	said->n = n;
	for (uint64_t off = 0; off < n && ret == 0; off += len) {
		len = n - off < OFS_GROUP_ANSWER_MAX ? n - off
						     : OFS_GROUP_ANSWER_MAX;
		begin_request(c, OFS_RENEW_HEAR_AT, &b);
		ofs_wire_u8(&b, c->round);
		ofs_wire_u64(&b, off);
		ret = ofs_group_ask(c->r->world, c->rank[i], &b,
		    (uint8_t *)said->p + off, len, err);
	}
	ofs_buf_fini(&b);
	return ret;
}

static int hear_all(const struct council *c, struct ofs_said *all,
    struct optimfs_error *err)
{
	uint8_t *heard = malloc(9 * (size_t)c->n + 1);
	struct ofs_buf b = { 0 };
	int ret = -1;

	begin_request(c, OFS_RENEW_HEAR, &b);
	ofs_wire_u8(&b, c->round);
	if (heard == NULL)
		no_memory(err);
	else
		ret = ask_until(c, &b, heard, 9, err);
	for (uint32_t i = 0; i < c->n && ret == 0; i++)
		ret = hear_one(c, i, ofs_le64(heard + 9 * i + 1),
		    &all[c->rank[i]], err);
	ofs_buf_fini(&b);
	free(heard);
	return ret;
}

static int tell_all(const struct council *c, const struct ofs_buf *text,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	uint64_t n;
	int ret = text->bad ? no_memory(err) : 0;

	for (uint64_t off = 0; off < text->len && ret == 0; off += n) {
		n = text->len - off < PIECE ? text->len - off : PIECE;
		begin_request(c, OFS_RENEW_TELL, &b);
		ofs_wire_u8(&b, c->round);
		ofs_wire_u64(&b, text->len);
		ofs_wire_u64(&b, off);
		ofs_buf_put(&b, text->data + off, n);
		ret = ask_all(c, &b, NULL, 0, err);
	}
	ofs_buf_fini(&b);
	return ret;
}

static int exchange(void *ctx, const void *mine, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err)
{
	struct council *c = ctx;
	const struct optimfs_group *w = c->r->world;
	struct ofs_said *own = &all[w->rank];
	struct ofs_buf b = { 0 };
	int ret;

	c->round++;
	own->p = malloc(n + 1);
	if (own->p == NULL)
		return no_memory(err);
	memcpy(own->p, mine, n);
	own->n = n;
	ret = hear_all(c, all, err);
	for (int r = 0; r < w->size && ret == 0; r++) {
		ofs_wire_u64(&b, all[r].n);
		ofs_buf_put(&b, all[r].p, all[r].n);
	}
	if (ret == 0)
		ret = tell_all(c, &b, err);
	ofs_buf_fini(&b);
	return ret;
}

/* Who takes part. */

/* What only a rank that has died has would be missing from now on. */
static int can_do_without(const struct ofs_renewal *r, int rank,
    struct optimfs_error *err)
{
	const struct ofs_manifest *s = r->share;

	for (uint32_t i = 0; i < s->nfiles; i++)
		if (s->file[i].nowners == 1 &&
		    s->owner[s->file[i].owner].rank == rank) {
			optimfs_fail(err, EHOSTDOWN,
			    "OFS911 it has died, and only it has %.200s",
			    s->file[i].path);
			return ofs_group_blame(r->world, rank, err);
		}
	return 0;
}

static void gather_ranks(struct council *c)
{
	const struct optimfs_group *w = c->r->world;

	for (int r = 0; r < w->size; r++)
		if (r != w->rank && !w->ops->dead(w->w, r))
			c->rank[c->n++] = r;
}

static int council_init(struct council *c, struct ofs_renewal *r,
    struct optimfs_error *err)
{
	*c = (struct council){ .r = r };
	c->rank = calloc((size_t)r->world->size, sizeof(*c->rank));
	if (c->rank == NULL)
		return no_memory(err);
	gather_ranks(c);
	return 0;
}

void ofs_renew_alert(struct ofs_renewal *r, bool on)
{
	struct ofs_buf b = { 0 };
	struct council c;

	if (council_init(&c, r, NULL) == -1)
		return;
	begin_request(&c, OFS_RENEW_ALERT, &b);
	ofs_wire_u8(&b, on);
	(void)ask_all(&c, &b, NULL, 0, NULL);
	ofs_buf_fini(&b);
	free(c.rank);
}

/* The steps. */

static int agree(struct council *c, struct ofs_manifest **next,
    struct optimfs_error *err)
{
	const struct optimfs_group *w = c->r->world;
	struct ofs_meeting meeting = { exchange, c };
	struct optimfs_error own = { 0 };

	for (int r = 0; r < w->size; r++)
		if (w->ops->dead(w->w, r) && can_do_without(c->r, r, err) == -1)
			return -1;
	c->r->number += OFS_MANIFEST_COMMIT;
	if (order(c, OFS_RENEW_LOOK, err) == -1)
		return -1;
	*next = ofs_manifest_again(c->r->share, &own);
	if (*next != NULL) {
		(*next)->number = c->r->number;
		ofs_group_put(c->r->world, *next);
	}
	return ofs_manifest_agree(*next, c->r->world, c->r->share->path, &own,
	    &meeting, err);
}

static void drop(const struct council *c, struct ofs_manifest *next,
    const struct optimfs_error *why)
{
	struct ofs_buf b = { 0 };
	char text[sizeof(why->text) + 100];

	snprintf(text, sizeof(text),
	    "OFS835 it was committed, and ranks could not agree about what is "
	    "there now: mount it again (%.200s)",
	    why->text);
	begin_request(c, OFS_RENEW_DROP, &b);
	ofs_wire_str(&b, text);
	(void)ask_all(c, &b, NULL, 0, NULL);
	ofs_buf_fini(&b);
	ofs_group_drop(c->r->world, next);
}

/* Who cannot be told shows what was before, and says so where that is gone. */
static void show(const struct council *c, struct optimfs *fs)
{
	struct optimfs_error err;

	if (order(c, OFS_RENEW_SHOW, &err) == -1 || await(c, &err) == -1)
		optimfs_log_error(fs, &err);
}

static int lead(struct council *c, struct optimfs *fs, bool reopen,
    struct optimfs_error *err)
{
	struct ofs_coordinator *sites = fs->sites;
	struct ofs_manifest *next = NULL;
	struct optimfs *now = NULL;
	struct optimfs_error own;
	int ret = agree(c, &next, &own);

	if (ret == 0 && reopen) {
		c->r->read = next;
		now = ofs_fs_read_again(fs, &own);
		c->r->read = c->r->share;
		ret = now == NULL ? -1 : 0;
	}
	if (ret == 0)
		ret = await(c, &own);
	if (ret == 0 && now != NULL)
		ret = ofs_fs_become(fs, now, &own);
	if (ret == 0) {
		show(c, fs);
		ofs_renewal_succeed(c->r, next);
		if (sites != NULL)
			ofs_coordinator_move(sites, next);
	} else {
		drop(c, next, &own);
		optimfs_fail_as(err, own.code, "%s", own.text);
	}
	optimfs_close(now);
	return ret;
}

int ofs_renew(struct ofs_renewal *r, struct optimfs *fs, bool reopen,
    struct optimfs_error *err)
{
	struct council c;
	int ret;

	if (council_init(&c, r, err) == -1)
		return -1;
	ret = lead(&c, fs, reopen, err);
	free(c.rank);
	return ret;
}
