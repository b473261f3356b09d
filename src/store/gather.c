/* gather.c - runs of a source into a buffer, with few and large reads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/gather.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/search.h"
#include "store/runs.h"

/* Collecting runs has three costs: system calls, copying out of the kernel, and
 * copying again from a scratch buffer to the destination. The numbers below are
 * where measured costs were equal (docs/performance.md, "Gathering").
 *
 * Long runs are read directly to their destinations: adjacent runs of the
 * source become one preadv, with short gaps between them read to scratch. Short
 * runs are covered: a window of the source is read to scratch, and the runs in
 * it are copied from there. Segments with interleaved runs, such as the rows of
 * a transposed tensor, share the windows. */
#define LONG_RUN  4096 /* from this length on, read to the destination */
#define SKIP      4096 /* widest gap that is cheaper to read than to skip */
#define PART_RUNS 8    /* up to this many segments need no malloc */

/* A segment whose pitch in the source was made positive. */
struct run {
	uint64_t src, len, n, pitch;
	uint8_t *dst;
	int64_t dst_pitch;
};

static uint64_t span(const struct run *r)
{
	return (r->n - 1) * r->pitch + r->len;
}

bool ofs_segment_inside(const struct ofs_segment *seg, uint64_t size)
{
	uint64_t pitch, reach, end;

	if (seg->len == 0 || seg->n == 0)
		return true;
	pitch = seg->src_pitch < 0 ? -(uint64_t)seg->src_pitch
				   : (uint64_t)seg->src_pitch;
	if (seg->n == 1)
		pitch = 0;
	if (!ofs_mul_u64(seg->n - 1, pitch, &reach))
		return false;
	if (seg->src_pitch < 0)
		return reach <= seg->src &&
		    ofs_add_u64(seg->src, seg->len, &end) && end <= size;
	return ofs_add_u64(seg->src, reach, &end) &&
	    ofs_add_u64(end, seg->len, &end) && end <= size;
}

static struct run run_of(const struct ofs_segment *seg, uint8_t *dst)
{
	struct run r = { .src = seg->src,
		.len = seg->len,
		.n = seg->n,
		.pitch = (uint64_t)seg->src_pitch,
		.dst = dst + seg->dst,
		.dst_pitch = seg->dst_pitch };

	if (r.n == 1) {
		r.pitch = 0;
	} else if (seg->src_pitch < 0) {
		r.pitch = -(uint64_t)seg->src_pitch;
		r.src -= (r.n - 1) * r.pitch;
		r.dst += (int64_t)(r.n - 1) * r.dst_pitch;
		r.dst_pitch = -r.dst_pitch;
	}
	if (r.pitch == r.len && r.dst_pitch == (int64_t)r.len) {
		r.len *= r.n;
		r.n = 1;
		r.pitch = 0;
	}
	return r;
}

OFS_COMPARE_BY(by_src, struct run, src)

/* Sort n runs, and merge those that are contiguous on both sides. */
static size_t tidy(struct run *r, size_t n)
{
	size_t out = 0;
	bool sorted = true;

	for (size_t i = 1; i < n && sorted; i++)
		sorted = r[i - 1].src <= r[i].src;
	if (!sorted)
		qsort(r, n, sizeof(*r), by_src);
	for (size_t i = 0; i < n; i++) {
		struct run *last = out == 0 ? NULL : &r[out - 1];

		if (last != NULL && last->n == 1 && r[i].n == 1 &&
		    last->src + last->len == r[i].src &&
		    last->dst + last->len == r[i].dst)
			last->len += r[i].len;
		else
			r[out++] = r[i];
	}
	return out;
}

/* Long runs that are collected for one preadv. */
struct vector {
	const struct ofs_source *s;
	uint8_t *scratch;
	uint64_t off, end; /* range of the source that iov covers */
	int n;
	bool gaps;
	struct iovec iov[IOV_MAX];
};

/* A gap that cannot be read must not fail the runs around it: read them one by
 * one. */
