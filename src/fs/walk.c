/* walk.c - walk a directory of the tree in sorted order */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/walk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/memory.h"

/* Entries are fetched in batches, which bounds the memory for a directory of a
 * million names. */
#define BATCH 256

struct batch {
	struct {
		char *name;
		struct optimfs_attr attr;
		uint64_t position;
	} entry[BATCH];
	unsigned n, at;
	bool full, failed;
};

struct level {
	uint64_t dir;
	size_t path_len; /* length of the directory's path */
	struct batch batch;
};

struct walk {
	struct optimfs *fs;
	struct level **level;
	unsigned depth, limit;
	uint32_t nlevels, cap;
	struct ofs_buf path;
};

static void batch_clear(struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++)
		free(b->entry[i].name);
	b->n = b->at = 0;
	b->full = false;
}

static int take(void *ctx, const struct optimfs_dirent *d)
{
	struct batch *b = ctx;

	b->entry[b->n].name = strdup(d->name);
	if (b->entry[b->n].name == NULL) {
		b->failed = true;
		return 1;
	}
	b->entry[b->n].attr = *d->attr;
	b->entry[b->n].position = d->position;
	b->n++;
	b->full = b->n == BATCH;
	return b->full;
}

static int batch_fill(struct walk *w, struct level *l, uint64_t start,
    struct optimfs_error *err)
{
	batch_clear(&l->batch);
	if (optimfs_readdir(w->fs, l->dir, start, true, take, &l->batch, err) ==
	    -1)
		return -1;
	return l->batch.failed ? ofs_no_memory(err) : 0;
}

/* The next entry of a level; NULL at its end, or with *failed set. */
static int next(struct walk *w, struct level *l, bool *end,
    struct optimfs_error *err)
{
	struct batch *b = &l->batch;

	*end = false;
	if (b->at == b->n && b->full &&
	    batch_fill(w, l, b->entry[b->n - 1].position + 1, err) == -1)
		return -1;
	*end = b->at == b->n;
	return 0;
}

static int descend(struct walk *w, uint64_t dir, size_t path_len,
    struct optimfs_error *err)
{
	struct level *l;

	if (w->depth == w->nlevels) {
		if (ofs_grow(w->level, w->nlevels, w->cap, err) == -1 ||
		    (l = ofs_alloc(1, sizeof(*l), err)) == NULL)
			return -1;
		w->level[w->nlevels++] = l;
	}
	l = w->level[w->depth++];
	l->dir = dir;
	l->path_len = path_len;
	return batch_fill(w, l, 0, err);
}

/* Makes the path of an entry of the directory whose path has at bytes. */
static int append(struct walk *w, size_t at, const char *name, size_t *len,
    struct optimfs_error *err)
{
	w->path.len = at;
	if (at > 0)
		ofs_buf_putc(&w->path, '/');
	ofs_buf_puts(&w->path, name);
	*len = w->path.len;
	ofs_buf_putc(&w->path, '\0');
	return w->path.bad ? ofs_no_memory(err) : 0;
}

static int step(struct walk *w, ofs_walk_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct level *l = w->level[w->depth - 1];
	struct ofs_walk_entry e;
	size_t len = 0;
	bool end;

	if (next(w, l, &end, err) == -1)
		return -1;
	if (end) {
		w->depth--;
		return 0;
	}
	e.attr = l->batch.entry[l->batch.at].attr;
	e.name = l->batch.entry[l->batch.at].name;
	l->batch.at++;
	if (append(w, l->path_len, e.name, &len, err) == -1)
		return -1;
	e.path = (const char *)w->path.data;
	if (each(ctx, &e, err) == -1)
		return -1;
	if (S_ISDIR(e.attr.mode) && (w->limit == 0 || w->depth < w->limit))
		return descend(w, e.attr.node, len, err);
	return 0;
}

int ofs_walk(struct optimfs *fs, uint64_t dir, unsigned depth,
    ofs_walk_fn *each, void *ctx, struct optimfs_error *err)
{
	struct walk w = { .fs = fs, .limit = depth };
	int ret = descend(&w, dir, 0, err);

	while (ret == 0 && w.depth > 0)
		ret = step(&w, each, ctx, err);
	for (uint32_t i = 0; i < w.nlevels; i++) {
		batch_clear(&w.level[i]->batch);
		free(w.level[i]);
	}
	free(w.level);
	ofs_buf_fini(&w.path);
	return ret;
}

char *ofs_attribute(struct optimfs *fs, uint64_t node, const char *name,
    bool *no_memory)
{
	struct optimfs_error err = { 0 };
	char full[64], *value;
	size_t len;

	snprintf(full, sizeof(full), "user.optimfs.%s", name);
	if (optimfs_getxattr(fs, node, full, &value, &len, &err) == 0)
		return value;
	if (no_memory != NULL)
		*no_memory |= err.code == ENOMEM;
	return NULL;
}
