/* apply.c - put staged bytes over the elements of a box */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "overlay/overlay_impl.h"
#include "plan/runs.h"

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
    const struct ofs_stretch *s, uint64_t at, uint64_t item, struct gaps *h)
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
	struct ofs_stretch s;
	struct ofs_runs runs;
	int ret = 0;

	ofs_runs_begin(&runs, cat, t, box, first, count);
	pthread_rwlock_rdlock(&f->lock);
	if (f->text && f->accepted == NULL)
		h.end = first + count;
	while (!f->text && ret == 0 && ofs_runs_next(&runs, &s))
		ret = stretch_gaps(f, &s, first + s.dst / runs.item, runs.item,
		    &h);
	pthread_rwlock_unlock(&f->lock);
	return ret == -1 ? -1 : report(&h);
}

int ofs_overlay_apply(struct ofs_overlay *overlay, struct ofs_overlay_file *f,
    const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const uint64_t *box, uint64_t first, uint64_t count, bool cut, void *buf,
    struct optimfs_error *err)
{
	uint8_t *to = buf;
	struct ofs_stretch s;
	struct ofs_runs runs;
	int ret = 0;

	ofs_runs_begin(&runs, cat, t, box, first, count);
	while (ret == 0 && ofs_runs_next(&runs, &s))
		ret = ofs_overlay_file_apply(overlay, f, to + s.dst, s.off,
		    s.end, cut ? runs.item - 1 : 0, err);
	return ret;
}