static int read_apart(struct vector *v)
{
	struct optimfs_error again;
	uint64_t off = v->off;

	for (int i = 0; i < v->n; i++) {
		struct iovec one = v->iov[i];

		if (one.iov_base != v->scratch &&
		    v->s->readv(v->s, &one, 1, off, &again) == -1)
			return -1;
		off += v->iov[i].iov_len;
	}
	return 0;
}

static int flush(struct vector *v, struct optimfs_error *err)
{
	struct iovec work[IOV_MAX];
	int ret;

	if (v->n == 0)
		return 0;
	memcpy(work, v->iov, (size_t)v->n * sizeof(*work));
	ret = v->s->readv(v->s, work, v->n, v->off, err);
	if (ret == -1 && v->gaps && err->code == EIO)
		ret = read_apart(v);
	v->n = 0;
	v->gaps = false;
	return ret;
}

static int add_long(struct vector *v, uint64_t src, uint8_t *dst, uint64_t len,
    struct optimfs_error *err)
{
	struct iovec *last;

	if (v->n > 0 &&
	    (src < v->end || src - v->end > SKIP || v->n > IOV_MAX - 2) &&
	    flush(v, err) == -1)
		return -1;
	if (v->n == 0)
		v->off = v->end = src;
	if (src > v->end) {
		v->iov[v->n++] = (struct iovec){ v->scratch, src - v->end };
		v->gaps = true;
	}
	last = v->n > 0 ? &v->iov[v->n - 1] : NULL;
	if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == dst)
		last->iov_len += len;
	else
		v->iov[v->n++] = (struct iovec){ dst, len };
	v->end = src + len;
	return 0;
}

static int gather_long(struct vector *v, const struct run *r,
    struct optimfs_error *err)
{
	for (uint64_t i = 0; i < r->n; i++)
		if (add_long(v, r->src + i * r->pitch,
			r->dst + (int64_t)i * r->dst_pitch, r->len, err) == -1)
			return -1;
	return 0;
}

/* Short runs that share windows: segments with one pitch whose first runs are
 * near each other. Row i is the range of the i-th runs of all of them. */
struct cluster {
	const struct run *r;
	size_t nruns;
	uint64_t src, row, pitch, end;
};

static struct cluster cluster_of(const struct run *r, size_t n)
{
	struct cluster c = { r, 1, r->src, r->len, r->pitch, r->src + span(r) };
	uint64_t end;

	for (; c.nruns < n; c.nruns++) {
		const struct run *next = &r[c.nruns];

		if (next->pitch != c.pitch || next->len >= LONG_RUN ||
		    (next->src > c.src + c.row &&
			next->src - c.src - c.row > SKIP))
			break;
		end = next->src - c.src + next->len;
		if (end > c.row)
			c.row = end;
		end = next->src + span(next);
		if (end > c.end)
			c.end = end;
	}
	return c;
}

/* Copy the part of run i that is in [from, to). */
static void copy_part(const struct run *r, uint64_t i, uint64_t from,
    uint64_t to, const uint8_t *window)
{
	uint64_t a = r->src + i * r->pitch, b = a + r->len;
	uint8_t *dst = r->dst + (int64_t)i * r->dst_pitch;

	if (a < from) {
		dst += from - a;
		a = from;
	}
	if (b > to)
		b = to;
	if (a < b)
		memcpy(dst, window + (a - from), b - a);
}

/* The runs of r that intersect [from, to): *first, and their number. */
static uint64_t touching(const struct run *r, uint64_t from, uint64_t to,
    uint64_t *first)
{
	uint64_t last = r->n;

	*first = 0;
	if (r->src >= to || r->src + span(r) <= from)
		return 0;
	if (r->pitch == 0)
		return r->n;
	if (from >= r->src + r->len)
		*first = (from - r->src - r->len) / r->pitch + 1;
	if ((to - r->src - 1) / r->pitch < last)
		last = (to - r->src - 1) / r->pitch + 1;
	return last > *first ? last - *first : 0;
}

