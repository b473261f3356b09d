/* relay.c - bytes that many ranks read while they open a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/memory.h"
#include "cluster/call.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"

/* A piece is one message. So many are under way at once; fewer bytes than
 * RELAY_MIN are not worth a tree. */
#define PIECE     ((uint64_t)960 << 10)
#define RELAY_MIN ((uint64_t)64 << 10)
enum { PIECES = 16 };
/* Bytes that are kept for ranks below. Who asks later gets them anew. */
#define KEPT_MAX ((uint64_t)256 << 20)

struct piece {
	TAILQ_ENTRY(piece) next;
	uint32_t file;
	uint64_t off, len;
	unsigned takers; /* reads that will come, that of this rank included */
	unsigned users;  /* threads that have it in hand */
	enum { COMING, HERE, LOST } state;
	uint8_t bytes[];
};

struct ofs_relay {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	TAILQ_HEAD(, piece) list; /* oldest first */
	uint64_t kept;            /* bytes */
	int agreed;               /* 1; -1: failed; 0: not yet */
	bool ended;
};

struct ofs_relay *ofs_relay_new(struct optimfs_error *err)
{
	struct ofs_relay *r = ofs_alloc(1, sizeof(*r), err);

	if (r == NULL)
		return NULL;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	TAILQ_INIT(&r->list);
	return r;
}

/* The lock is held. */
static void drop(struct ofs_relay *r, struct piece *p)
{
	TAILQ_REMOVE(&r->list, p, next);
	r->kept -= p->len;
	free(p);
}

/* Drops what nobody will ask for, and the oldest beyond max. The lock is held. */
static void trim(struct ofs_relay *r, uint64_t max)
{
	struct piece *p, *next;

	for (p = TAILQ_FIRST(&r->list); p != NULL; p = next) {
		next = TAILQ_NEXT(p, next);
		if (p->users == 0 &&
		    (p->takers == 0 || p->state == LOST || r->kept > max))
			drop(r, p);
	}
}

void ofs_relay_free(struct ofs_relay *r)
{
	if (r == NULL)
		return;
	trim(r, 0);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void ofs_relay_agreed(struct ofs_manifest *s, int ret)
{
	pthread_mutex_lock(&s->relay->lock);
	s->relay->agreed = ret == 0 ? 1 : -1;
	pthread_cond_broadcast(&s->relay->changed);
	pthread_mutex_unlock(&s->relay->lock);
}

void ofs_relay_end(struct optimfs_group *w)
{
	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->nmanifests; i++) {
		struct ofs_relay *r = w->manifest[i]->offered->relay;

		pthread_mutex_lock(&r->lock);
		r->ended = true;
		trim(r, 0);
		pthread_mutex_unlock(&r->lock);
	}
	pthread_mutex_unlock(&w->lock);
}

/* The tree of a file. */

struct place {
	int above;       /* rank to ask: the owner, or one in the tree */
	unsigned nbelow; /* ranks that will ask */
};

static bool has_file(const struct ofs_manifest *s, uint32_t file, int rank)
{
	const struct ofs_manifest_file *f = &s->file[file];

	for (uint32_t i = f->owner; i < f->owner + f->nowners; i++)
		if (s->owner[i].rank == rank)
			return true;
	return false;
}

/* The tree has its machines from top on, and the ranks of the first one from
 * first on. */
struct tree {
	const struct optimfs_group *w;
	int top, first;
};

/* The rank at place p of machine m; -1: none. */
static int member(const struct tree *t, int m, int p)
{
	const struct optimfs_group *w = t->w;
	int at = (m + t->top) % w->nmachines;
	int n = w->machine[at + 1] - w->machine[at];

	if (m >= w->nmachines || p >= n)
		return -1;
	return w->reader[w->machine[at] + (p + (m == 0 ? t->first : 0)) % n];
}

/* Puts the owner on top, or the next reader of its machine, or the next
 * machine. */
static struct tree find_tree(const struct optimfs_group *w, int owner)
{
	struct tree t = { .w = w };
	int node = w->ops->node(w->w, owner), first = 0, rank;

	while (t.top < w->nmachines &&
	    w->ops->node(w->w, w->reader[w->machine[t.top]]) < node)
		t.top++;
	t.top %= w->nmachines;
	while ((rank = member(&t, 0, first)) != -1 && rank < owner)
		first++;
	if (rank != -1 && w->ops->node(w->w, rank) == node)
		t.first = first;
	return t;
}

