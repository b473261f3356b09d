/* read_ahead.c - reading ahead of sequential readers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/fs.h"
#include "read/locate.h"

/* A reader that waits for each read leaves a network idle in between. So during
 * a sequential read of a file, its next reads are requested in advance. They
 * get the same length, because readers rarely change it, so that the extents
 * match and the bytes are found again. The further the reader has come, the
 * more is requested; nothing past the end of the file.
 *
 * Only for files whose bytes are stored as they are: not for views, and not for
 * writable mounts. */

/* Shorter reads are not read ahead. */
#define LEN_MIN (UINT64_C(64) << 10)
/* Limits of what is requested in advance: reads, and bytes. */
#define READS_MAX 8
#define BYTES_MAX (UINT64_C(16) << 20)

/* The tensor that is the whole contents of the file; NULL: none. */
static const struct ofs_tensor *shown(const struct optimfs_file *file)
{
	const struct ofs_composition *c = &file->comp;
	const struct ofs_piece *p = c->n == 0 ? NULL : &c->piece[c->n - 1];

	return p == NULL || p->kind != OFS_PIECE_BOX
	    ? NULL
	    : &file->snap->cat->tensors[p->tensor];
}

/* As above, if it is stored encoded and in parts. */
static const struct ofs_tensor *encoded(const struct optimfs_file *file)
{
	const struct ofs_tensor *t = shown(file);

	return t != NULL && t->nshards > 1 &&
		file->snap->cat->shards[t->shard].at.codec != OFS_PLAIN &&
		file->snap->reader.transport->ops->decode != NULL
	    ? t
	    : NULL;
}

/* Is it computed? Then its bytes are in no file. */
static bool is_derived(const struct optimfs_file *file)
{
	const struct ofs_tensor *t = shown(file);

	return t != NULL && t->nshards > 0 &&
	    file->snap->cat->shards[t->shard].at.encoding == OFS_DERIVED;
}

static bool may_ahead(const struct optimfs_file *file)
{
	return file->snap->overlay == NULL && file->view == NULL &&
	    !file->comp.casts && !is_derived(file) &&
	    (file->snap->reader.transport->ops->ahead != NULL ||
		encoded(file) != NULL);
}

/* For encoded items, the next items are decoded by worker threads while the
 * reader uses the current one. */

/* The extents of the next elements. */
#define EXTENTS_MAX 32
struct coming {
	const struct ofs_catalog *cat;
	const struct ofs_reader *reader;
	uint64_t whole; /* extents that are shorter are wanted whole */
	size_t n;
	struct ofs_extent at[EXTENTS_MAX];
};

static int add_extent(void *ctx, uint32_t shard)
{
	struct coming *x = ctx;

	x->at[x->n++] = x->cat->shards[shard].at;
	return x->n == EXTENTS_MAX;
}

static void decode_ahead(struct optimfs_file *file, uint64_t off)
{
	struct ofs_transport *t = file->snap->reader.transport;
	const struct ofs_catalog *cat = file->snap->cat;
	const struct ofs_piece *p = &file->comp.piece[file->comp.n - 1];
	const struct ofs_tensor *tensor = encoded(file);
	uint64_t item = ofs_dtype_size(p->dtype), first, numel;
	struct coming x = { .cat = cat };

	if (tensor == NULL || off < p->off || item == 0)
		return;
	numel = ofs_tensor_numel(cat, tensor);
	first = (off - p->off) / item;
	if (p->first != 0 || first >= numel)
		return;
	ofs_plan_shards(cat, tensor, first, numel - first, add_extent, &x);
	t->ops->decode(t, x.at, x.n, numel / tensor->nshards * item);
}

/* The position of a read relative to the ones before. The kernel's own
 * read-ahead sends several at once, a little out of order. */
enum way { ELSEWHERE, BEHIND, ONWARD };

static enum way way_of(const struct optimfs_file *file, uint64_t off,
    uint64_t len)
{
	const struct ofs_read_ahead *a = &file->ahead;
	bool last = len < a->len && off + len == file->comp.size;

	if (len != a->len && !last)
		return ELSEWHERE;
	if (off >= a->next && off - a->next <= a->len)
		return ONWARD;
	return off < a->next && a->next - off <= 2 * a->len ? BEHIND
							    : ELSEWHERE;
}

