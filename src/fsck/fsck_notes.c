/* fsck_notes.c - the findings of a check, by step, of all ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "cluster/wire.h"
#include "fsck/fsck.h"

/* A note is its step (8 bytes), kind (1), errno value (4), number of the error
 * (4), what is lost (2, 2, 2), path and text (strings), shard (4), elements of a
 * hash (8), number of hashes (4), hashes (16 each). */
enum kind {
	WARNING,
	ERROR,
	HASHES,      /* of a shard */
	COPY_HASHES, /* of a copy; text says where it is */
	UNREAD,      /* why there are no more hashes */
	COPY_UNREAD,
};

struct ofs_fsck_note {
	uint64_t step, each;
	size_t order; /* order within a step */
	const char *path;
	struct ofs_note message; /* its kind is not used */
	const uint8_t *hash;
	uint32_t nhashes, shard;
	enum kind kind;
};
#define HASH_SIZE 16

/* Notes are handed over when they reach this size; with one more they still fit
 * into a request. */
#define HAND_OVER (256u << 10)

static void put(struct ofs_fsck *c, const struct ofs_fsck_note *n,
    const XXH128_hash_t *h)
{
	struct ofs_buf *b = &c->notes;

	if (b->len >= HAND_OVER)
		ofs_fsck_hand_over(c);
	ofs_wire_u64(b, c->step);
	ofs_wire_u8(b, (uint8_t)n->kind);
	ofs_wire_u32(b, (uint32_t)n->message.code);
	ofs_wire_u32(b, (uint32_t)n->message.number);
	ofs_wire_u16(b, n->message.how);
	ofs_wire_u16(b, n->message.lost);
	ofs_wire_u16(b, n->message.nlost);
	ofs_wire_str(b, n->path);
	ofs_wire_str(b, n->message.text);
	ofs_wire_u32(b, n->shard);
	ofs_wire_u64(b, n->each);
	ofs_wire_u32(b, n->nhashes);
	for (uint32_t i = 0; i < n->nhashes; i++) {
		ofs_wire_u64(b, h[i].low64);
		ofs_wire_u64(b, h[i].high64);
	}
}

static struct ofs_note message_of(const struct optimfs_error *e)
{
	return (struct ofs_note){ .code = e->code,
		.number = e->number,
		.how = e->how,
		.lost = e->lost,
		.nlost = e->nlost,
		.text = e->text };
}

void ofs_fsck_found(struct ofs_fsck *c, bool error, const char *path,
    const struct optimfs_error *what)
{
	const struct ofs_fsck_note n = { .kind = error ? ERROR : WARNING,
		.path = path,
		.message = message_of(what) };

	put(c, &n, NULL);
}

void ofs_fsck_hashes(struct ofs_fsck *c, uint32_t shard, const char *place,
    const XXH128_hash_t *h, uint32_t n, uint64_t each)
{
	const struct ofs_fsck_note note = { .kind = place == NULL ? HASHES
								  : COPY_HASHES,
		.path = c->path,
		.message.text = place == NULL ? "" : place,
		.shard = shard,
		.each = each,
		.nhashes = n };

	put(c, &note, h);
}

void ofs_fsck_unread(struct ofs_fsck *c, uint32_t shard, bool copy,
    const struct optimfs_error *why)
{
	const struct ofs_fsck_note n = { .kind = copy ? COPY_UNREAD : UNREAD,
		.path = c->path,
		.message = message_of(why),
		.shard = shard };

	put(c, &n, NULL);
}

void ofs_fsck_fail(struct ofs_fsck_all *all, const struct optimfs_error *why)
{
	pthread_mutex_lock(&all->lock);
	if (!atomic_exchange(&all->stop, true))
		all->failed = *why;
	pthread_mutex_unlock(&all->lock);
}

static int send_notes(struct ofs_fsck *c, struct optimfs_error *err)
{
	struct ofs_cursor cur = ofs_cursor_of(c->notes.data, c->notes.len);

	if (c->notes.bad)
		return ofs_no_memory(err);
	return c->all->group != NULL
	    ? ofs_task_report(c->all->group, &c->notes, err)
	    : ofs_fsck_take(c->all, 0, &cur, err);
}

void ofs_fsck_hand_over(struct ofs_fsck *c)
{
	struct optimfs_error err;

	if ((c->notes.len > 0 || c->notes.bad) && !atomic_load(&c->all->stop) &&
	    send_notes(c, &err) == -1)
		ofs_fsck_fail(c->all, &err);
	c->notes.len = 0;
}

/* Receiving. */

static bool take_one(struct ofs_cursor *c, struct ofs_fsck_note *n)
{
	n->step = ofs_cursor_le64(c);
	n->kind = ofs_cursor_u8(c);
	n->message.code = (int)ofs_cursor_le32(c);
	n->message.number = (int)ofs_cursor_le32(c);
	n->message.how = ofs_cursor_le16(c);
	n->message.lost = ofs_cursor_le16(c);
	n->message.nlost = ofs_cursor_le16(c);
	n->path = ofs_wire_take_str(c);
	n->message.text = ofs_wire_take_str(c);
	n->shard = ofs_cursor_le32(c);
	n->each = ofs_cursor_le64(c);
	n->nhashes = ofs_cursor_le32(c);
	if (!ofs_cursor_fits(c, n->nhashes, HASH_SIZE))
		return false;
	n->hash = ofs_cursor_take(c, (uint64_t)n->nhashes * HASH_SIZE);
	return !c->bad && n->kind <= COPY_UNREAD &&
	    n->message.how <= OPTIMFS_LOST_UNITS &&
	    (size_t)n->message.lost + n->message.nlost <=
	    strlen(n->message.text);
}

