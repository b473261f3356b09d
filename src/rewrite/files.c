/* files.c - the new files of a commit, as compositions */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "layout/checksum.h"
#include "rewrite/rewrite_impl.h"

/* Sums of parts that were read out of order. */
#define SUMS 1024

/* The bytes of a checksum; piece is the first of its places. */
struct ofs_commit_summed {
	uint64_t from, end;
	size_t piece;
};

/* Making. */

struct ofs_commit_file *ofs_commit_file(struct ofs_commit *c, const char *rel,
    const char *like, struct optimfs_error *err)
{
	struct ofs_commit_file *f;

	if (ofs_grow(c->file, c->nfiles, c->file_cap, err) == -1)
		return NULL;
	f = ofs_alloc(1, sizeof(*f), err);
	if (f == NULL)
		return NULL;
	f->commit = c;
	ofs_sums_init(&f->sums);
	f->sums.most = SUMS;
	pthread_mutex_init(&f->lock, NULL);
	c->file[c->nfiles++] = f;
	f->rel = strdup(rel);
	f->like = like == NULL ? NULL : strdup(like);
	if (f->rel != NULL && (like == NULL || f->like != NULL))
		return f;
	ofs_no_memory(err);
	return NULL;
}

void ofs_commit_files_fini(struct ofs_commit *c)
{
	for (size_t i = 0; i < c->nfiles; i++) {
		struct ofs_commit_file *f = c->file[i];

		if (f->release != NULL)
			f->release(f->ctx);
		free(f->rel);
		free(f->like);
		ofs_composition_fini(&f->comp);
		ofs_spans_fini(&f->items);
		free(f->summed);
		ofs_sums_fini(&f->sums);
		pthread_mutex_destroy(&f->lock);
		free(f);
	}
	free(c->file);
	c->file = NULL;
	c->nfiles = c->file_cap = 0;
}

int ofs_commit_remove(struct ofs_commit *c, const char *rel,
    struct optimfs_error *err)
{
	char *name = ofs_arena_strndup(&c->arena, rel, strlen(rel));

	if (name == NULL)
		return ofs_no_memory(err);
	if (ofs_grow(c->gone, c->ngone, c->gone_cap, err) == -1)
		return -1;
	c->gone[c->ngone++] = name;
	return 0;
}

OFS_COMPARE_BY(compare_places, struct ofs_zip_sum, at)

int ofs_commit_stored(struct ofs_composition *comp, const struct ofs_extent *at,
    uint64_t off, uint64_t n, struct ofs_zip_sums *sums,
    struct optimfs_error *err)
{
	uint64_t base = comp->size, done = off;

	if (sums->n > 0)
		qsort(sums->v, sums->n, sizeof(*sums->v), compare_places);
	for (size_t i = 0; i < sums->n; i++) {
		const struct ofs_zip_sum *s = &sums->v[i];

		if (s->at < off || s->at >= off + n)
			continue;
		if (ofs_composition_stored(comp, at, done, s->at - done, err) ==
			-1 ||
		    ofs_composition_crc(comp, base + s->from - off, s->n,
			err) == -1)
			return -1;
		done = s->at + 4;
	}
	return ofs_composition_stored(comp, at, done, off + n - done, err);
}

struct stored_extent {
	const struct ofs_commit *c;
	const struct ofs_extent *at;
};

static int read_extent(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct stored_extent *r = ctx;

	return ofs_transport_read(r->c->reader->transport, r->at, off, len, buf,
	    err);
}

int ofs_commit_sums(const struct ofs_commit *c, const struct ofs_extent *at,
    const struct ofs_ranges *touched, struct ofs_zip_sums *sums,
    struct optimfs_error *err)
{
	struct ofs_transport *t = c->reader->transport;
	struct stored_extent r = { c, at };
	struct ofs_ranges own = { 0 };
	uint64_t len;
	int ret = ofs_transport_length(t, at, &len, err);

	if (ret == 0 && touched == NULL)
		ret = ofs_patches_hulls(&c->patches, at, &own, err);
	if (ret == 0)
		ret = ofs_zip_sums_find(sums, len,
		    touched == NULL ? &own : touched, read_extent, &r, err);
	ofs_ranges_fini(&own);
	return ret;
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

/* Those of an item of the object. */
static int find_item_sums(const struct ofs_commit *c,
    const struct ofs_changed *m, struct ofs_zip_sums *sums,
    struct optimfs_error *err)
{
	size_t first = sums->n;

