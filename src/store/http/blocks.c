/* blocks.c - the last blocks of files that were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/blocks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/memory.h"

#define BUCKETS 1024
/* How long the reader of a flow waits for the first byte, before all of them may
 * come; and for as many bytes as are kept ahead of him at first, before twice as
 * many are. */
#define LATENCY_NS  (INT64_C(16) * 1000000)
#define PATIENCE_NS (INT64_C(48) * 1000000)
/* Who waits for a block to pass it on is woken when so many more are there. */
#define MORE 3

#define BLOCK ((size_t)OFS_HTTP_BLOCK)

struct block {
	LIST_ENTRY(block) same; /* bucket */
	struct ofs_http_slab *slab;
	uint8_t *p; /* of a flow: NULL: nothing of it is here */
	uint64_t number;
	uint32_t file;
	size_t n;
	bool is_known; /* no other one has taken its place */
};

/* What came together, and goes together: to copy each block to memory of its own
 * would take longer than to receive it. */
struct ofs_http_slab {
	TAILQ_ENTRY(ofs_http_slab) age;
	uint8_t *p;
	size_t bytes, nblocks, holders;
	bool is_dropped; /* the last holder frees it */
	/* Of a flow, where each block has memory of its own: */
	struct ofs_http_flow *flow; /* NULL: it is none, and all is here */
	SLIST_ENTRY(ofs_http_slab) next;
	uint64_t start; /* its place in what is read */
	size_t came;    /* bytes, of whole blocks or all */
	size_t got;     /* bytes, known to the one who adds them only */
	size_t passed;  /* blocks that are forgotten */
	size_t woken;   /* bytes that somebody waits for */
	bool is_wanted; /* somebody has waited for it */
	bool is_over;   /* nobody will, any more */
	struct block block[];
};

struct ofs_http_flow {
	struct ofs_http_blocks *b;
	void (*room)(void *ctx);
	void *ctx;
	SLIST_HEAD(, ofs_http_slab) slabs;
	size_t refs;                   /* slabs, and the owner */
	struct ofs_http_slab *reading; /* where a block was held last */
	size_t at;                     /* its number in it */
	uint8_t *memory;               /* for most bytes */
	void *spare;                   /* a list of blocks of it */
	size_t most, touched;
	uint64_t least, ahead; /* bytes: at first, and now */
	uint64_t asked_at; /* where the reader was when there was room last */
	size_t gained;     /* bytes for which he has waited ... */
	int64_t waited_ns; /* so long */
	bool has_begun, has_refused, is_stopped;
};

struct ofs_http_blocks {
	pthread_mutex_t lock;
	pthread_cond_t moved;             /* in a flow */
	size_t have, most;                /* bytes, without flows */
	TAILQ_HEAD(, ofs_http_slab) ages; /* least recently used first */
	LIST_HEAD(, block) bucket[BUCKETS];
};

struct ofs_http_blocks *ofs_http_blocks_new(size_t most,
    struct optimfs_error *err)
{
	struct ofs_http_blocks *b = ofs_alloc(1, sizeof(*b), err);

	if (b == NULL)
		return NULL;
	b->most = most;
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->moved, NULL);
	TAILQ_INIT(&b->ages);
	return b;
}

static size_t blocks_of(size_t bytes)
{
	return (bytes + BLOCK - 1) / BLOCK;
}

static void forget_block(struct block *k)
{
	if (k->is_known)
		LIST_REMOVE(k, same);
	k->is_known = false;
}

static void let_flow(struct ofs_http_flow *f)
{
	if (f == NULL || --f->refs > 0)
		return;
	free(f->memory);
	free(f);
}

static void free_slab(struct ofs_http_slab *s)
{
	let_flow(s->flow);
	free(s->p);
	free(s);
}

static struct ofs_http_slab *new_slab(uint32_t file, uint64_t number, size_t n)
{
	size_t nblocks = blocks_of(n);
	struct ofs_http_slab *s =
	    calloc(1, sizeof(*s) + nblocks * sizeof(*s->block));

	if (s == NULL)
		return NULL;
	s->bytes = n;
	s->nblocks = nblocks;
	for (size_t i = 0; i < nblocks; i++) {
		size_t left = n - i * BLOCK;

		s->block[i].slab = s;
		s->block[i].n = left < BLOCK ? left : BLOCK;
		s->block[i].file = file;
		s->block[i].number = number + i;
	}
	return s;
}

static void drop_slab(struct ofs_http_blocks *b, struct ofs_http_slab *s)
{
	for (size_t i = 0; i < s->nblocks; i++)
		forget_block(&s->block[i]);
	TAILQ_REMOVE(&b->ages, s, age);
	b->have -= s->bytes;
	s->is_dropped = true;
	if (s->holders == 0)
		free_slab(s);
}

