/* files.c - the new files of a commit, as compositions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/search.h"
#include "engine/engine.h"
#include "layout/checksum.h"
#include "rewrite/rewrite_impl.h"

/* The engine (engine/engine.h) reads the new files here. Runs of stored bytes
 * that no edit touches are not read, but copied, so that the file system can
 * share their blocks: such a run begins and ends at multiples of SHARED, the
 * largest block. Shorter runs are not worth a call. */
#define SHARED (UINT64_C(64) << 10)
/* Sums of parts that were read out of order. */
#define SUMS 1024

/* The bytes of a checksum; piece is the first of its places. */
struct summed {
	uint64_t from, end;
	size_t piece;
};

struct ofs_commit_file {
	char *rel, *like;
	struct ofs_composition comp;
	struct summed *summed; /* sorted */
	size_t nsummed;
	struct ofs_sums sums;
	pthread_mutex_t lock; /* held while a sum is computed */
};

/* Making. */

struct ofs_composition *ofs_commit_file(struct ofs_commit *c, const char *rel,
    const char *like, struct optimfs_error *err)
{
	struct ofs_commit_file *f;

	if (ofs_grow(c->file, c->nfiles, c->file_cap, err) == -1)
		return NULL;
	f = ofs_alloc(1, sizeof(*f), err);
	if (f == NULL)
		return NULL;
	ofs_sums_init(&f->sums);
	f->sums.most = SUMS;
	pthread_mutex_init(&f->lock, NULL);
	c->file[c->nfiles++] = f;
	f->rel = strdup(rel);
	f->like = like == NULL ? NULL : strdup(like);
	if (f->rel != NULL && (like == NULL || f->like != NULL))
		return &f->comp;
	ofs_no_memory(err);
	return NULL;
}

void ofs_commit_files_fini(struct ofs_commit *c)
{
	for (size_t i = 0; i < c->nfiles; i++) {
		struct ofs_commit_file *f = c->file[i];

		free(f->rel);
		free(f->like);
		ofs_composition_fini(&f->comp);
		free(f->summed);
		ofs_sums_fini(&f->sums);
		pthread_mutex_destroy(&f->lock);
		free(f);
	}
	free(c->file);
	c->file = NULL;
	c->nfiles = c->file_cap = 0;
}

OFS_COMPARE_BY(compare_places, struct ofs_zip_sum, at)

int ofs_commit_stored(struct ofs_composition *comp, uint32_t object,
    uint64_t off, uint64_t n, struct ofs_zip_sums *sums,
    struct optimfs_error *err)
{
	struct ofs_extent at = { .object = object, .off = off, .len = n };
	uint64_t base = comp->size, done = 0;

	if (sums->n > 0)
		qsort(sums->v, sums->n, sizeof(*sums->v), compare_places);
	for (size_t i = 0; i < sums->n; i++) {
		const struct ofs_zip_sum *s = &sums->v[i];

		if (ofs_composition_stored(comp, &at, done, s->at - off - done,
			err) == -1 ||
		    ofs_composition_crc(comp, base + s->from - off, s->n,
			err) == -1)
			return -1;
		done = s->at - off + 4;
	}
	return ofs_composition_stored(comp, &at, done, n - done, err);
}

struct reading {
	const struct ofs_commit *c;
	struct ofs_extent at;
};

static int read_object(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct reading *r = ctx;

	return ofs_transport_read(r->c->reader->transport, &r->at, off, len,
	    buf, err);
}

/* Is the file one of items, which are archives, and no archive itself? */
static bool has_items(const struct ofs_catalog *cat, uint32_t object)
{
	for (uint32_t i = 0; i < cat->nshards; i++)
		if (cat->shards[i].at.object == object &&
		    cat->shards[i].at.encoding == OFS_TORCH_ITEM)
			return true;
	return false;
}

/* Finds the checksums of the archives in an object whose bytes change. */
static int find_sums(struct ofs_commit *c, uint32_t object,
    struct ofs_zip_sums *sums, struct optimfs_error *err)
{
	uint64_t size = c->cat->objects[object].size;
	struct reading r = { c, { .object = object, .len = size } };
	const struct ofs_ranges *touched =
	    ofs_patches_touched(&c->patches, object);
	bool record = false;

	for (size_t i = ofs_commit_moved(c, object);
	     i < c->nmoved && c->moved[i].object == object; i++) {
		const struct ofs_moved *m = &c->moved[i];

		record = record || m->encoding == OFS_TORCH_RECORD;
		if (m->encoding == OFS_TORCH_ITEM && m->codec == OFS_PLAIN &&
		    ofs_zip_sums_find(sums, m->off, m->len, touched, false,
			read_object, &r, err) == -1)
			return -1;
	}
	if (!record)
		return 0;
	if (has_items(c->cat, object))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS826 a tensor inside an object cannot be changed in a "
		    "checkpoint of this format");
	return ofs_zip_sums_find(sums, 0, size, touched, false, read_object, &r,
	    err);
}

