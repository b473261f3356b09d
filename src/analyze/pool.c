/* pool.c - threads that read files in chunks and join results in order */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/step.h"
#include "base/team.h"
#include "fs/fs.h"

/* An item in progress. */
struct active {
	struct active *next;
	size_t item;
	struct optimfs_file *file[OFS_POOL_FILES];
	uint64_t joined; /* elements joined so far */
	uint64_t left;   /* chunks in progress or left */
	bool failed, told;
	struct optimfs_error why;
};

struct pool {
	const struct ofs_pool_item *items;
	size_t n;
	const struct ofs_pool_ops *ops;
	void *ctx;
	const struct optimfs_scan *how; /* NULL: all defaults */
	size_t buffer;  /* size of the largest chunk of any file */
	uint64_t total; /* bytes of all items */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Protected by lock: */
	size_t item; /* item of the next chunk */
	uint64_t first;
	bool asking; /* a thread finds out how long the next chunk is */
	struct active *active;
	uint64_t bytes; /* bytes done */
	bool stopped;
	struct optimfs_error why;
};

static void fail(struct pool *p, const struct optimfs_error *why)
{
	if (!p->stopped)
		p->why = *why;
	p->stopped = true;
	pthread_cond_broadcast(&p->changed);
}

static void open_files(struct pool *p, struct active *a)
{
	const struct ofs_pool_item *it = &p->items[a->item];

	for (unsigned i = 0; i < it->nfiles && !a->failed; i++)
		a->failed = optimfs_file_open(it->file[i].fs, it->file[i].node,
				&a->file[i], &a->why) == -1;
}

/* The number of chunks of an item from element first on. */
static uint64_t chunks(const struct ofs_pool_item *it, uint64_t first)
{
	uint64_t n = it->elements - first;

	return n == 0 ? 0 : (n - 1) / it->chunk + 1;
}

static struct active *begin_item(struct pool *p, size_t item)
{
	const struct ofs_pool_item *it = &p->items[item];
	struct active *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return NULL;
	a->item = item;
	a->left = it->elements == 0 ? 1 : chunks(it, 0);
	a->next = p->active;
	p->active = a;
	open_files(p, a);
	return a;
}

static struct active *find_active(struct pool *p, size_t item)
{
	struct active *a = p->active;

	while (a->item != item)
		a = a->next;
	return a;
}

static void end_item(struct pool *p, struct active *a)
{
	struct active **at = &p->active;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	for (unsigned i = 0; i < OFS_POOL_FILES; i++)
		optimfs_file_close(a->file[i]);
	free(a);
}

static void ask_to_stop(struct pool *p)
{
	struct optimfs_error why;

	if (p->how != NULL && ofs_go_on(p->how->stop, p->how->ctx, &why) == -1)
		fail(p, &why);
}

/* An index may claim any number of elements: once a chunk of an item could not
 * be read, nobody takes the others. The lock is held. */
static void give_up(struct pool *p, struct active *a)
{
	const struct ofs_pool_item *it = &p->items[a->item];

	if (p->item != a->item || p->first == 0)
		return; /* all are taken */
	a->left -= chunks(it, p->first);
	for (unsigned i = 0; i < it->nfiles; i++)
		p->bytes += (it->elements - p->first) * it->file[i].size;
	p->item++;
	p->first = 0;
}

/* The number of chunks from first on, at least one, with equal elements. */
static uint64_t equal_chunks(const struct ofs_pool_item *it,
    const struct active *a, uint64_t first)
{
	uint64_t n = it->elements - first;

	for (unsigned i = 0; i < it->nfiles && n > 0; i++)
		n = ofs_file_alike(a->file[i], first, 2 * it->chunk, n);
	return n < it->chunk ? 1 : n / it->chunk;
}

/* To find that out may take reading, so others wait without the lock. It comes
 * with the lock and leaves with it. c is taken: if another chunk has failed
 * meanwhile, nothing comes after it. */
static void take_equal(struct pool *p, struct active *a,
    struct ofs_pool_chunk *c)
{
	uint64_t times;

