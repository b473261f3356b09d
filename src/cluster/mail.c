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

/* Is something awaited of its rank? */
static bool is_open(const struct ofs_awaited *a, bool all)
{
	return a->err.code == 0 && (all || !a->came);
}

/* Finds ranks that are lost, or have left. Who has unmounted still works for
 * others. */
static void find_lost(struct optimfs_group *w, struct ofs_awaited *a, size_t n,
    bool all)
{
	ofs_group_tell_dead(w);
	for (size_t i = 0; i < n; i++) {
		if (!is_open(&a[i], all) ||
		    ofs_group_is_lost(w, a[i].from, &a[i].err) ||
		    a[i].tag >> 32 == OFS_MAIL_RESULT ||
		    !has_left(w, a[i].from))
			continue;
		optimfs_fail(&a[i].err, EPROTO, "OFS913 it has given up");
		ofs_group_error_in(w, a[i].from, &a[i].err);
	}
}

/* Asks each rank once. */
static void ping_all(struct optimfs_group *w, struct ofs_awaited *a, size_t n,
    bool all)
{
	static const uint8_t ping = OFS_WIRE_PING;
	struct ofs_ask *ask = calloc(n, sizeof(*ask));
	size_t m = 0, k = 0;

	for (size_t i = 0; ask != NULL && i < n; i++)
		if (is_open(&a[i], all) &&
		    (m == 0 || ask[m - 1].to != a[i].from))
			ask[m++] = (struct ofs_ask){ .to = a[i].from,
				.request = &ping,
				.nrequest = 1,
				.want = 1 };
	(void)ofs_group_ask_all(w, ask, m, NULL);
	for (size_t i = 0; m > 0 && i < n; i++) {
		if (!is_open(&a[i], all))
			continue;
		while (ask[k].to != a[i].from)
			k++;
		if (ofs_group_says_lost(&ask[k].err))
			a[i].err = ask[k].err;
	}
	for (k = 0; k < m; k++) {
		if (ask[k].err.code != 0)
			continue;
		ofs_sys_moved();
		/* a letter that it sent before is here */
		if (*(const uint8_t *)ask[k].answer != 0)
			ofs_group_set_done(w, ask[k].to);
	}
	w->ops->release(w->w, ask, m);
	free(ask);
}

void ofs_mail_alive(struct optimfs_group *w, struct ofs_awaited *a, size_t n)
{
	find_lost(w, a, n, true);
	ping_all(w, a, n, true);
}

/* The lock is held. */
static bool take(struct ofs_mail *mail, struct ofs_awaited *a)
{
	struct letter *l = find(mail, a->from, a->tag);

	if (l == NULL || l->b.len < l->total)
		return false;
	a->letter = l->b;
	l->b = (struct ofs_buf){ 0 };
	letter_free(l);
	return true;
}

/* Takes what has come, even of a rank that is lost. Is that all? The lock is
 * held. */
static bool take_all(struct ofs_mail *mail, struct ofs_awaited *a, size_t n,
    bool all)
{
	bool open = false, failed = false;

	for (size_t i = 0; i < n; i++) {
		if (!a[i].came && take(mail, &a[i])) {
			a[i].came = true;
			a[i].err.code = 0;
		}
		open |= is_open(&a[i], false);
		failed |= a[i].err.code != 0;
	}
	return !open || (all && failed);
}

void ofs_mail_await(struct optimfs_group *w, struct ofs_awaited *a, size_t n,
    bool all, const struct ofs_tick *tick)
{
	struct ofs_mail *mail = w->mail;
	int64_t asked = ofs_clock_ms(), rest = WAIT_MIN;

	pthread_mutex_lock(&mail->lock);
	while (!take_all(mail, a, n, all)) {
		if (ofs_clock_wait(&mail->changed, &mail->lock, rest) == 0)
			continue;
		rest = rest * 2 < WAIT_MAX ? rest * 2 : WAIT_MAX;
		pthread_mutex_unlock(&mail->lock);
		find_lost(w, a, n, all);
		if (ofs_clock_ms() - asked >= ASK_MS) {
			asked = ofs_clock_ms();
			ping_all(w, a, n, all);
		}
		if (tick != NULL && tick->fn != NULL)
			tick->fn(tick->ctx);
		pthread_mutex_lock(&mail->lock);
	}
	pthread_mutex_unlock(&mail->lock);
}