	if (ofs_commit_sums(c, &m->at, NULL, sums, err) == -1)
		return -1;
	for (size_t i = first; i < sums->n; i++) {
		sums->v[i].at += m->at.off;
		sums->v[i].from += m->at.off;
	}
	return 0;
}

/* Finds the checksums of the archives in an object whose bytes change. */
static int find_sums(const struct ofs_commit *c, const struct ofs_extent *all,
    struct ofs_zip_sums *sums, struct optimfs_error *err)
{
	bool record = false;

	for (size_t i = ofs_commit_changed(c, all->object);
	     i < c->nchanged && c->changed[i].at.object == all->object; i++) {
		const struct ofs_changed *m = &c->changed[i];

		record = record || m->at.encoding == OFS_TORCH_RECORD;
		if (m->at.encoding == OFS_TORCH_ITEM &&
		    m->at.codec == OFS_PLAIN &&
		    find_item_sums(c, m, sums, err) == -1)
			return -1;
	}
	if (!record)
		return 0;
	if (has_items(c->cat, all->object))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS826 a tensor inside an object cannot be changed in a "
		    "checkpoint of this format");
	return ofs_commit_sums(c, all,
	    ofs_patches_touched(&c->patches, all->object), sums, err);
}

int ofs_commit_whole(struct ofs_commit *c, uint32_t object, const char *rel,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &c->cat->objects[object];
	const struct ofs_extent all = { .object = object, .len = o->size };
	struct ofs_commit_file *f =
	    ofs_commit_file(c, rel == NULL ? o->path : rel, o->path, err);
	struct ofs_zip_sums sums = { 0 };
	int ret = f == NULL ? -1 : 0;

	if (ret == 0 && rel == NULL)
		ret = find_sums(c, &all, &sums, err);
	if (ret == 0)
		ret = ofs_commit_stored(&f->comp, &all, 0, o->size, &sums, err);
	free(sums.v);
	if (ret == -1)
		return optimfs_fail_in(err, "%.200s", o->path);
	ofs_commit_placed(c, &all);
	return 0;
}

/* Added tensors. */

static uint32_t add_tensor(struct ofs_commit *c,
    const struct ofs_commit_task *t, struct optimfs_error *err)
{
	struct ofs_tensor new = { .dtype = t->dtype,
		.ndim = t->ndim,
		.grid_ndim = t->ndim,
		.error = OFS_NONE,
		.index = OFS_NONE };

	if (ofs_grow(c->added_task, c->nadded, c->added_cap, err) == -1)
		return OFS_NONE;
	new.shape = new.grid =
	    ofs_catalog_dims(c->added, t->shape, t->ndim, err);
	if (ofs_catalog_tensor(c->added, &new, err) == OFS_NONE)
		return OFS_NONE;
	c->added_task[c->nadded] = t;
	return (uint32_t)c->nadded++;
}

uint32_t ofs_commit_added(struct ofs_commit *c, const struct ofs_commit_task *t,
    struct optimfs_error *err)
{
	struct ofs_dir none = { .fd = -1 };
	uint32_t *at;

	if (ofs_commit_complete(c, t, err) == -1)
		return OFS_NONE;
	if (c->added == NULL)
		c->added = ofs_catalog_new(&none, err);
	if (c->added_of == NULL)
		c->added_of = ofs_alloc(c->ntasks, sizeof(*c->added_of), err);
	if (c->added == NULL || c->added_of == NULL)
		return OFS_NONE;
	at = &c->added_of[t - c->task];
	if (*at == 0 && add_tensor(c, t, err) != OFS_NONE)
		*at = (uint32_t)c->nadded;
	return *at - 1;
}

/* Reading. */

static int compare_summed(const void *key, const void *item)
{
	return OFS_ORDER(*(const uint64_t *)key,
	    ((const struct ofs_commit_summed *)item)->end - 1);
}

OFS_COMPARE_BY2(by_from, struct ofs_commit_summed, from, piece)