/* Finds the place of this rank. */
static bool find_self(const struct tree *t, int *m, int *p)
{
	int rank;

	for (*m = 0; *m < t->w->nmachines; ++*m)
		for (*p = 0; (rank = member(t, *m, *p)) != -1; ++*p)
			if (rank == t->w->rank)
				return true;
	return false;
}

/* False: this rank is not in the tree. */
static bool find_place(const struct ofs_manifest *s, uint32_t file,
    struct place *at)
{
	const struct optimfs_group *w = s->group;
	int owner = s->owner[s->file[file].owner].rank, m, p;
	struct tree t = find_tree(w, owner);

	if (!find_self(&t, &m, &p))
		return false;
	*at = (struct place){ .above = p > 0 ? member(&t, m, (p - 1) / 2)
		    : m > 0                  ? member(&t, (m - 1) / 2, 0)
					     : owner };
	for (int k = 1; k <= 2; k++) {
		int near = member(&t, m, 2 * p + k);
		int far = p > 0 ? -1 : member(&t, 2 * m + k, 0);

		at->nbelow += near != -1 && !has_file(s, file, near);
		at->nbelow += far != -1 && !has_file(s, file, far);
	}
	return true;
}

/* Getting pieces. */

/* From the owners of a file, all at once. While checkpoints are opened, nothing can
 * go on without a rank. */
static int fetch(const struct ofs_manifest *s, const struct ofs_segment *seg,
    size_t n, uint8_t *buf, struct optimfs_error *err)
{
	const struct ofs_manifest_file *f = &s->file[seg->object];
	const struct ofs_owner *o = s->owner + f->owner;
	struct optimfs_error own = { 0 };
	uint32_t nlost = 0;

	while (nlost < f->nowners &&
	    ofs_group_is_lost(s->group, o[nlost].rank, &own))
		nlost++;
	if (nlost < f->nowners) {
		if (ofs_remote_fetch(s, seg, n, buf, &own) == 0)
			return 0;
		for (uint32_t i = 0; i < f->nowners; i++)
			ofs_group_set_lost(s->group, o[i].rank, &own);
	}
	return optimfs_fail_with(err, &own);
}

static int ask_above(const struct ofs_manifest *s, int above,
    struct piece *const *p, size_t n)
{
	struct ofs_call call[PIECES] = { 0 };
	struct ofs_buf b[PIECES] = { 0 };
	int ret = 0;

	for (size_t i = 0; i < n; i++) {
		ofs_wire_u8(&b[i], OFS_WIRE_RELAY);
		ofs_wire_u32(&b[i], s->number);
		ofs_wire_u32(&b[i], p[i]->file);
		ofs_wire_u64(&b[i], p[i]->off);
		ofs_wire_u64(&b[i], p[i]->len);
		call[i] = (struct ofs_call){ .to = above, .request = &b[i] };
	}
	ofs_group_call(s->group, call, n);
	for (size_t i = 0; i < n; i++) {
		const struct ofs_buf *got = &call[i].result;

		if (!call[i].answered)
			ofs_group_set_lost(s->group, above, &call[i].err);
		if (call[i].err.code == 0 && got->len == p[i]->len)
			memcpy(p[i]->bytes, got->data, got->len);
		else
			ret = -1;
		ofs_buf_fini(&call[i].result);
		ofs_buf_fini(&b[i]);
	}
	return ret;
}

/* The lock is held. NULL: no memory. *made: it is new, and has to be got. */
static struct piece *find_piece(struct ofs_relay *r, uint32_t file,
    uint64_t off, uint64_t len, unsigned takers, bool *made)
{
	struct piece *p;

	*made = false;
	TAILQ_FOREACH(p, &r->list, next)
	if (p->file == file && p->off == off && p->len == len &&
	    p->state != LOST)
		return p;
	p = malloc(sizeof(*p) + len);
	if (p == NULL)
		return NULL;
	*p = (struct piece){
		.file = file, .off = off, .len = len, .takers = takers
	};
	TAILQ_INSERT_TAIL(&r->list, p, next);
	r->kept += len;
	*made = true;
	return p;
}

/* Up to PIECES pieces, which this thread or another one gets. False: the tree
 * does not help. */
