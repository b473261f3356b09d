/* rest.c - write what files of a layout have besides tensors in their place */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "push/rest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/memory.h"
#include "base/sys.h"
#include "catalog/owners.h"
#include "push/writethrough.h"
#include "read/locate.h"
#include "reshard/dirs.h"

/* Spans that are shorter than a disk block are written as a whole, with the
 * elements in them. */
#define SHORT 4096
/* The part of a file whose pieces are looked at together. */
#define WINDOW ((uint64_t)1 << 20)

/* A file that is read. */
struct reading {
	struct ofs_rest *r;
	struct optimfs_file *from;
	uint32_t object; /* that it is in the catalog, or OFS_NONE */
};

static const char *name_of(void *ctx, uint32_t index, char buf[OFS_FILE_NAME])
{
	const struct ofs_rest *r = ctx;

	ofs_view_path(r->snap, (struct ofs_at){ r->view.space, index }, buf);
	return buf;
}

static void close_one(void *from)
{
	struct reading *f = from;

	optimfs_file_close(f->from);
	free(f);
}

static void *open_one(void *ctx, uint32_t index, struct optimfs_error *err)
{
	struct ofs_rest *r = ctx;
	struct reading *f = ofs_alloc(1, sizeof(*f), err);
	char name[OFS_FILE_NAME];

	if (f == NULL)
		return NULL;
	f->r = r;
	f->object =
	    ofs_catalog_find_object(r->snap->cat, name_of(r, index, name));
	if (ofs_file_open(r->snap, (struct ofs_at){ r->view.space, index },
		&f->from, err) == 0)
		return f;
	free(f);
	return NULL;
}

/* A tensor whose file has its bytes, not a text. */
static bool is_tensor(const struct reading *f, const struct ofs_piece *p)
{
	return p->kind == OFS_PIECE_BOX &&
	    ofs_view_cat(f->from->view)->tensors[p->tensor].ndim > 0;
}

/* Reads literal bytes, and zeros for all else. */
static int read_literal(const struct reading *f, uint8_t *buf, uint64_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_composition c;
	uint64_t base;

	memset(buf, 0, len);
	if (ofs_view_window(f->from->view, off, len, &c, &base, err) == -1)
		return -1;
	for (size_t i = 0; i < c.n; i++) {
		const struct ofs_piece *p = &c.piece[i];
		uint64_t at = base + p->off, lo = at > off ? at : off;
		uint64_t hi = at + p->len < off + len ? at + p->len : off + len;

		if (p->kind == OFS_PIECE_BYTES && lo < hi)
			memcpy(buf + (lo - off), p->bytes + (lo - at), hi - lo);
	}
	ofs_composition_fini(&c);
	return 0;
}

/* The checksums that were computed when elements were written. The bytes of the
 * others are read again. */
static int pass_sums(const struct reading *f, uint64_t off, uint64_t len,
    struct optimfs_error *err)
{
	struct ofs_composition c;
	uint64_t base;
	uint32_t crc;

	if (f->object == OFS_NONE)
		return 0;
	if (ofs_view_window(f->from->view, off, len, &c, &base, err) == -1)
		return -1;
	for (size_t i = 0; i < c.n; i++) {
		const struct ofs_piece *p = &c.piece[i];

		if (p->kind == OFS_PIECE_CRC &&
		    ofs_writethrough_sum(f->r->filled, f->object, p->crc.from,
			p->crc.n, &crc))
			ofs_sums_add(ofs_view_sums(f->from->view),
			    &(struct ofs_sum){
				p->crc.from, p->crc.from, p->crc.n, crc });
	}
	ofs_composition_fini(&c);
	return 0;
}

static int read_one(void *from, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct reading *f = from;

	if (f->r->filled == NULL)
		return read_literal(f, buf, len, off, err);
	return pass_sums(f, off, len, err) == -1
	    ? -1
	    : ofs_file_read_all(f->from, buf, len, off, err);
}

/* As the engine's run, for a span that is not short: up to the next tensor, or
 * to the end of this one. */
