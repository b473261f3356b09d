/* view_read.c - open files of views; spans are made as they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "fs/view.h"
#include "fs/view_impl.h"
#include "rewrite/merge.h"

struct ofs_view_file {
	const struct ofs_catalog *cat;
	const struct ofs_merged *merged;   /* of the view, or NULL */
	struct ofs_view_dir *view;         /* ofs_view_hold */
	const struct ofs_files *files;
	uint32_t file;
	enum ofs_dtype cast;
	struct ofs_spans spans;
	struct ofs_sums sums;
};

int ofs_view_open(struct ofs_snapshot *snap, struct ofs_at at,
    struct ofs_view_file **file, uint64_t *size, struct optimfs_error *err)
{
	struct ofs_view_file *f = ofs_alloc(1, sizeof(*f), err);
	struct ofs_view_dir *v = f == NULL ? NULL : ofs_view_get(snap, at, err);

	if (v != NULL) {
		f->files = ofs_view_hold(v, err);
		ofs_view_put(v);
	}
	if (f == NULL || f->files == NULL) {
		free(f);
		return -1;
	}
	f->view = v;
	f->merged = v->merged;
	f->cat = ofs_view_catalog(v);
	f->cast = v->layout.dtype;
	f->file = ofs_view_file_of(snap, at);
	ofs_sums_init(&f->sums);
	if (f->files->ops->spans(f->files, f->file, &f->spans, err) == -1) {
		ofs_view_close(f);
		return -1;
	}
	*size = f->spans.n == 0 ? 0 : f->spans.v[f->spans.n - 1].end;
	*file = f;
	return 0;
}

void ofs_view_close(struct ofs_view_file *f)
{
	if (f == NULL)
		return;
	ofs_spans_fini(&f->spans);
	ofs_sums_fini(&f->sums);
	ofs_view_let(f->view);
	free(f);
}

const struct ofs_catalog *ofs_view_cat(const struct ofs_view_file *f)
{
	return f->cat;
}

struct ofs_reader *ofs_view_reader(const struct ofs_view_file *f)
{
	return ofs_view_reader_of(f->view);
}

struct ofs_overlay_file *ofs_view_staged(const struct ofs_view_file *f,
    uint32_t tensor)
{
	return f->merged == NULL ? NULL : ofs_merged_staged(f->merged, tensor);
}

struct ofs_sums *ofs_view_sums(struct ofs_view_file *f)
{
	return &f->sums;
}

const struct ofs_spans *ofs_view_spans(const struct ofs_view_file *f)
{
	return &f->spans;
}

int ofs_view_read(const struct ofs_view_file *f, void *buf, uint64_t len,
    uint64_t off, struct optimfs_error *err)
{
	if (f->files->ops->read == NULL)
		return 0;
	return f->files->ops->read(f->files, f->file, buf, len, off, err) == -1
	    ? -1
	    : 1;
}

int ofs_view_window(const struct ofs_view_file *f, uint64_t off, uint64_t len,
    struct ofs_composition *c, uint64_t *base, struct optimfs_error *err)
{
	size_t i = ofs_spans_find(&f->spans, off);
	uint64_t at = i == 0 ? 0 : f->spans.v[i - 1].end;

	*c = (struct ofs_composition){ .cast = f->cast };
	*base = at;
	for (; i < f->spans.n && at < off + len; i++) {
		const struct ofs_span *s = &f->spans.v[i];

		if (f->files->ops->make(f->files, f->file, s, at, c, err) == -1)
			goto fail;
		at = s->end;
		if (c->size == at - *base)
			continue;
		optimfs_fail(err, EIO,
		    "a part of the file is %llu bytes, not %llu",
		    (unsigned long long)(c->size + *base),
		    (unsigned long long)at);
		goto fail;
	}
	return 0;
fail:
	ofs_composition_fini(c);
	return -1;
}

/* The spans of a record and its checksum are made together, so that both lie in
 * one composition. A checksum that is repeated later belongs to a record that
 * came before. */
int ofs_view_checksums(struct ofs_view_file *f, const struct ofs_composition *c,
    uint64_t base, uint8_t *buf, uint64_t off, uint64_t len,
    ofs_checksum_read_fn *read, void *ctx, struct optimfs_error *err)
{
	uint64_t next = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct ofs_piece *p = &c->piece[i];
		uint64_t from = base + p->off, end = from + p->len;
		uint64_t lo = from > off ? from : off;
		uint64_t hi = end < off + len ? end : off + len;

		if (p->kind != OFS_PIECE_CRC)
			continue;
		if (p->crc.from >= next) {
			next = p->crc.from + p->crc.n;
			ofs_checksum_pass(&f->sums, p, buf, off, len);
		}
		if (lo < hi &&
		    ofs_checksum_put(&f->sums, p, (unsigned)(lo - from),
			(unsigned)(hi - from), buf + (lo - off), read, ctx,
			err) == -1)
			return -1;
	}
	return 0;
}
