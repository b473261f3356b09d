/* solve_source.c - files of which a few bytes are read in many places */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "format/megatron/solve.h"
#include "store/local.h"

/* Decoded items are needed once, in the order of the index. */
#define CACHE (UINT64_C(64) << 20)

/* To sample a parameter, its archive is read to find its elements, and then some
 * of these, which often follow what was just read; the archive of the next one
 * follows, too. So a short read becomes one of WINDOW bytes, which are kept: a
 * fraction of the system calls, or of the requests to a server. For one thread. */
#define WINDOW 16384u
struct source {
	struct ofs_transport t;
	struct ofs_transport *of;
	const struct ofs_catalog *cat;
	uint32_t object;
	uint64_t off, len; /* what bytes has; 0: nothing */
	uint8_t bytes[WINDOW];
};

static bool has(const struct source *s, const struct ofs_segment *seg)
{
	return seg->object == s->object && seg->src >= s->off &&
	    seg->src - s->off <= s->len &&
	    seg->len <= s->len - (seg->src - s->off);
}

/* How many bytes to read: as far as the file has them. */
static uint64_t window(const struct source *s, const struct ofs_segment *seg)
{
	uint64_t size = s->cat->objects[seg->object].size;
	uint64_t left = size > seg->src ? size - seg->src : 0;

	if (left > WINDOW)
		left = WINDOW;
	return left > seg->len ? left : seg->len;
}

static int source_fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct source *s = (struct source *)t;
	struct ofs_segment seg = *segs;

	err = OFS_SOME_ERROR(err);
	if (n != 1 || seg.n != 1 || seg.codec != OFS_PLAIN ||
	    seg.len > sizeof(s->bytes))
		return ofs_transport_fetch(s->of, segs, n, buf, err);
	if (!has(s, &seg)) {
		s->len = 0;
		seg.dst = 0;
		seg.len = window(s, &seg);
		if (ofs_transport_fetch(s->of, &seg, 1, s->bytes, err) == -1)
			/* what was not asked for may be damaged */
			return seg.len == segs->len || ofs_must_fail(err)
			    ? -1
			    : ofs_transport_fetch(s->of, segs, 1, buf, err);
		s->object = seg.object;
		s->off = seg.src;
		s->len = seg.len;
	}
	memcpy((uint8_t *)buf + segs->dst, s->bytes + (seg.src - s->off),
	    segs->len);
	return 0;
}

static int source_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct source *s = (struct source *)t;

	return s->of->ops->length(s->of, at, max, len, err);
}

static void source_close(struct ofs_transport *t)
{
	struct source *s = (struct source *)t;

	ofs_transport_close(s->of);
	free(s);
}

static const struct ofs_transport_ops source_ops = {
	.name = "samples",
	.fetch = source_fetch,
	.length = source_length,
	.close = source_close,
};

struct ofs_transport *ofs_solve_source(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct source *s = ofs_alloc(1, sizeof(*s), err);

	if (s == NULL)
		return NULL;
	s->t.ops = &source_ops;
	s->cat = cat;
	s->of = ofs_transport_of(cat, CACHE, err);
	if (s->of != NULL)
		return &s->t;
	free(s);
	return NULL;
}