static int run_in_span(const struct reading *f, uint64_t off, uint64_t end,
    uint64_t *len, int *fd, struct optimfs_error *err)
{
	struct ofs_composition c;
	uint64_t base, till;
	size_t i;

	if (ofs_view_window(f->from->view, off, 1, &c, &base, err) == -1)
		return -1;
	i = ofs_composition_find(&c, off - base);
	if (is_tensor(f, &c.piece[i])) {
		*fd = OFS_ENGINE_THERE;
		i++;
	}
	while (*fd == -1 && i < c.n && !is_tensor(f, &c.piece[i]))
		i++;
	till = base + (i < c.n ? c.piece[i].off : c.size);
	*len = (till < end ? till : end) - off;
	ofs_composition_fini(&c);
	return 0;
}

static int run_one(void *from, uint64_t off, uint64_t end, uint64_t *len,
    int *fd, uint64_t *at, struct optimfs_error *err)
{
	const struct reading *f = from;
	const struct ofs_spans *s = ofs_view_spans(f->from->view);
	size_t i = ofs_spans_find(s, off);
	uint64_t till = i == 0 ? 0 : s->v[i - 1].end;

	*fd = -1;
	*at = 0;
	while (till < end && i < s->n && s->v[i].end - till < SHORT)
		till = s->v[i++].end;
	if (till <= off)
		return run_in_span(f, off, end, len, fd, err);
	*len = (till < end ? till : end) - off;
	return 0;
}

static int tick(void *ctx, const char *name, struct optimfs_error *err)
{
	struct ofs_rest *r = ctx;

	return r->tick(r->ctx, atomic_load(&r->engine.done), r->engine.total,
	    name, err);
}

static const struct ofs_engine_ops rest_ops = {
	.name = name_of,
	.open = open_one,
	.close = close_one,
	.read = read_one,
	.run = run_one,
	.tick = tick,
};

static int find_files(struct ofs_rest *r, struct optimfs_error *err)
{
	struct ofs_at at = { r->view.space, 1 };
	struct ofs_engine *e = &r->engine;
	uint32_t n;

	if (ofs_view_count(r->snap, r->view, &n, err) == -1)
		return -1;
	e->file = calloc((size_t)n + 1, sizeof(*e->file));
	if (e->file == NULL)
		return ofs_no_memory(err);
	for (; at.index < n; at.index++) {
		struct ofs_engine_file *f = &e->file[e->n];

		if (ofs_view_is_dir(r->snap, at))
			continue;
		*f =
		    (struct ofs_engine_file){ .index = at.index, .ours = true };
		e->n++;
		if (ofs_view_size(r->snap, at, &f->size, err) == -1)
			return -1;
		e->total += f->size;
	}
	return ofs_engine_cut(e, err);
}

int ofs_rest_open(struct ofs_rest *r, struct optimfs_error *err)
{
	ofs_engine_init(&r->engine);
	r->engine.ops = &rest_ops;
	r->engine.ctx = r;
	r->engine.dir = r->dir;
	r->engine.mode = ofs_snapshot_made_mode(r->snap, 0666);
	r->files = ofs_view_files(r->snap, r->view, err);
	return r->files == NULL ? -1 : find_files(r, err);
}

void ofs_rest_close(struct ofs_rest *r)
{
	if (r->files != NULL)
		ofs_view_files_done(r->snap, r->view);
	ofs_engine_fini(&r->engine);
}

void ofs_rest_name(const struct ofs_rest *r, uint32_t file,
    char name[OFS_FILE_NAME])
{
	name_of((void *)(uintptr_t)r, r->engine.file[file].index, name);
}

/* Where a file has the elements of a tensor. */
struct here {
	struct ofs_reader *reader;
	uint32_t object;
	struct ofs_place *copy; /* freed by the caller */
};

static const struct ofs_place *place_here(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct here *h = ctx;
	const struct ofs_catalog *cat = h->reader->cat;
	const struct ofs_replica *r;
	uint32_t n;

	r = ofs_replicas(cat, shard, &n);
	for (uint32_t i = 0; i < n; i++) {
		if (r[i].at.object != h->object ||
		    cat->shards[shard].at.object == h->object)
			continue;
		free(h->copy);
		h->copy = ofs_locate_replica(h->reader, t, &r[i], err);
		return h->copy;
	}
	return ofs_locate_shard(h->reader, t, shard, err);
}

