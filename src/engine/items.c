/* items.c - files with individually compressed items */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/engine_impl.h"
#include "journal/stage.h"
#include "store/encode.h"

struct writer {
	struct ofs_engine *e;
	struct ofs_engine_file *f;
	struct ofs_encoder to;
	uint64_t synced;  /* offset in the file */
	uint64_t *len, n; /* of items not recorded yet */
	uint64_t first;   /* number of the first of them */
};

/* Records that all items so far are on disk. */
static int note(struct writer *w, struct optimfs_error *err)
{
	if (w->e->ops->did_item == NULL)
		return 0;
	if (fsync(w->f->open->fd) == -1)
		return optimfs_fail(err, errno, "OFS801 fsync: %m");
	for (uint64_t i = 0; i < w->n; i++)
		if (w->e->ops->did_item(w->e->ctx, w->f, w->first + i,
			w->len[i], err) == -1)
			return -1;
	w->first += w->n;
	w->n = 0;
	w->synced = w->to.at;
	return 0;
}

int ofs_engine_encode(struct ofs_encoder *to,
    int (*read)(void *from, void *buf, uint64_t len, uint64_t off,
	struct optimfs_error *err),
    void *from, uint64_t off, uint64_t end, uint8_t *buf, uint64_t *len,
    struct optimfs_error *err)
{
	uint64_t start = to->at, n;

	for (; off < end; off += n) {
		n = end - off < OFS_ENGINE_PIECE ? end - off : OFS_ENGINE_PIECE;
		if (read(from, buf, n, off, err) == -1 ||
		    ofs_encode(to, buf, n, off + n == end, err) == -1)
			return -1;
	}
	*len = to->at - start;
	return 0;
}

static int read_item(void *from, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct writer *w = from;

	return ofs_engine_read(w->e, w->f->open->from, buf, len, off, err);
}

/* Continues after an earlier run; truncates what it did not record. */
static int go_on(struct writer *w, const struct ofs_spans *s,
    struct optimfs_error *err)
{
	struct ofs_engine_file *f = w->f;

	if (f->nitems > s->n)
		f->nitems = 0;
	for (uint64_t i = 0; i < f->nitems; i++) {
		w->e->ops->stored(w->e->ctx, f->index, &s->v[i], f->item[i]);
		w->to.at += f->item[i];
	}
	if (f->nitems > 0)
		atomic_fetch_add(&w->e->done, s->v[f->nitems - 1].end);
	w->first = f->nitems;
	w->synced = w->to.at;
	if (ftruncate(f->open->fd, (off_t)w->to.at) == -1)
		return optimfs_fail(err, errno, "OFS801 %m");
	return 0;
}

static int write_items(struct writer *w, uint8_t *buf,
    struct optimfs_error *err)
{
	const struct ofs_spans *s = w->e->ops->spans(w->f->open->from);
	uint64_t len;

	if (go_on(w, s, err) == -1)
		return -1;
	w->len = calloc(s->n + 1, sizeof(*w->len));
	if (w->len == NULL)
		return ofs_no_memory(err);
	for (uint64_t i = w->first; i < s->n; i++) {
		if (ofs_engine_encode(&w->to, read_item, w,
			i == 0 ? 0 : s->v[i - 1].end, s->v[i].end, buf, &len,
			err) == -1)
			return -1;
		w->e->ops->stored(w->e->ctx, w->f->index, &s->v[i], len);
		w->len[w->n++] = len;
		if (w->to.at - w->synced >= OFS_ENGINE_PART &&
		    note(w, err) == -1)
			return -1;
	}
	return note(w, err);
}

int ofs_engine_items(struct ofs_engine *e, struct ofs_engine_file *f,
    uint8_t *buf, struct optimfs_error *err)
{
	struct writer w = { .e = e,
		.f = f,
		.to = { .write = ofs_stage_write, .fd = f->open->fd } };
	int ret = ofs_encoder_init(&w.to, e->level, err);

	if (ret == 0)
		ret = write_items(&w, buf, err);
	ofs_encoder_fini(&w.to);
	free(w.len);
	return ret;
}