void ofs_http_blocks_free(struct ofs_http_blocks *b)
{
	if (b == NULL)
		return;
	while (!TAILQ_EMPTY(&b->ages))
		drop_slab(b, TAILQ_FIRST(&b->ages));
	pthread_mutex_destroy(&b->lock);
	pthread_cond_destroy(&b->moved);
	free(b);
}

static size_t bucket_of(uint32_t file, uint64_t number)
{
	return (size_t)((number + file * UINT64_C(0x9E3779B1)) % BUCKETS);
}

/* The lock is held. */
static struct block *find_block(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number)
{
	struct block *k;

	LIST_FOREACH(k, &b->bucket[bucket_of(file, number)], same)
	if (k->file == file && k->number == number)
		break;
	return k;
}

/* Flows. The lock is held. */

static bool has_come(const struct block *k)
{
	const struct ofs_http_slab *s = k->slab;
	size_t i = (size_t)(k - s->block);

	return s->flow == NULL || s->came >= i * BLOCK + k->n;
}

static uint64_t reader_at(const struct ofs_http_flow *f)
{
	return f->reading == NULL ? 0 : f->reading->start + f->at * BLOCK;
}

static void make_room(struct ofs_http_flow *f)
{
	f->asked_at = reader_at(f);
	if (f->has_refused)
		f->room(f->ctx);
	f->has_refused = false;
}

/* Is the server so slow that more should be under way? */
static bool goes_further(struct ofs_http_flow *f, int64_t waited_ns)
{
	f->waited_ns += waited_ns;
	if (f->ahead >= f->most ||
	    f->waited_ns < (f->has_begun ? PATIENCE_NS : LATENCY_NS))
		return false;
	f->ahead = f->has_begun ? f->ahead * 2 : f->most;
	f->waited_ns = 0;
	return true;
}

/* Whoever waits gets what he waits for, however far ahead that is. */
static void want(struct ofs_http_slab *s, int64_t waited_ns)
{
	bool is_new = !s->is_wanted;

	if (s->flow == NULL)
		return;
	s->is_wanted = true;
	if (goes_further(s->flow, waited_ns) || is_new)
		make_room(s->flow);
}

static void wake_at(const struct block *k, size_t n)
{
	struct ofs_http_slab *s = k->slab;
	size_t end = ((size_t)(k - s->block) + 1 + n) * BLOCK;

	if (end > s->bytes)
		end = s->bytes;
	if (s->woken > end)
		s->woken = end;
}

/* A block that is here, or comes. If it has to, so have the next n after it, for
 * some time. */
static struct block *await_block(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, size_t n)
{
	struct block *k;
	int64_t waited_ns = 0, began_ns;

	while ((k = find_block(b, file, number)) != NULL && !has_come(k)) {
		want(k->slab, waited_ns);
		wake_at(k, n);
		began_ns = ofs_clock_ns();
		(void)ofs_clock_wait(&b->moved, &b->lock, LATENCY_NS);
		waited_ns = ofs_clock_ns() - began_ns;
	}
	if (k != NULL && waited_ns > 0)
		want(k->slab, waited_ns);
	return k;
}

/* In huge pages: 17 MiB of small ones take 4200 faults, and an eighth more of the
 * processor time of a tensor of 64 MiB. */
static uint8_t *take_memory(struct ofs_http_flow *f)
{
	uint8_t *p = f->spare;

	if (p != NULL) {
		memcpy(&f->spare, p, sizeof(f->spare));
		return p;
	}
	if (f->memory == NULL)
		f->memory = ofs_alloc_huge(f->most);
	if (f->memory == NULL)
		return NULL;
	p = f->memory + f->touched;
	f->touched += BLOCK;
	return p;
}

static void forget_memory(struct block *k)
{
	struct ofs_http_flow *f = k->slab->flow;

	forget_block(k);
	if (k->p == NULL)
		return;
	memcpy(k->p, &f->spare, sizeof(f->spare));
	f->spare = k->p;
	k->p = NULL;
}

static void forget_before(struct ofs_http_slab *s, size_t i)
{
	for (; s->passed < i && s->holders <= 1; s->passed++) {
		forget_memory(&s->block[s->passed]);
		s->flow->gained += BLOCK;
	}
	if (s->flow->gained >= s->flow->least) {
		s->flow->gained = 0;
		s->flow->waited_ns = 0;
	}
}

/* Of a slab that is read to its end, the rest is thrown away. */
static void forget_rest(struct ofs_http_slab *s)
{
	s->is_over = true;
	for (size_t i = s->passed; i < s->nblocks; i++)
		forget_block(&s->block[i]);
	while (s->passed < s->nblocks && has_come(&s->block[s->passed]))
		forget_memory(&s->block[s->passed++]);
}

