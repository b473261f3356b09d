/* transport.c - the objects of a catalog, on a server */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/transport.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/http/blocks.h"
#include "store/http/fetch.h"
#include "store/local.h"

/* Plain segments are fetched all together (fetch.c). What is encoded is read and
 * decoded as if it were in a file here. */
struct web {
	struct ofs_transport t;
	struct ofs_http_site *site; /* a reference of the catalog's directory */
	const struct ofs_catalog *cat;
	struct ofs_transport *decoder;
	uint32_t *file; /* by object; OFS_NONE: it is missing */
};

/* The pins of the decoder. */

static void *pins_new(void *ctx, const struct ofs_catalog *cat,
    struct ofs_counters *counters, struct optimfs_error *err)
{
	(void)cat;
	(void)counters;
	(void)err;
	return ctx;
}

static void pins_free(void *files)
{
	(void)files;
}

static void *pins_get(void *files, uint32_t object, struct optimfs_error *err)
{
	struct web *w = files;

	if (w->file[object] != OFS_NONE)
		return &w->file[object];
	ofs_fail_lost(err, EIO, OPTIMFS_LOST_MISSING, "OFS140",
	    w->cat->objects[object].path, " is missing");
	return NULL;
}

static void pins_put(void *files, void *file)
{
	(void)files;
	(void)file;
}

static int read_source(const struct ofs_source *source, struct iovec *iov,
    int n, uint64_t off, struct optimfs_error *err)
{
	struct web *w = source->ctx;

	for (int i = 0; i < n; i++) {
		const struct ofs_segment seg = { .object =
						     *(uint32_t *)source->item,
			.src = off,
			.len = iov[i].iov_len,
			.n = 1 };

		if (seg.len > 0 &&
		    ofs_http_read(w->site, &seg, 1, iov[i].iov_base, err) == -1)
			return -1;
		off += seg.len;
	}
	return 0;
}

static struct ofs_source pins_source(void *files, void *file)
{
	struct web *w = files;

	return (struct ofs_source){ read_source, w, file,
		w->cat->objects[(uint32_t *)file - w->file].size };
}

/* Each answer was checked. */
static int pins_check(void *files, void *file, struct optimfs_error *err)
{
	(void)files;
	(void)file;
	(void)err;
	return 0;
}

static void pins_willneed(void *file, uint64_t off, uint64_t len)
{
	(void)file;
	(void)off;
	(void)len;
}

static bool pins_hole(void *files, void *file, uint64_t off, uint64_t len)
{
	(void)files;
	(void)file;
	(void)off;
	(void)len;
	return false;
}

static const struct ofs_pins_ops pins = {
	.new = pins_new,
	.free = pins_free,
	.get = pins_get,
	.put = pins_put,
	.source = pins_source,
	.check = pins_check,
	.willneed = pins_willneed,
	.hole = pins_hole,
};

/* The transport. */

static int check_segment(struct web *w, const struct ofs_segment *seg,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &w->cat->objects[seg->object];

	if (pins_get(w, seg->object, err) == NULL)
		return -1;
	return ofs_segment_inside(seg, o->size)
	    ? 0
	    : ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS603", o->path,
		  " is short: it ends at byte %" PRIu64, o->size);
}

/* Copies the plain segments, or the others, to out. */
static size_t pick(const struct web *w, const struct ofs_segment *segs,
    size_t n, bool plain, struct ofs_segment *out)
{
	size_t picked = 0;

	for (size_t i = 0; i < n; i++)
		if ((segs[i].codec == OFS_PLAIN) == plain) {
			out[picked] = segs[i];
			if (plain)
				out[picked].object = w->file[segs[i].object];
			picked++;
		}
	return picked;
}

static int fetch_picked(struct web *w, const struct ofs_segment *segs, size_t n,
    struct ofs_segment *part, void *buf, struct optimfs_error *err)
{
	size_t m = pick(w, segs, n, true, part);

	if (m > 0 && ofs_http_read(w->site, part, m, buf, err) == -1)
		return -1;
	if (m == n)
		return 0;
	m = pick(w, segs, n, false, part);
	return ofs_transport_fetch(w->decoder, part, m, buf, err);
}

/* Requests and bytes are those of all that was read of the site. */
static void show_counters(struct web *w)
{
	struct ofs_counters *c = &w->t.counters, *d = &w->decoder->counters;

	atomic_store(&c->reads, atomic_load(&w->site->count.requests));
	atomic_store(&c->read_bytes, atomic_load(&w->site->count.bytes));
	atomic_store(&c->decoded, atomic_load(&d->decoded));
	atomic_store(&c->hits, atomic_load(&d->hits));
	atomic_store(&c->misses, atomic_load(&d->misses));
	atomic_store(&c->cached, atomic_load(&d->cached));
}