	p->asking = true;
	pthread_mutex_unlock(&p->lock);
	times = equal_chunks(&p->items[a->item], a, c->first);
	pthread_mutex_lock(&p->lock);
	p->asking = false;
	pthread_cond_broadcast(&p->changed);
	if (a->failed)
		return;
	c->times = times;
	a->left -= times - 1;
	p->first += (times - 1) * c->n;
}

/* Takes the next chunk; returns its item, NULL at the end. The lock is held. */
static struct active *take(struct pool *p, struct ofs_pool_chunk *c)
{
	const struct ofs_pool_item *it;
	struct optimfs_error why;
	struct active *a;

	while (p->asking)
		pthread_cond_wait(&p->changed, &p->lock);
	ask_to_stop(p);
	if (p->stopped || p->item == p->n)
		return NULL;
	it = &p->items[p->item];
	a = p->first == 0 ? begin_item(p, p->item) : find_active(p, p->item);
	if (a == NULL) {
		ofs_no_memory(&why);
		fail(p, &why);
		return NULL;
	}
	c->item = p->item;
	c->first = p->first;
	c->n = it->elements - p->first < it->chunk
	    ? (size_t)(it->elements - p->first)
	    : (size_t)it->chunk;
	c->times = 1;
	p->first += c->n;
	if (!a->failed && it->elements - p->first >= it->chunk)
		take_equal(p, a, c);
	c->last = p->item != c->item || p->first == it->elements;
	if (p->item == c->item && c->last) {
		p->item++;
		p->first = 0;
	}
	return a;
}

/* Reads n elements from first on into buf. */
static int read_files(const struct ofs_pool_item *it, const struct active *a,
    uint64_t first, size_t n, uint8_t *const buf[], struct optimfs_error *err)
{
	for (unsigned i = 0; i < it->nfiles; i++) {
		size_t size = it->file[i].size;
		ssize_t k = optimfs_file_read(a->file[i], buf[i], n * size,
		    first * size, err);

		if (k == -1)
			return -1;
		if ((size_t)k != n * size)
			return optimfs_fail(err, ESTALE,
			    "the file became shorter");
	}
	return 0;
}

/* Reads a chunk and works on it. If it cannot be read, *failed and *why are
 * set. */
static int do_pieces(struct pool *p, const struct active *a, void *mine,
    const struct ofs_pool_chunk *c, bool *failed, struct optimfs_error *why,
    struct optimfs_error *err)
{
	const struct ofs_pool_item *it = &p->items[c->item];
	struct ofs_pool_chunk piece = *c;
	uint8_t *at[OFS_POOL_FILES];
	size_t done = 0;

	do {
		piece.first = c->first + done;
		piece.n = c->n - done;
		if (it->piece > 0 && piece.n > it->piece)
			piece.n = it->piece;
		for (unsigned i = 0; i < it->nfiles; i++)
			piece.buf[i] = at[i] =
			    (uint8_t *)c->buf[i] + done * it->file[i].size;
		*failed =
		    read_files(it, a, piece.first, piece.n, at, why) == -1;
		if (!*failed && p->ops->work(p->ctx, mine, &piece, err) == -1)
			return -1;
		done += piece.n;
	} while (!*failed && done < c->n);
	return 0;
}

/* Waits until all chunks before first are joined. The lock is held. */
static void wait_turn(struct pool *p, const struct active *a, uint64_t first)
{
	while (!p->stopped && a->joined != first)
		pthread_cond_wait(&p->changed, &p->lock);
}