/* Makes the index of the checksums. Archives do not overlap, nor do records. */
int ofs_commit_file_seal(struct ofs_commit_file *f, struct optimfs_error *err)
{
	size_t n = 0;

	f->summed = ofs_alloc(f->comp.n + 1, sizeof(*f->summed), err);
	if (f->summed == NULL)
		return -1;
	for (size_t i = 0; i < f->comp.n; i++) {
		const struct ofs_piece *p = &f->comp.piece[i];

		if (p->kind == OFS_PIECE_CRC && p->crc.n > 0)
			f->summed[n++] =
			    (struct ofs_commit_summed){ p->crc.from,
				    p->crc.from + p->crc.n, i };
	}
	if (n > 0)
		qsort(f->summed, n, sizeof(*f->summed), by_from);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || f->summed[i].from != f->summed[i - 1].from)
			f->summed[f->nsummed++] = f->summed[i];
	return 0;
}

/* Reads elements of an added tensor; the range may begin and end inside one. */
static int read_added(const struct ofs_commit *c, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err)
{
	const struct ofs_commit_task *t = c->added_task[p->tensor];
	uint64_t item = ofs_dtype_size(t->dtype), first = from / item;
	uint64_t count = (from + n + item - 1) / item - first;
	uint8_t *whole;
	int ret;

	if (from % item == 0 && n % item == 0)
		return ofs_commit_elements(c, t, p->first + first, count, buf,
		    err);
	whole = ofs_alloc(count, item, err);
	if (whole == NULL)
		return -1;
	ret = ofs_commit_elements(c, t, p->first + first, count, whole, err);
	if (ret == 0)
		memcpy(buf, whole + (from - first * item), n);
	free(whole);
	return ret;
}

static int read_piece(struct ofs_commit_file *f, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err)
{
	switch (p->kind) {
	case OFS_PIECE_BYTES:
		memcpy(buf, p->bytes + from, n);
		return 0;
	case OFS_PIECE_STORED:
		return ofs_patches_read(&f->commit->patches, p->stored.at,
		    p->stored.from + from, n, buf, err);
	case OFS_PIECE_BOX:
		return read_added(f->commit, p, from, n, buf, err);
	case OFS_PIECE_CRC:
		memset(buf, 0, n); /* put_sum */
	}
	return 0;
}

/* Calls each for the pieces of a range: n bytes from byte from of p, which are
 * at buf. */
typedef int piece_fn(struct ofs_commit_file *f, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err);

static int each_piece(struct ofs_commit_file *f, uint8_t *buf, uint64_t len,
    uint64_t off, piece_fn *each, struct optimfs_error *err)
{
	const struct ofs_composition *comp = &f->comp;
	uint64_t end = off + len, n;

	for (size_t i = ofs_composition_find(comp, off);
	     i < comp->n && off < end; i++) {
		const struct ofs_piece *p = &comp->piece[i];
		uint64_t from = off - p->off;

		n = p->len - from < end - off ? p->len - from : end - off;
		if (each(f, p, from, n, buf, err) == -1)
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

static int put_sum(struct ofs_commit_file *f, const struct ofs_piece *p,
    uint64_t from, uint64_t n, uint8_t *buf, struct optimfs_error *err)
{
	int ret;

	if (p->kind != OFS_PIECE_CRC)
		return 0;
	/* another thread may be computing it */
	pthread_mutex_lock(&f->lock);
	ret = ofs_checksum_put(&f->sums, p, (unsigned)from,
	    (unsigned)(from + n), buf, read_covered, f, err);
	pthread_mutex_unlock(&f->lock);
	return ret;
}

int ofs_commit_file_read(void *file, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct ofs_commit_file *f = file;

	if (each_piece(f, buf, len, off, read_piece, err) == -1)
		return -1;
	for (size_t i = ofs_lower_bound(&off, f->summed, f->nsummed,
		 sizeof(*f->summed), compare_summed);
	     i < f->nsummed && f->summed[i].from < off + len; i++)
		ofs_checksum_pass(&f->sums, &f->comp.piece[f->summed[i].piece],
		    buf, off, len);
	return each_piece(f, buf, len, off, put_sum, err);
}
