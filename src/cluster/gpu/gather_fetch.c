/* gather_fetch.c - fetch segments of other ranks' files through GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/gpu/cut.h"
#include "cluster/gpu/gather_impl.h"

/* The reader's buffer is filled window by window. The parts of the segments in
 * a window are split by the file blocks they come from. Blocks that are not in
 * GPU memory are gathered, then the kernel lays everything out. */

/* Without gpu_cache=, smaller reads use the other transport, whose single
 * request is faster than the three requests of a transfer. */
#define SMALL (64 << 10)
/* If less than one byte in SPARSE of a range is needed, the owner should select
 * them. */
#define SPARSE 4

/* Alignment of transfers, for speed. */
#define ALIGNED 512

/* Choosing suitable segments. */

static bool dense(const struct ofs_segment *s)
{
	return s->n == 1 ||
	    (s->src_pitch >= (int64_t)s->len &&
		s->dst_pitch >= (int64_t)s->len &&
		(uint64_t)s->src_pitch / s->len < SPARSE);
}

static bool suits(const struct ofs_gpu_gather *b,
    const struct ofs_segment *segs, size_t n, uint64_t *end, uint64_t *bytes)
{
	*end = *bytes = 0;
	for (size_t i = 0; i < n; i++) {
		const struct ofs_segment *s = &segs[i];
		uint64_t last;

		if (s->len == 0 || s->n == 0)
			continue;
		if (s->codec != OFS_PLAIN || !dense(s))
			return false;
		last = s->dst + (s->n - 1) * (uint64_t)s->dst_pitch + s->len;
		*end = last > *end ? last : *end;
		*bytes += s->len * s->n;
	}
	return *bytes > 0 && (b->how.gpu_cache > 0 || *bytes > SMALL);
}

/* Filling a round. */

static struct ofs_want *find_want(struct ofs_round *r, uint32_t file,
    uint64_t index)
{
	for (uint32_t i = 0; i < r->nwants; i++)
		if (r->want[i].file == file && r->want[i].index == index)
			return &r->want[i];
	return NULL;
}

/* lo, hi: range needed of the block. NULL: a round failed. */
static struct ofs_want *get_want(struct ofs_round *r, uint32_t file,
    uint64_t index, uint64_t lo, uint64_t hi)
{
	uint64_t size = r->s->file[file].o.size, start = index * OFS_GPU_BLOCK;
	struct ofs_want *w = find_want(r, file, index);

	if (hi > size)
		return NULL; /* the other transport reports the error */
	if (r->nruns == OFS_GPU_RUNS ||
	    (w == NULL && r->nwants == ROUND_BLOCKS)) {
		if (ofs_round_run(r) == -1)
			return NULL;
		w = NULL;
	}
	if (w == NULL) {
		w = &r->want[r->nwants++];
		*w = (struct ofs_want){ .file = file,
			.index = index,
			.lo = lo,
			.hi = hi,
			.block = OFS_NO_BLOCK };
	}
	if (r->b->how.gpu_cache > 0) {
		w->lo = start;
		w->hi =
		    size - start < OFS_GPU_BLOCK ? size : start + OFS_GPU_BLOCK;
	}
	w->lo = (lo < w->lo ? lo : w->lo) & ~(uint64_t)(ALIGNED - 1);
	w->hi = hi > w->hi ? hi : w->hi;
	return w;
}

static int add_run(struct ofs_round *r, const struct ofs_want *w, uint64_t at,
    const struct ofs_segment *s)
{
	uint64_t dst = s->dst - r->base;
	uint64_t end = dst + (s->n - 1) * (uint64_t)s->dst_pitch + s->len;

	if (ofs_grow(r->run, r->nruns, r->cap, &r->err) == -1)
		return -1;
	r->run[r->nruns++] = (struct ofs_gpu_run){
		.src = (uint64_t)(w - r->want) << 32 | at,
		.dst = dst,
		.len = s->len,
		.n = s->n,
		.src_pitch = s->src_pitch,
		.dst_pitch = s->dst_pitch,
	};
	if (r->nruns == 1 || dst < r->start)
		r->start = dst;
	if (end > r->end)
		r->end = end;
	r->ncopied += s->len * s->n;
	return 0;
}