/* Comes with the lock and leaves with it. */
static void finish(struct pool *p, struct active *a, void *mine,
    const struct ofs_pool_chunk *c, bool failed,
    const struct optimfs_error *why)
{
	struct optimfs_error err;
	bool tell, join;

	wait_turn(p, a, c->first);
	if (failed && !a->failed) {
		a->failed = true;
		a->why = *why;
	}
	if (a->failed)
		give_up(p, a);
	tell = a->failed && !a->told && !p->stopped;
	join = !a->failed && !p->stopped;
	a->told |= tell;
	pthread_mutex_unlock(&p->lock);
	if (tell)
		p->ops->failed(p->ctx, c->item, &a->why);
	if (join && p->ops->join(p->ctx, mine, c, &err) == -1) {
		pthread_mutex_lock(&p->lock);
		fail(p, &err);
	} else {
		pthread_mutex_lock(&p->lock);
	}
	a->joined += c->n * c->times;
	for (unsigned i = 0; i < p->items[c->item].nfiles; i++)
		p->bytes += c->n * c->times * p->items[c->item].file[i].size;
	pthread_cond_broadcast(&p->changed);
	if (--a->left == 0)
		end_item(p, a);
}

/* Comes with the lock and leaves with it. */
static void do_chunk(struct pool *p, struct active *a, void *mine,
    struct ofs_pool_chunk *c, uint8_t *const buf[])
{
	struct optimfs_error why = { 0 }, err;
	bool failed = a->failed;

	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < OFS_POOL_FILES; i++)
		c->buf[i] = buf[i];
	if (!failed && do_pieces(p, a, mine, c, &failed, &why, &err) == -1) {
		pthread_mutex_lock(&p->lock);
		fail(p, &err);
	} else {
		pthread_mutex_lock(&p->lock);
	}
	finish(p, a, mine, c, failed, &why);
}

static void work(void *ctx, unsigned index)
{
	struct pool *p = ctx;
	uint8_t *all = ofs_alloc_huge(OFS_POOL_FILES * p->buffer);
	uint8_t *buf[OFS_POOL_FILES];
	struct optimfs_error err;
	struct ofs_pool_chunk c;
	struct active *a;
	void *mine = ofs_alloc(1, p->ops->mine, &err);

	(void)index;
	if (all == NULL)
		ofs_no_memory(&err);
	pthread_mutex_lock(&p->lock);
	if (all == NULL || mine == NULL)
		fail(p, &err);
	for (unsigned i = 0; all != NULL && i < OFS_POOL_FILES; i++)
		buf[i] = all + i * p->buffer;
	while ((a = take(p, &c)) != NULL)
		do_chunk(p, a, mine, &c, buf);
	pthread_mutex_unlock(&p->lock);
	if (p->ops->fini != NULL && mine != NULL)
		p->ops->fini(mine);
	free(mine);
	free(all);
}

static void tick(void *ctx)
{
	struct pool *p = ctx;
	uint64_t bytes;

	pthread_mutex_lock(&p->lock);
	bytes = p->bytes;
	pthread_mutex_unlock(&p->lock);
	if (p->how != NULL && p->how->progress != NULL)
		p->how->progress(p->how->ctx, bytes, p->total);
}

/* Computes the bytes of all items and the size of the largest chunk. */
static uint64_t measure(struct pool *p)
{
	uint64_t total = 0;

	p->buffer = 1;
	for (size_t i = 0; i < p->n; i++)
		for (unsigned k = 0; k < p->items[i].nfiles; k++) {
			const struct ofs_pool_item *it = &p->items[i];
			uint64_t n =
			    it->elements < it->chunk ? it->elements : it->chunk;

			total += it->elements * it->file[k].size;
			if (n * it->file[k].size > p->buffer)
				p->buffer = n * it->file[k].size;
		}
	return total;
}

int ofs_pool_run(const struct ofs_pool_item *items, size_t n,
    const struct optimfs_scan *how, const struct ofs_pool_ops *ops, void *ctx,
    struct optimfs_error *err)
{
	struct pool p = {
		.items = items, .n = n, .ops = ops, .ctx = ctx, .how = how
	};

	p.total = measure(&p);
	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.changed, NULL);
	ofs_team_run(ofs_team_size(how == NULL ? 0 : how->jobs), work, tick,
	    &p);
	while (p.active != NULL)
		end_item(&p, p.active);
	pthread_cond_destroy(&p.changed);
	pthread_mutex_destroy(&p.lock);
	if (!p.stopped)
		return 0;
	if (err != NULL)
		*err = p.why;
	return -1;
}