/* Copy the runs of r in a window of the source. */
static void copy_window(const struct run *r, uint64_t from, uint64_t to,
    const uint8_t *window)
{
	uint64_t first, n = touching(r, from, to, &first);

	/* The edges of the window may split runs. */
	while (n > 0 && r->src + first * r->pitch < from) {
		copy_part(r, first++, from, to, window);
		n--;
	}
	while (n > 0 && r->src + (first + n - 1) * r->pitch + r->len > to)
		copy_part(r, first + --n, from, to, window);
	if (n > 0)
		ofs_copy_runs(r->dst + (int64_t)first * r->dst_pitch,
		    r->dst_pitch, window + (r->src + first * r->pitch - from),
		    (int64_t)r->pitch, r->len, n);
}

/* As above without a window: read run by run whatever is readable. */
static int read_pieces(const struct ofs_source *s, const struct run *r,
    uint64_t from, uint64_t to, struct optimfs_error *err)
{
	uint64_t first, n = touching(r, from, to, &first);

	for (uint64_t i = first; i < first + n; i++) {
		struct iovec iov = { r->dst + (int64_t)i * r->dst_pitch,
			r->len };

		if (s->readv(s, &iov, 1, r->src + i * r->pitch, err) == -1)
			return -1;
	}
	return 0;
}

static int cover(const struct ofs_source *s, const struct cluster *c,
    uint64_t from, uint64_t to, uint8_t *scratch, struct optimfs_error *err)
{
	struct iovec iov = { scratch, to - from };
	struct optimfs_error again;

	if (s->readv(s, &iov, 1, from, err) == 0) {
		for (size_t i = 0; i < c->nruns; i++)
			copy_window(&c->r[i], from, to, scratch);
		return 0;
	}
	if (err->code != EIO)
		return -1;
	for (size_t i = 0; i < c->nruns; i++)
		if (read_pieces(s, &c->r[i], from, to, &again) == -1)
			return -1;
	return 0;
}

/* Cover the rows with windows the size of scratch; if the gaps between rows are
 * narrow, cover these too. */
static int gather_cluster(const struct ofs_source *s, const struct cluster *c,
    uint8_t *scratch, struct optimfs_error *err)
{
	bool whole = c->pitch <= c->row || c->pitch - c->row <= SKIP;
	uint64_t row = whole ? c->end - c->src : c->row;
	uint64_t pitch = whole ? row : c->pitch, to, end;

	for (uint64_t from = c->src; from < c->end; from += pitch) {
		to = c->end - from < row ? c->end : from + row;
		for (uint64_t at = from; at < to; at = end) {
			end = to - at > OFS_SCRATCH ? at + OFS_SCRATCH : to;
			if (cover(s, c, at, end, scratch, err) == -1)
				return -1;
		}
	}
	return 0;
}

/* The runs of n segments, sorted: in few, or malloc'ed. */
static struct run *runs_of(const struct ofs_segment *seg, size_t n,
    uint8_t *dst, struct run *few, size_t *used, struct optimfs_error *err)
{
	struct run *r = n > PART_RUNS ? malloc(n * sizeof(*r)) : few;

	if (r == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	*used = 0;
	for (size_t i = 0; i < n; i++)
		if (seg[i].len != 0 && seg[i].n != 0)
			r[(*used)++] = run_of(&seg[i], dst);
	*used = tidy(r, *used);
	return r;
}

int ofs_gather(const struct ofs_source *s, const struct ofs_segment *seg,
    size_t n, uint8_t *dst, uint8_t *scratch, struct optimfs_error *err)
{
	struct run few[PART_RUNS];
	struct run *r = runs_of(seg, n, dst, few, &n, err);
	struct vector v;
	struct cluster c;
	int ret = 0;

	if (r == NULL)
		return -1;
	v.s = s;
	v.scratch = scratch;
	v.n = 0;
	v.gaps = false;
	for (size_t i = 0; i < n && ret == 0;) {
		if (r[i].len >= LONG_RUN) {
			ret = gather_long(&v, &r[i++], err);
			continue;
		}
		c = cluster_of(r + i, n - i);
		ret = flush(&v, err);
		if (ret == 0)
			ret = gather_cluster(s, &c, scratch, err);
		i += c.nruns;
	}
	if (ret == 0)
		ret = flush(&v, err);
	if (r != few)
		free(r);
	return ret;
}