static bool take(struct ofs_manifest *s, uint32_t file, const struct place *at,
    uint8_t *buf, uint64_t n, uint64_t off)
{
	struct ofs_relay *r = s->relay;
	struct piece *p[PIECES], *mine[PIECES];
	size_t np = 0, nmine = 0;
	uint64_t len;
	bool made, good = true;

	pthread_mutex_lock(&r->lock);
	for (uint64_t done = 0; done < n && good; done += len) {
		len = n - done < PIECE ? n - done : PIECE;
		p[np] =
		    find_piece(r, file, off + done, len, at->nbelow + 1, &made);
		good = p[np] != NULL;
		if (!good)
			break;
		if (made)
			mine[nmine++] = p[np];
		p[np++]->users++;
	}
	pthread_mutex_unlock(&r->lock);
	made = nmine > 0 && ask_above(s, at->above, mine, nmine) == 0;
	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; i < nmine; i++)
		mine[i]->state = made ? HERE : LOST;
	pthread_cond_broadcast(&r->changed);
	for (size_t i = 0; i < np; i++) {
		while (p[i]->state == COMING)
			pthread_cond_wait(&r->changed, &r->lock);
		if (p[i]->state == HERE)
			memcpy(buf + i * PIECE, p[i]->bytes, p[i]->len);
		else
			good = false;
		p[i]->users--;
		p[i]->takers -= p[i]->takers > 0;
	}
	trim(r, r->ended ? 0 : KEPT_MAX);
	pthread_mutex_unlock(&r->lock);
	return good;
}

/* Do several ranks open checkpoints now? */
static bool is_opening(const struct ofs_manifest *s)
{
	const struct optimfs_group *w = s->group;
	bool ended = true;

	if (s->relay != NULL && w->nmachines > 0 &&
	    w->machine[w->nmachines] > 1) {
		pthread_mutex_lock(&s->relay->lock);
		ended = s->relay->ended;
		pthread_mutex_unlock(&s->relay->lock);
	}
	return !ended;
}

int ofs_relay_read(struct ofs_manifest *s, uint32_t file, uint8_t *buf,
    uint64_t n, uint64_t off, struct optimfs_error *err)
{
	struct ofs_segment all = {
		.object = file, .src = off, .len = n, .n = 1
	};
	struct place at;
	uint64_t part;
	bool good;

	if (!is_opening(s))
		return ofs_remote_fetch(s, &all, 1, buf, err);
	good = n >= RELAY_MIN && find_place(s, file, &at);
	for (uint64_t done = 0; done < n && good; done += part) {
		part = n - done < PIECES * PIECE ? n - done : PIECES * PIECE;
		good = take(s, file, &at, buf + done, part, off + done);
	}
	return good ? 0 : fetch(s, &all, 1, buf, err);
}

/* For a rank below. */

static int wait_agreed(struct ofs_relay *r)
{
	int agreed;

	pthread_mutex_lock(&r->lock);
	while (r->agreed == 0)
		pthread_cond_wait(&r->changed, &r->lock);
	agreed = r->agreed;
	pthread_mutex_unlock(&r->lock);
	return agreed == 1 ? 0 : -1;
}

static int read_here(const struct ofs_manifest *s, uint32_t file, uint8_t *buf,
    uint64_t n, uint64_t off, struct optimfs_error *err)
{
	const struct ofs_owner *o = s->owner + s->file[file].owner;
	struct ofs_extent all = { .len = s->file[file].o.size };

	while (o->rank != s->group->rank)
		o++;
	all.object = o->index;
	return ofs_transport_read(s->transport, &all, off, n, buf, err);
}

int ofs_relay_answer(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_manifest *s = q->manifest;
	uint32_t file = ofs_cursor_le32(&q->c);
	uint64_t off = ofs_cursor_le64(&q->c), n = ofs_cursor_le64(&q->c);
	struct ofs_segment seg = {
		.object = file, .src = off, .len = n, .n = 1
	};
	struct place at;
	uint8_t *buf;
	int ret;

	if (q->c.bad || q->result == NULL || s->relay == NULL || n > PIECE ||
	    wait_agreed(s->relay) == -1 || s->group->nmachines == 0 ||
	    file >= s->nfiles || off > s->file[file].o.size ||
	    n > s->file[file].o.size - off)
		return ofs_wire_malformed(err);
	buf = malloc(n + 1);
	if (buf == NULL)
		return ofs_no_memory(err);
	if (s->file[file].here)
		ret = read_here(s, file, buf, n, off, err);
	else if (find_place(s, file, &at) && take(s, file, &at, buf, n, off))
		ret = 0;
	else
		ret = fetch(s, &seg, 1, buf, err);
	if (ret == 0)
		ofs_buf_put(q->result, buf, n);
	free(buf);
	return ret;
}
