/* mail.c - messages of any length between ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/mail.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/sys.h"
#include "cluster/wire.h"

/* Time to wait, in ns, before checking whether the sender is alive. */
#define WAIT_MIN (1000 * 1000)
#define WAIT_MAX (200 * 1000 * 1000)
/* Interval of asking it. */
enum { ASK_MS = 1000 };
/* Size of a part of a letter in one request. */
#define PART_MAX (OFS_GROUP_REQUEST_MAX - 64)

struct letter {
	LIST_ENTRY(letter) next;
	int from;
	uint64_t tag, total; /* total: size of the whole letter */
	struct ofs_buf b;
};

struct ofs_mail {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	LIST_HEAD(, letter) list;
};

struct ofs_mail *ofs_mail_new(void)
{
	struct ofs_mail *mail = calloc(1, sizeof(*mail));

	if (mail == NULL)
		return NULL;
	pthread_mutex_init(&mail->lock, NULL);
	pthread_cond_init(&mail->changed, NULL);
	return mail;
}

static void letter_free(struct letter *l)
{
	LIST_REMOVE(l, next);
	ofs_buf_fini(&l->b);
	free(l);
}

void ofs_mail_free(struct ofs_mail *mail)
{
	struct letter *l;

	if (mail == NULL)
		return;
	while ((l = LIST_FIRST(&mail->list)) != NULL)
		letter_free(l);
	pthread_cond_destroy(&mail->changed);
	pthread_mutex_destroy(&mail->lock);
	free(mail);
}

/* The lock is held. */
static struct letter *find(const struct ofs_mail *mail, int from, uint64_t tag)
{
	struct letter *l;

	LIST_FOREACH(l, &mail->list, next)
	if (l->from == from && l->tag == tag)
		return l;
	return NULL;
}

/* Receiving. */

static struct letter *new_letter(struct ofs_mail *mail, int from, uint64_t tag,
    uint64_t total)
{
	struct letter *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->from = from;
	l->tag = tag;
	l->total = total;
	LIST_INSERT_HEAD(&mail->list, l, next);
	return l;
}

int ofs_mail_letter(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_mail *mail = q->group->mail;
	uint64_t tag = ofs_cursor_le64(&q->c), total = ofs_cursor_le64(&q->c);
	uint64_t off = ofs_cursor_le64(&q->c), n = ofs_cursor_left(&q->c);
	struct letter *l;
	int ret = 0;

	pthread_mutex_lock(&mail->lock);
	l = find(mail, q->from, tag);
	if (l == NULL && off == 0 && !q->c.bad)
		l = new_letter(mail, q->from, tag, total);
	if (q->c.bad || l == NULL || total != l->total || off != l->b.len ||
	    n > total - off)
		ret = ofs_wire_malformed(err);
	else
		ofs_buf_put(&l->b, ofs_cursor_take(&q->c, n), n);
	if (ret == 0 && l->b.bad) {
		ret = ofs_no_memory(err);
		letter_free(l);
	}
	pthread_cond_broadcast(&mail->changed);
	pthread_mutex_unlock(&mail->lock);
	return ret;
}

int ofs_mail_send(struct optimfs_group *w, int to, uint64_t tag,
    const struct ofs_buf *b, struct optimfs_error *err)
{
	uint64_t off = 0, n;
	int ret = b->bad ? ofs_no_memory(err) : 0;

	while (ret == 0 && (off == 0 || off < b->len)) {
		struct ofs_buf part = { 0 };

		n = b->len - off < PART_MAX ? b->len - off : PART_MAX;
		ofs_wire_u8(&part, OFS_WIRE_LETTER);
		ofs_wire_u64(&part, tag);
		ofs_wire_u64(&part, b->len);
		ofs_wire_u64(&part, off);
		ofs_buf_put(&part, b->data + off, n);
		ret = ofs_group_ask(w, to, &part, NULL, 0, err);
		ofs_buf_fini(&part);
		off += n;
		if (n == 0)
			break;
	}
	return ret;
}

/* Waiting. */

/* Also if the job is over for all, and so for it. */
static bool has_left(struct optimfs_group *w, int rank)
{
	bool left;

	pthread_mutex_lock(&w->lock);
	left = w->done[rank] || w->over;
	pthread_mutex_unlock(&w->lock);
	return left;
}

/* Has it died, or fallen silent? */
static int check_alive(struct optimfs_group *w, int rank, int64_t *asked,
    struct optimfs_error *err)
{
	static const uint8_t kind = OFS_WIRE_PING;
	const struct ofs_buf ping = { .data = (uint8_t *)(uintptr_t)&kind,
		.len = 1 };
	struct optimfs_error own = { 0 };
	uint8_t done = 0;

	ofs_group_tell_dead(w);
	if (ofs_group_is_lost(w, rank, err))
		return -1;
	if (ofs_clock_ms() - *asked < ASK_MS)
		return 0;
	*asked = ofs_clock_ms();
	if (ofs_group_ask(w, rank, &ping, &done, 1, &own) == -1 &&
	    (own.code == EHOSTDOWN || own.code == ETIMEDOUT))
		return optimfs_fail_with(err, &own);
	ofs_sys_moved();
	if (done != 0) /* a letter that it sent before is here */
		ofs_group_set_done(w, rank);
	return 0;
}

int ofs_mail_alive(struct optimfs_group *w, int rank, int64_t *asked,
    struct optimfs_error *err)
{
	if (has_left(w, rank) && !ofs_group_is_lost(w, rank, NULL)) {
		optimfs_fail(err, EPROTO, "OFS913 it has given up");
		return ofs_group_error_in(w, rank, err);
	}
	return check_alive(w, rank, asked, err);
}

/* The lock is held. */
static bool take(struct ofs_mail *mail, int from, uint64_t tag,
    struct ofs_buf *b)
{
	struct letter *l = find(mail, from, tag);

	if (l == NULL || l->b.len < l->total)
		return false;
	*b = l->b;
	l->b = (struct ofs_buf){ 0 };
	letter_free(l);
	return true;
}

int ofs_mail_receive(struct optimfs_group *w, int from, uint64_t tag,
    const struct ofs_tick *tick, struct ofs_buf *b, struct optimfs_error *err)
{
	struct ofs_mail *mail = w->mail;
	int64_t asked = ofs_clock_ms(), rest = WAIT_MIN;
	bool came;
	int ret = 0;

	pthread_mutex_lock(&mail->lock);
	while (!(came = take(mail, from, tag, b)) && ret == 0) {
		if (ofs_clock_wait(&mail->changed, &mail->lock, rest) == 0)
			continue;
		rest = rest * 2 < WAIT_MAX ? rest * 2 : WAIT_MAX;
		pthread_mutex_unlock(&mail->lock);
		/* who has unmounted still works for others */
		ret = tag >> 32 == OFS_MAIL_RESULT
		    ? check_alive(w, from, &asked, err)
		    : ofs_mail_alive(w, from, &asked, err);
		if (tick != NULL && tick->fn != NULL)
			tick->fn(tick->ctx);
		pthread_mutex_lock(&mail->lock);
	}
	pthread_mutex_unlock(&mail->lock);
	return came ? 0 : -1;
}
