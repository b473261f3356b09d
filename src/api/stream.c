/* stream.c - a whole file, piece by piece */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "fs/fs.h"

/* Of a file here, and of one that was fetched from a server at once: a piece that
 * stays in the cache of a processor. */
#define NEAR_SIZE ((size_t)1 << 20)
/* So many pieces of what is worth reading at once are read together: while the
 * last bytes of one come, others are on their way. */
#define READERS 2

struct stream {
	struct optimfs_file *file;
	uint64_t size, step;
	/* Held to take the next piece, and to look where it is stored: that of
	 * the piece before is known then. */
	pthread_mutex_t order;
	pthread_mutex_t lock; /* protects what follows */
	pthread_cond_t moved;
	uint64_t taken, given; /* pieces */
	bool stop;
	struct piece {
		uint8_t *buf;
		ssize_t n;
		bool full;
		struct optimfs_error err;
	} piece[READERS]; /* piece k is in k % READERS */
};

static bool has_room(const struct stream *s)
{
	return s->taken < s->given + READERS;
}

/* The place of the next piece in the file. false: there is none. */
static bool take(struct stream *s, uint64_t *off, uint64_t *len)
{
	bool is;

	pthread_mutex_lock(&s->lock);
	*off = s->taken * s->step;
	is = *off < s->size;
	while (is && !s->stop && !has_room(s))
		pthread_cond_wait(&s->moved, &s->lock);
	is = is && !s->stop;
	s->taken += is;
	pthread_mutex_unlock(&s->lock);
	*len = s->size - *off < s->step ? s->size - *off : s->step;
	return is;
}

static bool take_and_prepare(struct stream *s, uint64_t *off, uint64_t *len)
{
	bool is;

	pthread_mutex_lock(&s->order);
	is = take(s, off, len);
	if (is)
		(void)ofs_file_prepare(s->file, *off, *len);
	pthread_mutex_unlock(&s->order);
	return is;
}

static void *read_pieces(void *ctx)
{
	struct stream *s = ctx;
	uint64_t off, len;

	while (take_and_prepare(s, &off, &len)) {
		struct piece *p = &s->piece[off / s->step % READERS];

		p->n = optimfs_file_read(s->file, p->buf, (size_t)len, off,
		    &p->err);
		pthread_mutex_lock(&s->lock);
		p->full = true;
		pthread_cond_broadcast(&s->moved);
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

static int give(struct stream *s, optimfs_sink_fn *sink, void *ctx,
    struct optimfs_error *err)
{
	int ret = 0;

	for (uint64_t off = 0; ret == 0 && off < s->size; off += s->step) {
		struct piece *p = &s->piece[s->given % READERS];

		pthread_mutex_lock(&s->lock);
		while (!p->full)
			pthread_cond_wait(&s->moved, &s->lock);
		pthread_mutex_unlock(&s->lock);
		ret = p->n == -1 ? optimfs_fail_with(err, &p->err)
				 : sink(ctx, p->buf, (size_t)p->n, err);
		pthread_mutex_lock(&s->lock);
		p->full = false;
		s->given++;
		pthread_cond_broadcast(&s->moved);
		pthread_mutex_unlock(&s->lock);
	}
	return ret;
}

static void end(struct stream *s, pthread_t *thread, size_t n)
{
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->moved);
	pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	pthread_mutex_destroy(&s->order);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->moved);
	for (size_t i = 0; i < READERS; i++)
		free(s->piece[i].buf);
}

/* Several pieces at a time. 1: there is no room for that. */
static int read_together(struct stream *s, optimfs_sink_fn *sink, void *ctx,
    struct optimfs_error *err)
{
	pthread_t thread[READERS];
	size_t n = 0;
	bool room = true;
	int ret = 1;

	pthread_mutex_init(&s->order, NULL);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->moved, NULL);
	for (size_t i = 0; i < READERS; i++) {
		s->piece[i].buf = ofs_alloc_huge((size_t)s->step);
		room = room && s->piece[i].buf != NULL;
	}
	while (room && n < READERS &&
	    pthread_create(&thread[n], NULL, read_pieces, s) == 0)
		n++;
	if (n > 0)
		ret = give(s, sink, ctx, err);
	end(s, thread, n);
	return ret;
}

/* One piece after the other. */
static int read_on(struct optimfs_file *file, size_t step,
    optimfs_sink_fn *sink, void *ctx, struct optimfs_error *err)
{
	void *buf = ofs_alloc_huge(step);
	uint64_t size = optimfs_file_size(file), off = 0, given;
	ssize_t n = 1;
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	for (; ret == 0 && n != 0; off += given) {
		given = off < size && size - off < step ? size - off : step;
		ret = ofs_file_pass(file, off, &given, sink, ctx, err);
		if (ret == -1 || given > 0)
			continue;
		n = optimfs_file_read(file, buf, step, off, err);
		given = n > 0 ? (uint64_t)n : 0;
		ret = n <= 0 ? (int)n : sink(ctx, buf, (size_t)n, err);
	}
	free(buf);
	return ret;
}

int optimfs_file_stream(struct optimfs_file *file, optimfs_sink_fn *sink,
    void *ctx, struct optimfs_error *err)
{
	uint64_t most = ofs_file_at_once(file);
	struct stream s = { .file = file,
		.size = optimfs_file_size(file),
		.step = most / READERS };
	void *stream =
	    s.size > NEAR_SIZE && s.size <= most ? ofs_file_stream(file) : NULL;
	int ret = 1;

	/* all of it is on its way, and comes in order */
	if (stream != NULL) {
		ret = read_on(file, NEAR_SIZE, sink, ctx, err);
		ofs_file_streamed(file, stream);
		return ret;
	}
	if (most == 0 || s.size <= NEAR_SIZE ||
	    (s.size <= most && ofs_file_prepare(file, 0, s.size)))
		return read_on(file, NEAR_SIZE, sink, ctx, err);
	if (s.size > s.step)
		ret = read_together(&s, sink, ctx, err);
	return ret == 1 ? read_on(file, (size_t)s.step, sink, ctx, err) : ret;
}