static bool is_there(const struct ofs_segment *s, uint32_t object, uint64_t at)
{
	return s->object == object && s->codec == OFS_PLAIN &&
	    s->fix == OFS_FIX_NONE && s->src == at + s->dst &&
	    (s->n == 1 || s->src_pitch == s->dst_pitch);
}

/* Is a piece, which the view has at at, stored there? 1; 0; -1: failed. */
static int fits(const struct reading *f, const struct ofs_composition *c,
    const struct ofs_piece *p, uint64_t at, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = ofs_view_cat(f->from->view);
	struct here here = { &f->r->snap->reader, f->object, NULL };
	struct ofs_plan plan = { 0 };
	int ret;

	if (p->tensor >= f->r->snap->cat->ntensors ||
	    p->dtype != cat->tensors[p->tensor].dtype)
		return 0;
	ret = ofs_composition_plan(c, cat, p->off, p->len, NULL, place_here,
	    &here, &plan, err);
	ret = ret == -1 ? -1 : plan.nzeros == 0;
	for (size_t i = 0; i < plan.n && ret == 1; i++)
		ret = is_there(&plan.seg[i], f->object, at);
	ofs_plan_fini(&plan);
	free(here.copy);
	return ret;
}

static int fits_window(const struct reading *f, uint64_t off, uint64_t len,
    uint64_t *next, struct optimfs_error *err)
{
	struct ofs_composition c;
	uint64_t base;
	int ret = 1;

	if (ofs_view_window(f->from->view, off, len, &c, &base, err) == -1)
		return -1;
	for (size_t i = 0; i < c.n && ret == 1; i++)
		if (is_tensor(f, &c.piece[i]) && c.piece[i].len > 0)
			ret = fits(f, &c, &c.piece[i], base + c.piece[i].off,
			    err);
	*next = base + c.size;
	ofs_composition_fini(&c);
	return ret;
}

static int fits_file(struct ofs_rest *r, const struct ofs_engine_file *file,
    struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];
	struct reading *f;
	struct stat st;
	int ret = 1;

	name_of(r, file->index, name);
	if (fstatat(r->dir, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", name);
	if ((uint64_t)st.st_size != file->size)
		return 0;
	f = open_one(r, file->index, err);
	if (f == NULL)
		return -1;
	for (uint64_t at = 0; at < file->size && ret == 1;) {
		uint64_t left = file->size - at;

		ret =
		    fits_window(f, at, left < WINDOW ? left : WINDOW, &at, err);
	}
	close_one(f);
	return ret;
}

int ofs_rest_fits(struct ofs_rest *r, struct optimfs_error *err)
{
	int ret = 1;

	for (uint32_t i = 0; i < r->engine.n && ret == 1; i++)
		ret = fits_file(r, &r->engine.file[i], err);
	return ret;
}

static int open_file(const struct ofs_rest *r, uint32_t i,
    char name[OFS_FILE_NAME])
{
	ofs_rest_name(r, i, name);
	return ofs_fds_openat(r->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
}

static int sync_one(const struct ofs_rest *r, uint32_t i,
    struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];
	int fd = open_file(r, i, name), ret = 0;

	if (fd == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", name);
	if (ofs_sys_fsync(fd) == -1)
		ret = optimfs_fail(err, errno, "OFS802 %s: fsync: %m", name);
	close(fd);
	return ret;
}

/* Starts write-back of all files before waiting for the first. */
static int sync_files(const struct ofs_rest *r, struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];

	for (uint32_t i = 0; i < r->engine.n; i++) {
		int fd = open_file(r, i, name);

		if (fd == -1)
			continue;
		(void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
		close(fd);
	}
	for (uint32_t i = 0; i < r->engine.n; i++)
		if (sync_one(r, i, err) == -1)
			return -1;
	return ofs_view_dirs_sync(r->snap, r->view, r->dir, err);
}

int ofs_rest_write(struct ofs_rest *r, struct optimfs_error *err)
{
	return ofs_engine_run(&r->engine, err) == -1 ? -1 : sync_files(r, err);
}