static void read_onward(struct block *k)
{
	struct ofs_http_slab *s = k->slab;
	struct ofs_http_flow *f = s->flow;
	struct ofs_http_slab *was = f->reading;

	if (was != NULL && was != s && f->at + 2 >= was->nblocks &&
	    was->holders == 0)
		forget_rest(was);
	f->reading = s;
	f->at = (size_t)(k - s->block);
	forget_before(s, f->at);
	if (reader_at(f) >= f->asked_at + f->ahead / 4)
		make_room(f);
}

bool ofs_http_blocks_has(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number)
{
	bool has;

	pthread_mutex_lock(&b->lock);
	has = find_block(b, file, number) != NULL;
	pthread_mutex_unlock(&b->lock);
	return has;
}

bool ofs_http_blocks_get(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, size_t off, void *out, size_t n)
{
	struct block *k;
	bool found;

	pthread_mutex_lock(&b->lock);
	k = await_block(b, file, number, 0);
	found = k != NULL && off <= k->n && n <= k->n - off;
	if (found)
		memcpy(out, k->p + off, n);
	if (found && k->slab->flow == NULL) {
		TAILQ_REMOVE(&b->ages, k->slab, age);
		TAILQ_INSERT_TAIL(&b->ages, k->slab, age);
	}
	pthread_mutex_unlock(&b->lock);
	return found;
}

const uint8_t *ofs_http_blocks_hold(struct ofs_http_blocks *b, uint32_t file,
    uint64_t off, uint64_t *n, void **held)
{
	const uint8_t *p = NULL;
	struct block *k;
	uint64_t skip, most;

	pthread_mutex_lock(&b->lock);
	k = await_block(b, file, off / OFS_HTTP_BLOCK, MORE);
	skip = off % OFS_HTTP_BLOCK;
	if (k != NULL && skip < k->n) {
		p = k->p + skip;
		most = k->slab->flow != NULL
		    ? k->n - skip
		    : k->slab->bytes - (uint64_t)(p - k->slab->p);
		if (*n > most)
			*n = most;
		k->slab->holders++;
		*held = k->slab;
		if (k->slab->flow != NULL)
			read_onward(k);
	}
	pthread_mutex_unlock(&b->lock);
	return p;
}

void ofs_http_blocks_let(struct ofs_http_blocks *b, void *held)
{
	struct ofs_http_slab *s = held;

	pthread_mutex_lock(&b->lock);
	if (--s->holders == 0 && s->is_dropped)
		free_slab(s);
	pthread_mutex_unlock(&b->lock);
}

/* The lock is held. */
static void add_block(struct ofs_http_blocks *b, struct block *k)
{
	struct block *old = find_block(b, k->file, k->number);

	if (old != NULL)
		forget_block(old);
	LIST_INSERT_HEAD(&b->bucket[bucket_of(k->file, k->number)], k, same);
	k->is_known = true;
}

void ofs_http_blocks_give(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, uint8_t *p, size_t n)
{
	struct ofs_http_slab *s = new_slab(file, number, n);

	if (s == NULL || p == NULL) {
		free(s);
		free(p);
		return; /* it will be fetched again */
	}
	s->p = p;
	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < s->nblocks; i++) {
		s->block[i].p = p + i * BLOCK;
		add_block(b, &s->block[i]);
	}
	TAILQ_INSERT_TAIL(&b->ages, s, age);
	b->have += n;
	while (b->have > b->most && TAILQ_FIRST(&b->ages) != s)
		drop_slab(b, TAILQ_FIRST(&b->ages));
	pthread_mutex_unlock(&b->lock);
}

void ofs_http_blocks_put(struct ofs_http_blocks *b, uint32_t file,
    uint64_t number, const void *p, size_t n)
{
	uint8_t *copy = malloc(n);

	if (copy != NULL)
		memcpy(copy, p, n);
	ofs_http_blocks_give(b, file, number, copy, n);
}

struct ofs_http_flow *ofs_http_flow_new(struct ofs_http_blocks *b,
    uint64_t ahead, void (*room)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_http_flow *f = ofs_alloc(1, sizeof(*f), err);

	if (f == NULL)
		return NULL;
	f->b = b;
	f->room = room;
	f->ctx = ctx;
	f->least = f->ahead = ahead;
	f->refs = 1;
	SLIST_INIT(&f->slabs);
	return f;
}

struct ofs_http_slab *ofs_http_flow_expect(struct ofs_http_flow *f,
    uint64_t start, uint32_t file, uint64_t number, size_t n,
    struct optimfs_error *err)
{
	struct ofs_http_slab *s = new_slab(file, number, n);