static void drop(struct optimfs_file *file)
{
	struct ofs_transport *t = file->snap->reader.transport;

	if (file->ahead.asked != 0)
		t->ops->ahead(t, file, NULL, 0);
	file->ahead.asked = 0;
}

/* Is the range stored? Executing a plan copies literal bytes at once, and there
 * is no buffer for them. */
static bool is_stored(const struct optimfs_file *file, uint64_t off,
    uint64_t len)
{
	const struct ofs_composition *c = &file->comp;
	uint64_t from = off, n = len;
	size_t i = ofs_composition_find(c, off);

	ofs_composition_align(c, &from, &n);
	return from == off && n == len && i < c->n &&
	    c->piece[i].kind == OFS_PIECE_BOX && c->piece[i].off <= off &&
	    off + len <= c->piece[i].off + c->piece[i].len;
}

static void ask(struct optimfs_file *file, uint64_t off, uint64_t len)
{
	struct ofs_reader *r = &file->snap->reader;
	struct ofs_plan *plan = &file->ahead.plan;

	ofs_plan_clear(plan);
	if (is_stored(file, off, len) &&
	    ofs_composition_plan(&file->comp, file->snap->cat, off, len, NULL,
		ofs_locate_shard, r, plan, NULL) == 0 &&
	    plan->n > 0)
		r->transport->ops->ahead(r->transport, file, plan->seg,
		    plan->n);
}

/* The lock is held. */
static void ask_ahead(struct optimfs_file *file)
{
	struct ofs_read_ahead *a = &file->ahead;
	uint64_t size = file->comp.size, n = READS_MAX, end;

	if (a->streak < 3)
		n = UINT64_C(1) << a->streak;
	if (n > BYTES_MAX / a->len)
		n = BYTES_MAX / a->len;
	end = size - a->next < n * a->len ? size : a->next + n * a->len;
	if (a->asked < a->next)
		a->asked = a->next;
	for (; a->asked < end; a->asked += n) {
		n = size - a->asked < a->len ? size - a->asked : a->len;
		ask(file, a->asked, n);
	}
}

/* A cold read of a shard waits for the disk twice: for the offset of its
 * elements, and for the elements. A read of many shards requests all of them
 * first: only their headers if they are long, but all of those of a tensor that is
 * fetched at once. */
#define MANY      4
#define PIECE_MAX (UINT64_C(1) << 20)
#define HEADER    (UINT64_C(4) << 10)

static int add_untouched(void *ctx, uint32_t shard)
{
	struct coming *x = ctx;
	const struct ofs_extent *at = &x->cat->shards[shard].at;
	struct ofs_extent *to = &x->at[x->n];

	if (atomic_load(&x->reader->place[shard]) != NULL)
		return 0;
	*to = *at;
	/* a record of an archive begins with a header */
	to->len = at->len < x->whole ? at->len + HEADER : HEADER;
	if (++x->n == EXTENTS_MAX) {
		x->reader->transport->ops->willneed(x->reader->transport, x->at,
		    x->n);
		x->n = 0;
	}
	return 0;
}

/* Is all of it in memory now? */
static bool touch_all(struct optimfs_file *file, uint64_t off, uint64_t len)
{
	struct ofs_reader *r = &file->snap->reader;
	const struct ofs_catalog *cat = file->snap->cat;
	const struct ofs_tensor *t = shown(file);
	struct coming x = { .cat = cat, .reader = r, .whole = PIECE_MAX };
	const struct ofs_piece *p;
	uint64_t item, end;

	if (t == NULL ||
	    t->nshards < (r->transport->ops->at_once > 0 ? 2 : MANY) ||
	    r->transport->ops->willneed == NULL)
		return false;
	p = &file->comp.piece[file->comp.n - 1];
	item = ofs_dtype_size(p->dtype);
	if (off < p->off)
		len = len < p->off - off ? 0 : len - (p->off - off);
	off = off < p->off ? 0 : off - p->off;
	end = off + len < p->len ? off + len : p->len;
	if (item == 0 || p->first != 0 || off >= end)
		return false;
	if (end - off == p->len && p->len <= r->transport->ops->at_once)
		x.whole = UINT64_MAX;
	ofs_plan_shards(cat, t, off / item, (end - 1) / item - off / item + 1,
	    add_untouched, &x);
	if (x.n > 1)
		r->transport->ops->willneed(r->transport, x.at, x.n);
	return x.n > 1 && x.whole == UINT64_MAX;
}