static int web_fetch(struct ofs_transport *t, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct web *w = (struct web *)t;
	uint64_t began = ofs_clock_ns(), bytes = 0;
	struct ofs_segment *part = malloc((n + 1) * sizeof(*part));
	int ret = part == NULL ? ofs_no_memory(err) : 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		bytes += segs[i].len * segs[i].n;
		if (segs[i].codec == OFS_PLAIN)
			ret = check_segment(w, &segs[i], err);
	}
	if (ret == 0)
		ret = fetch_picked(w, segs, n, part, buf, err);
	free(part);
	atomic_fetch_add(&t->counters.requests, 1);
	atomic_fetch_add(&t->counters.bytes, bytes);
	atomic_fetch_add(&t->counters.wait_ns, ofs_clock_ns() - began);
	show_counters(w);
	return ret;
}

static int web_length(struct ofs_transport *t, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err)
{
	struct web *w = (struct web *)t;

	return w->decoder->ops->length(w->decoder, at, max, len, err);
}

static void web_decode(struct ofs_transport *t, const struct ofs_extent *at,
    size_t n, uint64_t bytes)
{
	struct web *w = (struct web *)t;

	w->decoder->ops->decode(w->decoder, at, n, bytes);
}

#define WANTED_MOST 32

static size_t segments_of(const struct web *w, const struct ofs_extent *at,
    size_t n, struct ofs_segment seg[WANTED_MOST])
{
	uint64_t dst = 0;
	size_t k = 0;

	for (size_t i = 0; i < n && k < WANTED_MOST; i++) {
		uint64_t size = w->cat->objects[at[i].object].size;

		if (w->file[at[i].object] == OFS_NONE || at[i].off >= size)
			continue;
		seg[k++] = (struct ofs_segment){
			.object = w->file[at[i].object],
			.src = at[i].off,
			.len = at[i].len < size - at[i].off ? at[i].len
							    : size - at[i].off,
			.dst = dst,
			.n = 1,
		};
		dst += at[i].len;
	}
	return k;
}

/* Extents of items, whose headers and directories are read before their data:
 * all come together. */
static void web_willneed(struct ofs_transport *t, const struct ofs_extent *at,
    size_t n)
{
	struct web *w = (struct web *)t;
	struct ofs_segment seg[WANTED_MOST];

	ofs_http_want(w->site, seg, segments_of(w, at, n, seg));
}

static void *web_stream(struct ofs_transport *t, const struct ofs_extent *at,
    size_t n)
{
	struct web *w = (struct web *)t;
	struct ofs_segment seg[WANTED_MOST];
	size_t k = segments_of(w, at, n, seg);

	return k < n ? NULL : ofs_http_stream(w->site, seg, k);
}

static void web_streamed(struct ofs_transport *t, void *stream)
{
	(void)t;
	ofs_http_stream_end(stream);
}

static const void *web_hold(struct ofs_transport *t, uint32_t object,
    uint64_t off, uint64_t *n, void **held)
{
	struct web *w = (struct web *)t;

	return w->file[object] == OFS_NONE
	    ? NULL
	    : ofs_http_blocks_hold(w->site->blocks, w->file[object], off, n,
		  held);
}

static void web_let(struct ofs_transport *t, void *held)
{
	ofs_http_blocks_let(((struct web *)t)->site->blocks, held);
}

static void web_close(struct ofs_transport *t)
{
	struct web *w = (struct web *)t;

	ofs_transport_close(w->decoder);
	free(w->file);
	free(w);
}

static const struct ofs_transport_ops web_ops = {
	.name = "http",
	.at_once = UINT64_C(64) << 20,
	.fetch = web_fetch,
	.length = web_length,
	.close = web_close,
	.willneed = web_willneed,
	.stream = web_stream,
	.streamed = web_streamed,
	.decode = web_decode,
	.hold = web_hold,
	.let = web_let,
};

struct ofs_transport *ofs_http_transport(const struct ofs_namespace *names,
    const struct ofs_catalog *cat, uint64_t cache, struct optimfs_error *err)
{
	struct web *w = ofs_alloc(1, sizeof(*w), err);

	if (w == NULL)
		return NULL;
	w->t.ops = &web_ops;
	w->site = ofs_http_site_of(names);
	w->cat = cat;
	w->file = ofs_alloc((size_t)cat->nobjects + 1, sizeof(*w->file), err);
	for (uint32_t i = 0; w->file != NULL && i < cat->nobjects; i++)
		if (!ofs_dir_remote(&cat->dir, cat->objects[i].path,
			&w->file[i]))
			w->file[i] = OFS_NONE;
	if (w->file != NULL)
		w->decoder = ofs_transport_pinned(cat, &pins, w, cache, err);
	if (w->decoder == NULL) {
		web_close(&w->t);
		return NULL;
	}
	show_counters(w);
	return &w->t;
}
