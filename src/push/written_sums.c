/* written_sums.c - checksums of bytes as they are written */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/written_sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"

/* Shorter runs are not kept unless they join another: recomputing them takes
 * one short read. */
#define LEAST 4096
/* Limit per file, for writers that jump about. */
#define MOST 4096

struct run {
	uint64_t off, len;
	uint32_t crc;
};

struct file {
	struct run *v; /* sorted, not adjacent */
	size_t n, cap;
};

struct ofs_written_sums {
	pthread_mutex_t lock;
	uint32_t n;
	struct file file[];
};

struct ofs_written_sums *ofs_written_sums_new(uint32_t n,
    struct optimfs_error *err)
{
	struct ofs_written_sums *s =
	    ofs_alloc(1, sizeof(*s) + n * sizeof(s->file[0]), err);

	if (s == NULL)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	s->n = n;
	return s;
}

void ofs_written_sums_free(struct ofs_written_sums *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->n; i++)
		free(s->file[i].v);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* The first run that ends after off. */
static size_t find(const struct file *f, uint64_t off)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (f->v[mid].off + f->v[mid].len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void remove_runs(struct file *f, size_t from, size_t to)
{
	memmove(&f->v[from], &f->v[to], (f->n - to) * sizeof(*f->v));
	f->n -= to - from;
}

void ofs_written_sums_forget(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len)
{
	struct file *f = &s->file[file];
	size_t from, to;

	pthread_mutex_lock(&s->lock);
	from = to = find(f, off);
	while (to < f->n && f->v[to].off < off + len)
		to++;
	if (to > from)
		remove_runs(f, from, to);
	pthread_mutex_unlock(&s->lock);
}

static void insert(struct file *f, size_t i, const struct run *r)
{
	if (r->len < LEAST || f->n >= MOST ||
	    ofs_grow(f->v, f->n, f->cap, NULL) == -1)
		return;
	memmove(&f->v[i + 1], &f->v[i], (f->n - i) * sizeof(*f->v));
	f->v[i] = *r;
	f->n++;
}

static bool touches(const struct run *a, const struct run *b)
{
	return a->off + a->len == b->off;
}

static void join(struct run *a, const struct run *b)
{
	a->crc = ofs_crc32_combine(a->crc, b->crc, b->len);
	a->len += b->len;
}

void ofs_written_sums_add(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t crc)
{
	struct file *f = &s->file[file];
	struct run r = { off, len, crc };
	size_t i;

	pthread_mutex_lock(&s->lock);
	i = find(f, off);
	if (i > 0 && touches(&f->v[i - 1], &r)) {
		join(&f->v[--i], &r);
	} else if (i < f->n && touches(&r, &f->v[i])) {
		join(&r, &f->v[i]);
		f->v[i] = r;
	} else {
		insert(f, i, &r);
	}
	if (i + 1 < f->n && touches(&f->v[i], &f->v[i + 1])) {
		join(&f->v[i], &f->v[i + 1]);
		remove_runs(f, i + 1, i + 2);
	}
	pthread_mutex_unlock(&s->lock);
}

bool ofs_written_sums_get(struct ofs_written_sums *s, uint32_t file,
    uint64_t off, uint64_t len, uint32_t *crc)
{
	const struct file *f = &s->file[file];
	bool known;
	size_t i;

	pthread_mutex_lock(&s->lock);
	i = find(f, off);
	known = i < f->n && f->v[i].off == off && f->v[i].len == len;
	if (known)
		*crc = f->v[i].crc;
	pthread_mutex_unlock(&s->lock);
	return known;
}