/* The runs of a cut. */
static struct ofs_segment part_of(const struct ofs_segment *s,
    const struct ofs_cut *c)
{
	struct ofs_segment part = *s;

	part.src += c->first * (uint64_t)s->src_pitch + c->skip;
	part.dst += c->first * (uint64_t)s->dst_pitch + c->skip;
	part.len = c->len;
	part.n = c->n;
	return part;
}

static uint64_t extent(const struct ofs_segment *s)
{
	return (s->n - 1) * (uint64_t)s->src_pitch + s->len;
}

/* Adds a segment in the window, block by block. */
static int add_blocks(struct ofs_round *r, const struct ofs_segment *s)
{
	uint64_t last = (s->src + extent(s) - 1) / OFS_GPU_BLOCK;
	struct ofs_cut cut[OFS_MAX_CUTS];

	for (uint64_t i = s->src / OFS_GPU_BLOCK; i <= last; i++) {
		uint64_t start = i * OFS_GPU_BLOCK;
		unsigned n = ofs_cut(s->src, (uint64_t)s->src_pitch, s->len,
		    s->n, start, start + OFS_GPU_BLOCK, cut);

		for (unsigned k = 0; k < n; k++) {
			struct ofs_segment part = part_of(s, &cut[k]);
			struct ofs_want *w = get_want(r, s->object, i, part.src,
			    part.src + extent(&part));

			if (w == NULL ||
			    add_run(r, w, part.src - start, &part) == -1)
				return -1;
		}
	}
	return 0;
}

static int fill_window(struct ofs_round *r, const struct ofs_segment *segs,
    size_t n)
{
	struct ofs_cut cut[OFS_MAX_CUTS];

	for (size_t i = 0; i < n; i++) {
		const struct ofs_segment *s = &segs[i];
		unsigned m;

		if (s->len == 0 || s->n == 0)
			continue;
		m = ofs_cut(s->dst, (uint64_t)s->dst_pitch, s->len, s->n,
		    r->base, r->base + OFS_GPU_WINDOW, cut);
		for (unsigned k = 0; k < m; k++) {
			struct ofs_segment part = part_of(s, &cut[k]);

			if (add_blocks(r, &part) == -1)
				return -1;
		}
	}
	return ofs_round_run(r);
}

static void round_free(struct ofs_round *r)
{
	if (r->left)
		return; /* never returned by the module */
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r->run);
	free(r);
}

/* end: that of the buffer. */
static bool fetch_rounds(struct ofs_gpu_gather *b, const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf, uint64_t end)
{
	struct ofs_round *r = calloc(1, sizeof(*r));
	int ret = 0;

	if (r == NULL)
		return false;
	r->b = b;
	r->s = s;
	r->buf = buf;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	for (; ret == 0 && r->base < end; r->base += OFS_GPU_WINDOW)
		ret = fill_window(r, segs, n);
	round_free(r);
	if (ret == -1)
		atomic_fetch_add(&b->refused, 1);
	return ret == 0;
}

bool ofs_gpu_gather_is_used(const struct optimfs_group *w)
{
	const struct ofs_gpu_gather *b = w->gpu_gather;

	return b != NULL && ofs_gpu_gather_is_on(b) &&
	    atomic_load(&b->decided) != OFS_WAY_MPI;
}

bool ofs_gpu_gather_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf)
{
	struct ofs_gpu_gather *b = s->group->gpu_gather;
	uint64_t end, bytes;
	enum ofs_way way;
	int64_t began;
	bool good;

	if (!ofs_gpu_gather_is_used(s->group) ||
	    !suits(b, segs, n, &end, &bytes))
		return false;
	began = ofs_clock_ns();
	way = ofs_gpu_gather_way(b);
	good = way == OFS_WAY_NCCL ? fetch_rounds(b, s, segs, n, buf, end)
				   : ofs_remote_ask(s, segs, n, buf, NULL) == 0;
	if (good)
		ofs_gpu_gather_took(b, way, bytes, ofs_clock_ns() - began);
	return good;
}