static int take(struct ofs_fsck_notes *t, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	uint64_t len = ofs_cursor_left(c);
	/* notes point into it */
	uint8_t *bytes = ofs_arena_alloc(&t->bytes, len);

	if (bytes == NULL)
		return ofs_no_memory(err);
	memcpy(bytes, c->p, len);
	*c = ofs_cursor_of(bytes, len);
	while (ofs_cursor_left(c) > 0) {
		if (ofs_grow(t->v, t->n, t->cap, err) == -1)
			return -1;
		if (!take_one(c, &t->v[t->n]))
			return optimfs_fail(err, EPROTO,
			    "OFS913 the findings of rank %d are invalid", from);
		t->v[t->n++].order = t->order++;
	}
	return 0;
}

int ofs_fsck_take(void *ctx, int from, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_fsck_all *all = ctx;
	int ret;

	pthread_mutex_lock(&all->lock);
	ret = take(&all->taken, from, c, err);
	pthread_mutex_unlock(&all->lock);
	return ret;
}

void ofs_fsck_forget(struct ofs_fsck_all *all)
{
	struct ofs_fsck_notes *t = &all->taken;

	ofs_arena_fini(&t->bytes);
	free(t->v);
	*t = (struct ofs_fsck_notes){ 0 };
}

/* Reporting. */

OFS_COMPARE_BY2(by_step, struct ofs_fsck_note, step, order)

static void report(struct ofs_fsck_all *all, bool error, const char *path,
    const struct optimfs_error *what)
{
	const struct optimfs_finding f = { error, what->code, what->number,
		path, what->text, what };

	all->problems += error;
	if (all->report != NULL)
		all->report(all->ctx, &f);
}

/* The hashes of a shard or a copy: the notes from at on. */
struct side {
	const struct ofs_fsck_note *at, *end;
	uint32_t next;                      /* hash of at */
	const struct ofs_fsck_note *unread; /* why there are no more, or NULL */
};

/* Does n continue the hashes that start with first? */
static bool is_of(const struct ofs_fsck_note *n,
    const struct ofs_fsck_note *first)
{
	enum kind unread = first->kind == HASHES ? UNREAD : COPY_UNREAD;

	return n->step == first->step && n->shard == first->shard &&
	    (n->kind == first->kind || n->kind == unread);
}

static struct side side_of(const struct ofs_fsck_note *at,
    const struct ofs_fsck_note *end)
{
	struct side s = { .at = at };

	for (s.end = at; s.end < end && is_of(s.end, at); s.end++)
		if (s.end->kind != at->kind)
			s.unread = s.end;
	return s;
}

static const uint8_t *next_hash(struct side *s)
{
	while (s->at < s->end && s->next == s->at->nhashes) {
		s->at++;
		s->next = 0;
	}
	return s->at == s->end ? NULL
			       : s->at->hash + (size_t)s->next++ * HASH_SIZE;
}

/* Compares two lists of hashes and reports what reading both would show. */
static void compare(struct ofs_fsck_all *all, struct side a, struct side b)
{
	const struct ofs_fsck_note *copy = b.at, *bad = NULL;
	const uint8_t *ha, *hb;
	struct optimfs_error why;
	uint64_t at = 0;

	for (;; at += copy->each) {
		ha = next_hash(&a);
		hb = next_hash(&b);
		if (ha == NULL || hb == NULL || memcmp(ha, hb, HASH_SIZE) != 0)
			break;
	}
	if (ha != NULL && hb != NULL) {
		optimfs_fail(&why, EUCLEAN,
		    "OFS612 replicas disagree after element %" PRIu64
		    " of a box",
		    at);
	} else {
		bad = ha == NULL && a.unread != NULL ? a.unread : b.unread;
		if (bad == NULL)
			return;
		ofs_note_error(&bad->message, &why);
	}
	optimfs_fail_in(&why, "%s", copy->message.text);
	report(all, true, copy->path, &why);
}

/* Reports the findings from n on to end. */
static void tell(struct ofs_fsck_all *all, const struct ofs_fsck_note *n,
    const struct ofs_fsck_note *end)
{
	struct side shard = { .at = NULL }, copy;
	struct optimfs_error what;

	while (n < end) {
		if (n->kind == HASHES) {
			shard = side_of(n, end);
			n = shard.end;
		} else if (n->kind == COPY_HASHES) {
			copy = side_of(n, end);
			if (shard.at != NULL && shard.at->shard == n->shard)
				compare(all, shard, copy);
			n = copy.end;
		} else {
			ofs_note_error(&n->message, &what);
			if (n->kind == ERROR || n->kind == WARNING)
				report(all, n->kind == ERROR, n->path, &what);
			n++;
		}
	}
}

void ofs_fsck_tell(struct ofs_fsck_all *all, uint64_t last)
{
	struct ofs_fsck_notes *t = &all->taken;
	size_t n = 0;

	pthread_mutex_lock(&all->lock);
	if (t->n > 0) {
		qsort(t->v, t->n, sizeof(*t->v), by_step);
		while (n < t->n && t->v[n].step <= last)
			n++;
		tell(all, t->v, t->v + n);
		t->n -= n;
		memmove(t->v, t->v + n, t->n * sizeof(*t->v));
		if (t->n == 0)
			ofs_fsck_forget(all);
	}
	pthread_mutex_unlock(&all->lock);
}
