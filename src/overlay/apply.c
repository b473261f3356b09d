/* apply.c - put staged bytes over the elements of a box */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/dtype.h"
#include "overlay/overlay_impl.h"

/* The elements of a box as runs that are contiguous in the tensor. */
struct runs {
	unsigned ndim, outer; /* dimensions; those outside the runs */
	const uint64_t *grid, *off, *size;
	uint64_t len;  /* elements in a run */
	uint64_t item; /* bytes in an element */
};

static void runs_init(struct runs *r, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box)
{
	*r = (struct runs){
		.ndim = t->grid_ndim,
		.grid = cat->dims + t->grid,
		.item = ofs_dtype_size(t->dtype),
		.len = 1,
	};
	if (box == NULL) {
		r->len = ofs_tensor_numel(cat, t);
		return;
	}
	r->off = box;
	r->size = box + r->ndim;
	r->outer = r->ndim;
	while (r->outer > 0) {
		r->outer--;
		r->len *= r->size[r->outer];
		if (r->size[r->outer] != r->grid[r->outer])
			break;
	}
}

/* The position of run i in the tensor, in elements. */
static uint64_t runs_at(const struct runs *r, uint64_t i)
{
	uint64_t at = 0, pitch = 1;

	if (r->off == NULL)
		return 0;
	for (unsigned d = r->ndim; d-- > 0;) {
		uint64_t index = 0;

		if (d < r->outer) {
			index = i % r->size[d];
			i /= r->size[d];
		}
		at += (r->off[d] + index) * pitch;
		pitch *= r->grid[d];
	}
	return at;
}

/* A contiguous range of the tensor's bytes, and its destination. */
struct stretch {
	uint64_t off, end, dst;
};

struct cursor {
	struct runs runs;
	uint64_t at, end, dst; /* elements of the box; bytes */
};

static bool next(struct cursor *c, struct stretch *s)
{
	uint64_t run, into, n;

	if (c->at == c->end || c->runs.len == 0)
		return false;
	run = c->at / c->runs.len;
	into = c->at % c->runs.len;
	n = c->runs.len - into < c->end - c->at ? c->runs.len - into
						: c->end - c->at;
	s->off = (runs_at(&c->runs, run) + into) * c->runs.item;
	s->end = s->off + n * c->runs.item;
	s->dst = c->dst;
	c->at += n;
	c->dst += n * c->runs.item;
	return true;
}

static void begin(struct cursor *c, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count)
{
	runs_init(&c->runs, cat, t, box);
	c->at = first;
	c->end = first + count;
	c->dst = 0;
}

/* Adjacent gaps are merged. */
struct gaps {
	uint64_t first, end; /* the gap that is not reported yet */
	ofs_overlay_gap_fn *each;
	void *ctx;
	struct optimfs_error *err;
};

static int report(struct gaps *h)
{
	uint64_t n = h->end - h->first;

	return n == 0 ? 0 : h->each(h->ctx, h->first, n, h->err);
}

static int add_gap(struct gaps *h, uint64_t first, uint64_t end)
{
	if (first < h->end)
		first = h->end; /* an element that was already reported */
	if (first >= end)
		return 0;
	if (h->end != first) {
		if (report(h) == -1)
			return -1;
		h->first = first;
	}
	h->end = end;
	return 0;
}

/* Reports the gaps of a stretch; its first element has number at in the box. */
static int stretch_gaps(const struct ofs_overlay_file *f,
    const struct stretch *s, uint64_t at, uint64_t item, struct gaps *h)
{
	uint64_t from = s->off;

	for (size_t i = ofs_ranges_find(&f->written, from); from < s->end;
	     i++) {
		const struct ofs_range *r =
		    i < f->written.n ? &f->written.v[i] : NULL;
		uint64_t lo = r == NULL || r->off > s->end ? s->end : r->off;

		/* a partly staged element belongs to the gap */
		if (from < lo &&
		    add_gap(h, at + (from - s->off) / item,
			at + (lo - s->off + item - 1) / item) == -1)
			return -1;
		if (r == NULL)
			break;
		from = r->end < s->end ? r->end : s->end;
		from -= (from - s->off) % item;
	}
	return 0;
}

int ofs_overlay_gaps(struct ofs_overlay_file *f, const struct ofs_catalog *cat,
    const struct ofs_tensor *t, const uint64_t *box, uint64_t first,
    uint64_t count, ofs_overlay_gap_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct gaps h = { first, first, each, ctx, err };
	struct stretch s;
	struct cursor c;
	int ret = 0;

	begin(&c, cat, t, box, first, count);
	pthread_rwlock_rdlock(&f->lock);
	/* bytes written in place are read like stored ones */
	if (f->bytes->in_place || (f->text && f->accepted == NULL))
		h.end = first + count;
	while (!f->text && !f->bytes->in_place && ret == 0 && next(&c, &s))
		ret = stretch_gaps(f, &s, first + s.dst / c.runs.item,
		    c.runs.item, &h);
	pthread_rwlock_unlock(&f->lock);
	return ret == -1 ? -1 : report(&h);
}

int ofs_overlay_apply(struct ofs_overlay *overlay, struct ofs_overlay_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, bool cut, void *buf,
    struct optimfs_error *err)
{
	uint8_t *to = buf;
	struct stretch s;
	struct cursor c;
	int ret = 0;

	begin(&c, cat, t, box, first, count);
	while (ret == 0 && next(&c, &s))
		ret = ofs_overlay_file_apply(overlay, f, to + s.dst, s.off,
		    s.end, cut ? c.runs.item - 1 : 0, err);
	return ret;
}