/* Looks for the places of the bytes [off, off + len). */
static void locate(struct optimfs_file *file, uint64_t off, uint64_t len)
{
	const struct ofs_composition *c = &file->comp;
	const struct ofs_piece *p = c->n == 0 ? NULL : &c->piece[c->n - 1];
	struct ofs_plan plan = { .n = 0 };

	if (p == NULL)
		return;
	if (off < p->off) {
		len -= p->off - off < len ? p->off - off : len;
		off = p->off;
	}
	/* who reads them will see why they cannot be had */
	if (len > 0 && is_stored(file, off, len))
		(void)ofs_composition_plan(c, file->snap->cat, off, len, NULL,
		    ofs_locate_shard, &file->snap->reader, &plan, NULL);
	ofs_plan_fini(&plan);
}

bool ofs_file_prepare(struct optimfs_file *file, uint64_t off, uint64_t len)
{
	struct ofs_snapshot *snap = ofs_file_enter(file);
	bool here = false;

	if (file->snap->overlay == NULL && file->view == NULL &&
	    !file->comp.casts && !is_derived(file)) {
		here = touch_all(file, off, len);
		if (!here)
			locate(file, off, len);
	}
	(void)ofs_file_leave(file, snap, false);
	return here;
}

static int pass_segment(struct ofs_transport *t, struct ofs_segment seg,
    optimfs_sink_fn *sink, void *ctx, uint64_t *given,
    struct optimfs_error *err)
{
	int ret = 0;

	while (ret == 0 && seg.len > 0) {
		uint64_t n = seg.len;
		void *held;
		const void *p = t->ops->hold(t, seg.object, seg.src, &n, &held);

		if (p == NULL)
			break;
		ret = sink(ctx, p, (size_t)n, err);
		t->ops->let(t, held);
		seg.src += n;
		seg.len -= n;
		*given += ret == 0 ? n : 0;
	}
	return ret;
}

/* Segments that follow each other in the file, as they are stored. */
static int pass_plan(struct ofs_transport *t, const struct ofs_plan *plan,
    optimfs_sink_fn *sink, void *ctx, uint64_t *given,
    struct optimfs_error *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < plan->n; i++) {
		const struct ofs_segment *seg = &plan->seg[i];

		if (seg->codec != OFS_PLAIN || seg->fix != OFS_FIX_NONE ||
		    seg->n != 1 || seg->dst != *given)
			break;
		ret = pass_segment(t, *seg, sink, ctx, given, err);
	}
	return ret;
}

/* Are its bytes those of a tensor, and as they are stored? */
static bool may_pass(const struct optimfs_file *file)
{
	return !file->lost && file->snap->overlay == NULL &&
	    file->view == NULL && file->at.space < OFS_SPACE_RANK &&
	    shown(file) != NULL && !file->comp.casts && !is_derived(file);
}

int ofs_file_pass(struct optimfs_file *file, uint64_t off, uint64_t *n,
    optimfs_sink_fn *sink, void *ctx, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_file_enter(file);
	struct ofs_reader *r = &file->snap->reader;
	struct ofs_plan plan = { .n = 0 };
	uint64_t len = *n;
	int ret = 0;

	*n = 0;
	if (r->transport->ops->hold != NULL && may_pass(file) &&
	    is_stored(file, off, len) &&
	    ofs_composition_plan(&file->comp, file->snap->cat, off, len, NULL,
		ofs_locate_shard, r, &plan, NULL) == 0)
		ret = pass_plan(r->transport, &plan, sink, ctx, n, err);
	ofs_plan_fini(&plan);
	atomic_fetch_add_explicit(&file->snap->fs->read_bytes, *n,
	    memory_order_relaxed);
	(void)ofs_file_leave(file, snap, false);
	return ret;
}

