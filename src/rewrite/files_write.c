/* files_write.c - writing the new files of a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "engine/engine.h"
#include "rewrite/rewrite_impl.h"

/* The engine (engine/engine.h) reads the new files here. Runs of stored bytes
 * that no edit touches are not read, but copied, so that the file system can
 * share their blocks: such a run begins and ends at multiples of SHARED, the
 * largest block. Shorter runs are not worth a call. */
#define SHARED (UINT64_C(64) << 10)

/* A file that is being written, and the files that it is copied from. */
struct opened {
	struct ofs_commit_file *file;
	pthread_mutex_t lock; /* protects the members below */
	struct source {
		uint32_t object;
		int fd;
	} * source;
	size_t n, cap;
};

bool ofs_commit_elsewhere(const struct ofs_commit *c, uint32_t object)
{
	uint32_t file;

	return ofs_dir_remote(&c->cat->dir, c->cat->objects[object].path,
	    &file);
}

int ofs_commit_open(const struct ofs_commit *c, uint32_t object, int *fd,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &c->cat->objects[object];
	struct stat st;

	*fd = ofs_dir_open_file(&c->cat->dir, o->path, &st, err);
	if (*fd == -1)
		return -1;
	if ((uint64_t)st.st_size == o->size && st.st_ino == o->ino &&
	    ofs_time_ns(&st.st_mtim) == o->mtime_ns)
		return 0;
	close(*fd);
	return optimfs_fail(err, ESTALE,
	    "OFS805 %.200s changed since the checkpoint was mounted", o->path);
}

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
			ret = ofs_commit_open(o->file->commit, object, fd, err);
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
	    ofs_commit_elsewhere(o->file->commit, at->object))
		return n;
	r = ofs_patches_touched(&o->file->commit->patches, at->object);
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
	for (; off < end && off - begin < OFS_ENGINE_PIECE; off += n) {
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

/* Files of this size are kept for the next commit if this one is killed. Each is
 * synced when it is finished, which smaller ones do not repay. */
#define KEPT (UINT64_C(16) << 20)

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
	o->file = w->c->file[index];
	pthread_mutex_init(&o->lock, NULL);
	return o;
}

static int read_opened(void *from, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	const struct opened *o = from;

	return ofs_commit_file_read(o->file, buf, len, off, err);
}

static const struct ofs_spans *items_of(void *from)
{
	return &((struct opened *)from)->file->items;
}

static void stored(void *ctx, uint32_t index, const struct ofs_span *span,
    uint64_t len)
{
	const struct writing *w = ctx;
	const struct ofs_commit_file *f = w->c->file[index];

	f->stored(f->ctx, span->ref, len);
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

static void did_file(void *ctx, const struct ofs_engine_file *file)
{
	const struct writing *w = ctx;
	const struct ofs_commit_file *f = w->c->file[file->index];

	if (f->key[0] != '\0')
		ofs_publish_finished(w->c->publish, f->rel, f->key);
}

/* The publisher syncs the files. */
static const struct ofs_engine_ops new_files = {
	.name = name_of,
	.open = open_file,
	.close = close_file,
	.read = read_opened,
	.run = run_of,
	.spans = items_of,
	.stored = stored,
	.did_file = did_file,
	.tick = tick,
};

/* 1: a commit that was killed had written it; 0: it has to be written. inputs NULL:
 * nothing is kept. */
static int take_kept(struct ofs_commit_file *f, const uint64_t *inputs,
    struct optimfs_error *err)
{
	if (inputs == NULL || f->items.n > 0 || f->comp.size < KEPT)
		return 0;
	if (ofs_commit_key(f, inputs, f->key, err) == -1)
		return -1;
	return ofs_publish_again(f->commit->publish, f->rel, f->like, f->key,
	    err);
}

/* Creates a file, with owner and mode. */
static int create_one(struct writing *w, size_t i, const uint64_t *inputs,
    struct optimfs_error *err)
{
	struct ofs_commit *c = w->c;
	struct ofs_commit_file *f = c->file[i];
	int fd, kept;

	ofs_commit_doing(c, f->rel);
	if (ofs_commit_file_seal(f, err) == -1)
		return -1;
	kept = take_kept(f, inputs, err);
	if (kept == 1)
		ofs_commit_did(c, f->comp.size);
	if (kept != 0)
		return kept == 1 ? 0 : -1;
	if (ofs_publish_file(c->publish, f->rel, f->like, &fd, err) == -1)
		return -1;
	w->engine.file[w->engine.n++] = (struct ofs_engine_file){
		.index = (uint32_t)i,
		.ours = true,
		.whole = f->items.n > 0,
		.size = f->comp.size,
	};
	w->engine.total += f->comp.size;
	return 0;
}

/* Creates the files that are made of what was written (late), or all others. */
static int create(struct writing *w, bool late, const uint64_t *inputs,
    struct optimfs_error *err)
{
	struct ofs_commit *c = w->c;

	w->engine.file = ofs_alloc(c->nfiles + 1, sizeof(*w->engine.file), err);
	if (w->engine.file == NULL)
		return -1;
	for (size_t i = 0; i < c->nfiles; i++) {
		struct ofs_commit_file *f = c->file[i];

		if ((f->make != NULL) != late)
			continue;
		if ((late && f->make(f->ctx, &f->comp, err) == -1) ||
		    create_one(w, i, inputs, err) == -1)
			return -1;
	}
	ofs_publish_kept(c->publish, true);
	return ofs_engine_cut(&w->engine, err);
}

uint64_t ofs_commit_size(const struct ofs_commit *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->nfiles; i++)
		n += c->file[i]->comp.size;
	return n;
}

static int write_files(struct ofs_commit *c, bool late, const uint64_t *inputs,
    struct optimfs_error *err)
{
	struct writing w = { .c = c };
	int ret;

	ofs_engine_init(&w.engine);
	w.engine.ops = &new_files;
	w.engine.ctx = &w;
	w.engine.dir = ofs_publish_new(c->publish);
	ret = create(&w, late, inputs, err);
	if (ret == 0)
		ret = ofs_publish_possible(c->publish, err);
	if (ret == 0 && w.engine.n > 0)
		ret = ofs_engine_run(&w.engine, err);
	ofs_engine_fini(&w.engine);
	return ret;
}

int ofs_commit_write(struct ofs_commit *c, struct optimfs_error *err)
{
	uint64_t hash[2], *inputs = NULL;
	int ret = 0;

	if (c->at_once)
		ofs_publish_at_once(c->publish);
	if (c->job->overlay != NULL && !c->job->many) {
		inputs = hash;
		ret = ofs_commit_inputs(c, inputs, err);
	}
	if (ret == 0)
		ret = write_files(c, false, inputs, err);
	if (ret == 0)
		ret = write_files(c, true, inputs, err);
	ofs_commit_files_fini(c);
	for (size_t i = 0; i < c->ngone && ret == 0; i++)
		ret = ofs_publish_remove(c->publish, c->gone[i], err);
	return ret;
}
