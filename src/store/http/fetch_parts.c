/* fetch_parts.c - segments as parts that go to a server in few ranges */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/http/fetch_impl.h"

/* Segments are cut into parts of bounded length, sorted, and joined to ranges: a
 * gap that is shorter than a request takes is read over. */
#define GAP (UINT64_C(1) << 20)

static int add_part(struct ofs_http_fetching *f, const struct ofs_segment *seg,
    struct optimfs_error *err)
{
	if (ofs_grow(f->part, f->n, f->cap, err) == -1)
		return -1;
	f->part[f->n++] = *seg;
	return 0;
}

/* Adds one run in pieces. */
static int cut_run(struct ofs_http_fetching *f, struct ofs_segment run,
    struct optimfs_error *err)
{
	uint64_t range = f->s->http->limits.range, left = run.len;

	run.n = 1;
	while (left > 0) {
		run.len = range;
		if (f->s->disk != NULL) /* no block is in two ranges */
			run.len -= run.src % range;
		/* a short rest is no request of its own */
		if (run.len + OFS_HTTP_REST > left)
			run.len = left;
		if (add_part(f, &run, err) == -1)
			return -1;
		run.src += run.len;
		run.dst += run.len;
		left -= run.len;
	}
	return 0;
}

/* Begins with the run that has the lowest offset. */
static struct ofs_segment upward(const struct ofs_segment *seg)
{
	struct ofs_segment up = *seg;

	if (seg->n < 2 || seg->src_pitch >= 0)
		return up;
	up.src += (uint64_t)seg->src_pitch * (seg->n - 1);
	up.dst += (uint64_t)seg->dst_pitch * (seg->n - 1);
	up.src_pitch = -seg->src_pitch;
	up.dst_pitch = -seg->dst_pitch;
	return up;
}

static uint64_t runs_of_list(const struct ofs_http_fetching *f, uint64_t len)
{
	uint64_t n = ofs_http_list_most(f) / len;

	return n == 0 ? 1 : n > OFS_HTTP_LIST_RUNS ? OFS_HTTP_LIST_RUNS : n;
}

static int cut(struct ofs_http_fetching *f, const struct ofs_segment *seg,
    struct optimfs_error *err)
{
	struct ofs_segment up = upward(seg), part;
	uint64_t pitch = (uint64_t)up.src_pitch, most = 1;
	uint64_t range = f->s->http->limits.range;

	if (up.len < range && ofs_http_is_sparse(f, &up))
		most = runs_of_list(f, up.len);
	else if (up.n > 1 && up.len < range && pitch < up.len + GAP)
		most = pitch == 0 ? up.n : (range - up.len) / pitch + 1;
	for (uint64_t i = 0; i < up.n; i += part.n) {
		part = up;
		part.src += i * pitch;
		part.dst += i * (uint64_t)up.dst_pitch;
		part.n = up.n - i < most ? up.n - i : most;
		if (part.n == 1 ? cut_run(f, part, err) == -1
				: add_part(f, &part, err) == -1)
			return -1;
	}
	return 0;
}

uint64_t ofs_http_part_end(const struct ofs_segment *p)
{
	return p->src + p->len + (p->n - 1) * (uint64_t)p->src_pitch;
}

static int by_place(const void *a, const void *b)
{
	const struct ofs_segment *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	return x->src < y->src ? -1 : x->src > y->src;
}

/* Do p and next continue one sequence of runs, for which a list has one entry? */
static bool continues(const struct ofs_segment *p,
    const struct ofs_segment *next)
{
	uint64_t src = next->src - p->src - (p->n - 1) * (uint64_t)p->src_pitch;
	uint64_t dst = next->dst - p->dst - (p->n - 1) * (uint64_t)p->dst_pitch;

	return next->n == 1 && next->object == p->object &&
	    next->len == p->len && src > p->len &&
	    (p->n == 1 ||
		(src == (uint64_t)p->src_pitch &&
		    dst == (uint64_t)p->dst_pitch));
}

/* Makes one segment of runs at equal distances. Returns how many there are. */
static size_t join_runs(struct ofs_segment *p, size_t n)
{
	size_t out = 0;

	for (size_t i = 1; i < n; i++)
		if (!continues(&p[out], &p[i])) {
			p[++out] = p[i];
		} else if (p[out].n++ == 1) {
			p[out].src_pitch = (int64_t)(p[i].src - p[out].src);
			p[out].dst_pitch = (int64_t)(p[i].dst - p[out].dst);
		}
	return n == 0 ? 0 : out + 1;
}

int ofs_http_cut(struct ofs_http_fetching *f, const struct ofs_segment *segs,
    size_t n, struct optimfs_error *err)
{
	struct ofs_segment *sorted = ofs_alloc(n, sizeof(*sorted), err);
	int ret = sorted == NULL ? -1 : 0;

	if (ret == 0) {
		memcpy(sorted, segs, n * sizeof(*sorted));
		qsort(sorted, n, sizeof(*sorted), by_place);
		n = join_runs(sorted, n);
	}
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = cut(f, &sorted[i], err);
	free(sorted);
	if (ret == 0 && f->n > 1)
		qsort(f->part, f->n, sizeof(*f->part), by_place);
	return ret;
}

/* Does it go to a list? One that was cut for that is too long for a range. */
static bool is_for_list(const struct ofs_http_fetching *f,
    const struct ofs_segment *p)
{
	return ofs_http_part_end(p) - p->src >
	    f->s->http->limits.range + OFS_HTTP_REST ||
	    ofs_http_is_sparse(f, p);
}

struct ofs_http_range ofs_http_join_parts(const struct ofs_http_fetching *f,
    size_t i)
{
	const struct ofs_segment *p = &f->part[i];
	struct ofs_http_range r = { .file = p->object,
		.first = p->src,
		.end = ofs_http_part_end(p),
		.part = i,
		.n = 1 };
	bool sparse = is_for_list(f, p);

	for (i++; i < f->n; i++) {
		uint64_t end;

		p = &f->part[i];
		end =
		    ofs_http_part_end(p) > r.end ? ofs_http_part_end(p) : r.end;
		if (p->object != r.file || is_for_list(f, p) != sparse)
			break;
		if (!sparse &&
		    ((p->src > r.end && p->src - r.end >= GAP) ||
			end - r.first >
			    f->s->http->limits.range + OFS_HTTP_REST))
			break;
		r.end = end;
		r.n++;
	}
	/* what is short is kept in blocks */
	if (sparse ||
	    (r.end - r.first > OFS_HTTP_SHORT && ofs_http_has_gaps(f, &r)))
		ofs_http_make_sparse(f, &r);
	return r;
}