/* The shards of a tensor that is read once, from its beginning. */
struct onward {
	struct coming coming;
	const struct ofs_tensor *t;
	uint64_t numel; /* of those that are known */
};

/* Are its elements those that follow in the tensor? If so for all of them, each is
 * a contiguous range. */
static bool follows(const struct onward *o, const struct ofs_shard *s,
    uint64_t *numel)
{
	const struct ofs_catalog *cat = o->coming.cat;
	const uint64_t *grid = cat->dims + o->t->grid;
	uint64_t off[OFS_MAX_DIMS], size[OFS_MAX_DIMS], first = 0;

	*numel = 1;
	ofs_shard_box(cat, o->t, s, off, size);
	for (size_t i = 0; i < o->t->grid_ndim; i++) {
		first = first * grid[i] + off[i];
		*numel *= size[i];
	}
	return first == o->numel;
}

static int add_onward(void *ctx, uint32_t shard)
{
	struct onward *o = ctx;
	struct coming *x = &o->coming;
	const struct ofs_shard *s = &x->cat->shards[shard];
	uint64_t numel;

	if (x->n == EXTENTS_MAX || !follows(o, s, &numel))
		return -1;
	for (size_t i = 0; i < x->n; i++)
		if (x->at[i].object == s->at.object &&
		    x->at[i].off >= s->at.off)
			return -1;
	x->at[x->n] = s->at;
	x->at[x->n++].len += HEADER;
	o->numel += numel;
	return 0;
}

void *ofs_file_stream(struct optimfs_file *file)
{
	struct ofs_transport *t = file->snap->reader.transport;
	const struct ofs_catalog *cat = file->snap->cat;
	struct onward o = { .coming.cat = cat, .t = shown(file) };
	const struct ofs_piece *p;
	uint64_t numel;

	if (t->ops->stream == NULL || !may_pass(file))
		return NULL;
	p = &file->comp.piece[file->comp.n - 1];
	numel = ofs_tensor_numel(cat, o.t);
	if (p->len != numel * ofs_dtype_size(p->dtype) ||
	    ofs_plan_shards(cat, o.t, 0, numel, add_onward, &o) != 0 ||
	    o.coming.n == 0)
		return NULL;
	return t->ops->stream(t, o.coming.at, o.coming.n);
}

void ofs_file_streamed(struct optimfs_file *file, void *stream)
{
	struct ofs_transport *t = file->snap->reader.transport;

	if (stream != NULL)
		t->ops->streamed(t, stream);
}

uint64_t ofs_file_at_once(struct optimfs_file *file)
{
	struct ofs_snapshot *snap = ofs_file_enter(file);
	uint64_t n = file->snap->reader.transport->ops->at_once;

	(void)ofs_file_leave(file, snap, false);
	return n;
}

void ofs_file_ahead(struct optimfs_file *file, uint64_t off, uint64_t len)
{
	struct ofs_read_ahead *a = &file->ahead;

	if (file->snap->overlay == NULL && file->view == NULL &&
	    !is_derived(file))
		(void)touch_all(file, off, len);
	if (!may_ahead(file))
		return;
	pthread_mutex_lock(&a->lock);
	switch (way_of(file, off, len)) {
	case ELSEWHERE:
		drop(file);
		a->streak = 0;
		a->next = off + len;
		a->len = len;
		break;
	case BEHIND:
		break;
	case ONWARD:
		a->streak++;
		a->next = off + len;
		decode_ahead(file, a->next);
		if (a->len >= LEN_MIN &&
		    file->snap->reader.transport->ops->ahead != NULL)
			ask_ahead(file);
		break;
	}
	pthread_mutex_unlock(&a->lock);
}

void ofs_file_ahead_init(struct optimfs_file *file)
{
	pthread_mutex_init(&file->ahead.lock, NULL);
}

void ofs_file_ahead_fini(struct optimfs_file *file)
{
	drop(file);
	ofs_plan_fini(&file->ahead.plan);
	pthread_mutex_destroy(&file->ahead.lock);
}