int ofs_commit_whole(struct ofs_commit *c, uint32_t object, const char *rel,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &c->cat->objects[object];
	struct ofs_composition *comp =
	    ofs_commit_file(c, rel == NULL ? o->path : rel, o->path, err);
	struct ofs_zip_sums sums = { 0 };
	int ret = comp == NULL ? -1 : 0;

	if (ret == 0 && rel == NULL)
		ret = find_sums(c, object, &sums, err);
	if (ret == 0)
		ret = ofs_commit_stored(comp, object, 0, o->size, &sums, err);
	free(sums.v);
	if (ret == -1)
		return optimfs_fail_in(err, "%.200s", o->path);
	for (size_t i = ofs_commit_moved(c, object);
	     i < c->nmoved && c->moved[i].object == object; i++)
		c->moved[i].whole = true;
	return 0;
}

/* Reading. */

/* A file that is being read, and the files that it is copied from. */
struct opened {
	struct ofs_commit *c;
	struct ofs_commit_file *file;
	pthread_mutex_t lock; /* protects the members below */
	struct source {
		uint32_t object;
		int fd;
	} * source;
	size_t n, cap;
};

static int compare_summed(const void *key, const void *item)
{
	return OFS_ORDER(*(const uint64_t *)key,
	    ((const struct summed *)item)->end - 1);
}

OFS_COMPARE_BY2(by_from, struct summed, from, piece)

/* Makes the index of the checksums. Archives do not overlap, nor do records. */
static int index_sums(struct ofs_commit_file *f, struct optimfs_error *err)
{
	size_t n = 0;

	f->summed = ofs_alloc(f->comp.n + 1, sizeof(*f->summed), err);
	if (f->summed == NULL)
		return -1;
	for (size_t i = 0; i < f->comp.n; i++) {
		const struct ofs_piece *p = &f->comp.piece[i];

		if (p->kind == OFS_PIECE_CRC && p->crc.n > 0)
			f->summed[n++] = (struct summed){ p->crc.from,
				p->crc.from + p->crc.n, i };
	}
	if (n > 0)
		qsort(f->summed, n, sizeof(*f->summed), by_from);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || f->summed[i].from != f->summed[i - 1].from)
			f->summed[f->nsummed++] = f->summed[i];
	return 0;
}

static int read_piece(const struct opened *o, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err)
{
	switch (p->kind) {
	case OFS_PIECE_BYTES:
		memcpy(buf, p->bytes + from, n);
		return 0;
	case OFS_PIECE_STORED:
		return ofs_patches_read(&o->c->patches, p->stored.at,
		    p->stored.from + from, n, buf, err);
	default:
		memset(buf, 0, n);
		return 0;
	}
}

/* Calls each for the pieces of a range: n bytes from byte from of p, which are
 * at buf. */
typedef int piece_fn(const struct opened *o, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err);

static int each_piece(const struct opened *o, uint8_t *buf, uint64_t len,
    uint64_t off, piece_fn *each, struct optimfs_error *err)
{
	const struct ofs_composition *comp = &o->file->comp;
	uint64_t end = off + len, n;

	for (size_t i = ofs_composition_find(comp, off);
	     i < comp->n && off < end; i++) {
		const struct ofs_piece *p = &comp->piece[i];
		uint64_t from = off - p->off;

		n = p->len - from < end - off ? p->len - from : end - off;
		if (each(o, p, from, n, buf, err) == -1)
			return -1;
		buf += n;
		off += n;
	}
	return 0;
}

static int read_covered(void *ctx, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	return each_piece(ctx, buf, len, off, read_piece, err);
}

static int put_sum(const struct opened *o, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err)
{
	int ret;

	if (p->kind != OFS_PIECE_CRC)
		return 0;
	/* another thread may be computing it */
	pthread_mutex_lock(&o->file->lock);
	ret = ofs_checksum_put(&o->file->sums, p, (unsigned)from,
	    (unsigned)(from + n), buf, read_covered, (void *)(uintptr_t)o, err);
	pthread_mutex_unlock(&o->file->lock);
	return ret;
}

static int read_file(void *from, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct opened *o = from;
	struct ofs_commit_file *f = o->file;

	if (each_piece(o, buf, len, off, read_piece, err) == -1)
		return -1;
	for (size_t i = ofs_lower_bound(&off, f->summed, f->nsummed,
		 sizeof(*f->summed), compare_summed);
	     i < f->nsummed && f->summed[i].from < off + len; i++)
		ofs_checksum_pass(&f->sums, &f->comp.piece[f->summed[i].piece],
		    buf, off, len);
	return each_piece(o, buf, len, off, put_sum, err);
}

/* Copying. */

/* The file that an object is copied from. */
static int source_of(struct opened *o, uint32_t object, int *fd,
    struct optimfs_error *err)
{
	int ret = 0;
	size_t i = 0;

	pthread_mutex_lock(&o->lock);
	while (i < o->n && o->source[i].object != object)
		i++;
	if (i == o->n) {
		ret = ofs_grow(o->source, o->n, o->cap, err);
		if (ret == 0)
			ret = ofs_commit_open(o->c, object, fd, err);
		if (ret == 0)
			o->source[o->n++] = (struct source){ object, *fd };
	} else {
		*fd = o->source[i].fd;
	}
	pthread_mutex_unlock(&o->lock);
	return ret;
}