	if (s == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	pthread_mutex_lock(&f->b->lock);
	s->flow = f;
	s->start = start;
	s->woken = SIZE_MAX;
	f->refs++;
	f->most += s->nblocks * BLOCK;
	SLIST_INSERT_HEAD(&f->slabs, s, next);
	for (size_t i = 0; i < s->nblocks; i++)
		add_block(f->b, &s->block[i]);
	pthread_mutex_unlock(&f->b->lock);
	return s;
}

/* Is there memory for the next n bytes? The lock is held. */
static enum ofs_http_take find_memory(struct ofs_http_slab *s, size_t n)
{
	struct ofs_http_flow *f = s->flow;
	size_t i = blocks_of(s->got), end = blocks_of(s->got + n);

	f->has_begun = true;
	if (f->is_stopped || n > s->bytes - s->got)
		return OFS_HTTP_NEVER;
	if (s->is_over)
		return OFS_HTTP_TAKEN;
	if (!s->is_wanted &&
	    s->start + s->got + (n == 0 ? BLOCK : n) >
		reader_at(f) + f->ahead) {
		f->has_refused = true;
		return OFS_HTTP_LATER;
	}
	for (; i < end; i++) {
		s->block[i].p = take_memory(f);
		if (s->block[i].p == NULL)
			return OFS_HTTP_NEVER;
	}
	return OFS_HTTP_TAKEN;
}

/* Nobody else looks at a block that has not come. */
static void fill_blocks(struct ofs_http_slab *s, const uint8_t *p, size_t n)
{
	size_t k;

	for (; n > 0; n -= k, p += k, s->got += k) {
		struct block *b = &s->block[s->got / BLOCK];
		size_t at = s->got % BLOCK;

		k = BLOCK - at < n ? BLOCK - at : n;
		if (b->p != NULL)
			memcpy(b->p + at, p, k);
	}
}

/* Do the next n bytes begin no block, and end none? Then nobody has to know: they
 * are of a block that has memory, and libcurl gives 16 KiB at a time. */
static bool is_within(const struct ofs_http_slab *s, size_t n)
{
	size_t at = s->got % BLOCK;

	return n > 0 && at > 0 && n < BLOCK - at && n < s->bytes - s->got;
}

enum ofs_http_take ofs_http_flow_take(struct ofs_http_slab *s, const void *p,
    size_t n)
{
	struct ofs_http_blocks *b = s->flow->b;
	enum ofs_http_take found;

	if (is_within(s, n)) {
		fill_blocks(s, p, n);
		return OFS_HTTP_TAKEN;
	}
	pthread_mutex_lock(&b->lock);
	found = find_memory(s, n);
	pthread_mutex_unlock(&b->lock);
	if (found != OFS_HTTP_TAKEN)
		return found;
	fill_blocks(s, p, n);
	pthread_mutex_lock(&b->lock);
	s->came = s->got < s->bytes ? s->got - s->got % BLOCK : s->got;
	if (s->came >= s->woken) {
		s->woken = SIZE_MAX;
		pthread_cond_broadcast(&b->moved);
	}
	if (s->is_over)
		forget_rest(s);
	pthread_mutex_unlock(&b->lock);
	return OFS_HTTP_TAKEN;
}

void ofs_http_flow_end(struct ofs_http_slab *s)
{
	struct ofs_http_blocks *b = s->flow->b;

	pthread_mutex_lock(&b->lock);
	for (size_t i = s->passed; i < s->nblocks; i++)
		if (!has_come(&s->block[i]))
			forget_memory(&s->block[i]);
	pthread_cond_broadcast(&b->moved);
	pthread_mutex_unlock(&b->lock);
}

void ofs_http_flow_stop(struct ofs_http_flow *f)
{
	pthread_mutex_lock(&f->b->lock);
	f->is_stopped = true;
	make_room(f);
	pthread_mutex_unlock(&f->b->lock);
}

void ofs_http_flow_free(struct ofs_http_flow *f)
{
	struct ofs_http_blocks *b;
	struct ofs_http_slab *s;

	if (f == NULL)
		return;
	b = f->b;
	pthread_mutex_lock(&b->lock);
	while ((s = SLIST_FIRST(&f->slabs)) != NULL) {
		SLIST_REMOVE_HEAD(&f->slabs, next);
		for (size_t i = 0; i < s->nblocks; i++)
			forget_block(&s->block[i]);
		s->is_dropped = true;
		if (s->holders == 0)
			free_slab(s);
	}
	let_flow(f);
	pthread_mutex_unlock(&b->lock);
}