/* The number of bytes of p from byte from on, at most n, that are treated alike:
 * copied, or read. */
static uint64_t alike(const struct opened *o, const struct ofs_piece *p,
    uint64_t from, uint64_t n, bool *copy)
{
	const struct ofs_extent *at = p->stored.at;
	uint64_t off, lo = UINT64_MAX, hi = 0;
	const struct ofs_ranges *r;
	size_t i;

	*copy = false;
	if (p->kind != OFS_PIECE_STORED || at->codec != OFS_PLAIN ||
	    ofs_commit_is_elsewhere(o->c, at->object))
		return n;
	r = ofs_patches_touched(&o->c->patches, at->object);
	off = at->off + p->stored.from + from;
	i = ofs_ranges_find(r, off);
	/* the range before may end in this block */
	if (i > 0 && (r->v[i - 1].end + SHARED - 1) / SHARED * SHARED > off)
		i--;
	if (i < r->n) {
		lo = r->v[i].off / SHARED * SHARED;
		hi = (r->v[i].end + SHARED - 1) / SHARED * SHARED;
	}
	if (lo <= off)
		return hi - off < n ? hi - off : n;
	n = lo - off < n ? lo - off : n;
	*copy = n >= SHARED;
	return n;
}

static int run_of(void *from, uint64_t off, uint64_t end, uint64_t *len,
    int *fd, uint64_t *at, struct optimfs_error *err)
{
	struct opened *o = from;
	const struct ofs_composition *comp = &o->file->comp;
	size_t i = ofs_composition_find(comp, off);
	uint64_t begin = off, n;
	bool copy;

	*fd = -1;
	for (; off < end; off += n) {
		const struct ofs_piece *p = &comp->piece[i];
		uint64_t stop = p->off + p->len < end ? p->off + p->len : end;

		n = alike(o, p, off - p->off, stop - off, &copy);
		if (copy && off == begin) {
			*len = n;
			*at = p->stored.at->off + p->stored.from + off - p->off;
			return source_of(o, p->stored.at->object, fd, err);
		}
		if (copy)
			break;
		i += off + n == p->off + p->len;
	}
	*len = off - begin;
	return 0;
}

/* Writing. */

struct writing {
	struct ofs_commit *c;
	struct ofs_engine engine;
	uint64_t told; /* bytes that were reported */
};

static const char *name_of(void *ctx, uint32_t index, char buf[OFS_FILE_NAME])
{
	const struct writing *w = ctx;

	(void)buf;
	return w->c->file[index]->rel;
}

static void close_file(void *from)
{
	struct opened *o = from;

	for (size_t i = 0; i < o->n; i++)
		close(o->source[i].fd);
	free(o->source);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static void *open_file(void *ctx, uint32_t index, struct optimfs_error *err)
{
	struct writing *w = ctx;
	struct opened *o = ofs_alloc(1, sizeof(*o), err);

	if (o == NULL)
		return NULL;
	o->c = w->c;
	o->file = w->c->file[index];
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

static int tick(void *ctx, const char *name, struct optimfs_error *err)
{
	struct writing *w = ctx;
	uint64_t done = atomic_load(&w->engine.done);

	if (name[0] != '\0')
		ofs_commit_doing(w->c, name);
	ofs_commit_did(w->c, done - w->told);
	w->told = done;
	return ofs_commit_go_on(w->c, err);
}

/* The publisher syncs the files. */
static const struct ofs_engine_ops new_files = {
	.name = name_of,
	.open = open_file,
	.close = close_file,
	.read = read_file,
	.run = run_of,
	.tick = tick,
};

/* Creates the files, with their owners and modes. */
static int create(struct writing *w, struct optimfs_error *err)
{
	struct ofs_commit *c = w->c;
	int fd;

	w->engine.file = ofs_alloc(c->nfiles + 1, sizeof(*w->engine.file), err);
	if (w->engine.file == NULL)
		return -1;
	for (size_t i = 0; i < c->nfiles; i++) {
		struct ofs_commit_file *f = c->file[i];

		if (index_sums(f, err) == -1 ||
		    ofs_publish_file(c->publish, f->rel, f->like, &fd, err) ==
			-1)
			return -1;
		w->engine.file[w->engine.n++] = (struct ofs_engine_file){
			.index = (uint32_t)i,
			.ours = true,
			.size = f->comp.size,
		};
		w->engine.total += f->comp.size;
	}
	return ofs_engine_cut(&w->engine, err);
}

int ofs_commit_write(struct ofs_commit *c, struct optimfs_error *err)
{
	struct writing w = { .c = c };
	int ret;

	if (c->nfiles == 0)
		return 0;
	ofs_engine_init(&w.engine);
	w.engine.ops = &new_files;
	w.engine.ctx = &w;
	w.engine.dir = ofs_publish_new(c->publish);
	ret = create(&w, err);
	if (ret == 0)
		ret = ofs_engine_run(&w.engine, err);
	ofs_engine_fini(&w.engine);
	ofs_commit_files_fini(c);
	return ret;
}
