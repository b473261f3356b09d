/* check.c - shards sorted, and checked for tiling and for readability */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/catalog_impl.h"
#include "catalog/shards.h"
#include "catalog/tile.h"

struct check {
	struct ofs_catalog *cat;
	struct ofs_tensor *t;
	uint32_t tensor;
	uint64_t numel;          /* elements of t */
	uint64_t work;           /* the budget for finding overlaps */
	uint32_t copies, copied; /* replicas; tensors with replicas */
	uint32_t example;        /* one of these tensors */
	uint32_t *entry; /* of each tensor; NULL until a note needs a name */
	struct optimfs_error why;
	struct optimfs_error *err;
};

/* Give t an error, with which its reads fail. */
#define CONDEMN(c, code, ...) \
 (optimfs_fail(&(c)->why, (code), __VA_ARGS__), condemn(c))
static int condemn(struct check *c)
{
	c->t->error = ofs_catalog_error(c->cat, &c->why, c->err);
	return c->t->error == OFS_NONE ? -1 : 0;
}

static bool condemned(const struct check *c)
{
	return c->t->error != OFS_NONE;
}

/* Find the entry of each tensor. Notes use its stored path, "a.b.c". */
static int find_entries(struct check *c)
{
	const struct ofs_catalog *cat = c->cat;

	c->entry = malloc(cat->ntensors * sizeof(*c->entry));
	if (c->entry == NULL)
		return ofs_no_memory(c->err);
	memset(c->entry, 0xff, cat->ntensors * sizeof(*c->entry));
	for (uint32_t i = 0; i < cat->nentries; i++)
		if (cat->entries[i].kind == OFS_ENTRY_TENSOR &&
		    cat->entries[i].ref < cat->ntensors)
			c->entry[cat->entries[i].ref] = i;
	for (uint32_t i = 0; i < cat->nvariants; i++)
		if (cat->variants[i].kind == OFS_ENTRY_TENSOR &&
		    cat->variants[i].ref < cat->ntensors)
			c->entry[cat->variants[i].ref] = cat->variants[i].entry;
	return 0;
}

static int tensor_name(struct check *c, uint32_t tensor, struct ofs_buf *name)
{
	const uint32_t *part;
	uint32_t n = 0;

	if (c->entry == NULL && find_entries(c) == -1)
		return -1;
	if (c->entry[tensor] == OFS_NONE) {
		ofs_buf_printf(name, "tensor %" PRIu32, tensor);
	} else {
		part = ofs_catalog_components(c->cat,
		    c->cat->entries[c->entry[tensor]].path, &n);
		ofs_catalog_join(c->cat, part, n, name);
	}
	ofs_buf_putc(name, '\0');
	return name->bad ? ofs_no_memory(c->err) : 0;
}

/* Check the tensor without its shards. */

static int check_shape(struct check *c)
{
	const struct ofs_catalog *cat = c->cat;
	const struct ofs_tensor *t = c->t;
	uint64_t n, grid = UINT64_MAX, bytes;

	if (ofs_dtype_size(t->dtype) == 0)
		return CONDEMN(c, EOPNOTSUPP, "OFS616 dtype not supported");
	if (!ofs_numel(ofs_tensor_shape(cat, t), t->ndim, &n) ||
	    !ofs_mul_u64(n, ofs_dtype_size(t->dtype), &bytes) ||
	    bytes > INT64_MAX)
		return CONDEMN(c, EUCLEAN,
		    "OFS606 size overflow: the shape has more bytes than a "
		    "file can");
	if (!ofs_numel(cat->dims + t->grid, t->grid_ndim, &grid) || grid != n)
		return CONDEMN(c, EUCLEAN,
		    "OFS608 chunks are given in a shape of %" PRIu64
		    " elements, the tensor has %" PRIu64,
		    grid, n);
	c->numel = n;
	return 0;
}

/* Check one shard. */

static int check_box(struct check *c, const struct ofs_shard *s)
{
	const uint64_t *grid = c->cat->dims + c->t->grid, *off, *size;
	uint64_t end;
	unsigned int d = c->t->grid_ndim;

	if (s->box == OFS_NONE)
		return 0;
	off = c->cat->dims + s->box;
	size = off + d;
	for (unsigned int k = 0; k < d; k++) {
		if (off[k] <= grid[k] && size[k] <= grid[k] - off[k])
			continue;
		if (!ofs_add_u64(off[k], size[k], &end))
			end = UINT64_MAX;
		return CONDEMN(c, EUCLEAN,
		    "OFS609 chunk [%" PRIu64 ":%" PRIu64
		    ") outside dim %u of %" PRIu64,
		    off[k], end, k, grid[k]);
	}
	return 0;
}

/* *problem gets a note if the extent cannot be right. */
static int check_extent(struct check *c, const struct ofs_extent *at,
    uint32_t *problem)
{
	const struct ofs_object *o = &c->cat->objects[at->object];

	if (at->len == 0 || at->len > INT64_MAX)
		optimfs_fail(&c->why, EUCLEAN,
		    "OFS605 %.200s: stored length %" PRIu64, o->path, at->len);
	else if (at->off > INT64_MAX || at->len > INT64_MAX - at->off)
		optimfs_fail(&c->why, EUCLEAN,
		    "OFS604 %.200s: offset %" PRIu64 " and length %" PRIu64
		    " overflow",
		    o->path, at->off, at->len);
	else
		return 0;
	*problem = ofs_catalog_error(c->cat, &c->why, c->err);
	return *problem == OFS_NONE ? -1 : 0;
}

/* Does an extent begin after the end of its file? */
static bool beyond(const struct check *c, const struct ofs_extent *at)
{
	const struct ofs_object *o = &c->cat->objects[at->object];

	return !o->missing && !o->refused && at->off > o->size;
}

/* A truncated file still serves the rest: reads of the lost ranges fail. Only
 * when nothing of a tensor is left, its index is taken to be wrong. */
static int check_reach(struct check *c)
{
	const struct ofs_tensor *t = c->t;
	const struct ofs_shard *s = c->cat->shards + t->shard;
	const struct ofs_object *o;
	uint32_t lost = 0;

	while (lost < t->nshards && beyond(c, &s[lost].at))
		lost++;
	if (lost < t->nshards || lost == 0)
		return 0;
	o = &c->cat->objects[s->at.object];
	ofs_catalog_examine(c->cat, s->at.object);
	if (!ofs_object_pointer(o, &c->why))
		ofs_fail_lost(&c->why, EUCLEAN, OPTIMFS_LOST_SHORT, "OFS604",
		    o->path, " has %" PRIu64 " bytes: the item is past its end",
		    o->size);
	return condemn(c);
}

/* Check every shard, and drop the empty ones. */
static int check_shards(struct check *c)
{
	struct ofs_tensor *t = c->t;
	struct ofs_shard *s = c->cat->shards + t->shard;
	uint64_t volume;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < t->nshards && !condemned(c); i++) {
		if (check_box(c, &s[i]) == -1)
			return -1;
		if (condemned(c))
			break;
		volume = c->numel;
		if (s[i].box != OFS_NONE)
			ofs_numel(c->cat->dims + s[i].box + t->grid_ndim,
			    t->grid_ndim, &volume);
		if (volume == 0 && c->numel != 0)
			continue;
		if (volume != 0 && check_extent(c, &s[i].at, &t->error) == -1)
			return -1;
		s[kept++] = s[i];
	}
	if (condemned(c))
		return 0;
	t->nshards = kept;
	return c->numel == 0 ? 0 : check_reach(c);
}

/* Sorting. */

/* Of several shards each gets an explicit box, so that they can be compared. */
static int give_boxes(struct check *c)
{
	uint64_t box[2 * OFS_MAX_DIMS] = { 0 };
	struct ofs_tensor *t = c->t;
	unsigned int d = t->grid_ndim;
	uint32_t whole = OFS_NONE;

	for (uint32_t i = t->shard; i < t->shard + t->nshards; i++) {
		if (c->cat->shards[i].box != OFS_NONE)
			continue;
		if (whole == OFS_NONE && d > 0)
			memcpy(box + d, c->cat->dims + t->grid,
			    d * sizeof(*box));
		if (whole == OFS_NONE)
			whole = ofs_catalog_dims(c->cat, box, 2 * d, c->err);
		if (whole == OFS_NONE)
			return -1;
		c->cat->shards[i].box = whole;
	}
	return 0;
}

/* Compare offsets, then sizes: the order of the first elements. */
static int compare_boxes(const struct check *c, const struct ofs_shard *a,
    const struct ofs_shard *b)
{
	const uint64_t *x = c->cat->dims + a->box, *y = c->cat->dims + b->box;

	if (a->box == b->box)
		return 0;
	for (unsigned int k = 0; k < 2u * c->t->grid_ndim; k++)
		if (x[k] != y[k])
			return x[k] < y[k] ? -1 : 1;
	return 0;
}

/* Equal boxes: a readable file comes first, then the order of files and
 * offsets. */
static int compare_shards(const void *va, const void *vb, void *ctx)
{
	const struct ofs_shard *a = va, *b = vb;
	const struct check *c = ctx;
	const struct ofs_object *x = &c->cat->objects[a->at.object],
				*y = &c->cat->objects[b->at.object];
	bool xbad, ybad;
	int order = compare_boxes(c, a, b);

	if (order != 0)
		return order;
	xbad = x->missing || x->refused || beyond(c, &a->at);
	ybad = y->missing || y->refused || beyond(c, &b->at);
	if (xbad != ybad)
		return xbad ? 1 : -1;
	if (x != y && (order = strcmp(x->path, y->path)) != 0)
		return order;
	if (a->at.off != b->at.off)
		return a->at.off < b->at.off ? -1 : 1;
	return 0;
}

/* Of equal boxes the first stays a shard; the others become replicas. */
static int set_replicas_apart(struct check *c)
{
	struct ofs_tensor *t = c->t;
	struct ofs_shard *s = c->cat->shards + t->shard;
	uint32_t kept = 1;

	for (uint32_t i = 1; i < t->nshards; i++) {
		struct ofs_replica r = { s[i].at, s[i].view,
			t->shard + kept - 1 };

		if (compare_boxes(c, &s[i], &s[kept - 1]) != 0) {
			s[kept++] = s[i];
			continue;
		}
		if (ofs_catalog_append(c->cat, OFS_REPLICAS, &r, 1, c->err) ==
		    OFS_NONE)
			return -1;
	}
	if (kept == t->nshards)
		return 0;
	if ((t->flags & OFS_TENSOR_COPIES) == 0) {
		if (c->copied++ == 0)
			c->example = c->tensor;
		c->copies += t->nshards - kept;
	}
	t->nshards = kept;
	return 0;
}

/* Most writers list them in this order. */
static bool is_sorted(struct check *c)
{
	const struct ofs_shard *s = c->cat->shards + c->t->shard;
	uint32_t i = 1;

	while (i < c->t->nshards && compare_shards(&s[i - 1], &s[i], c) <= 0)
		i++;
	return i >= c->t->nshards;
}

static int sort_shards(struct check *c)
{
	if (c->t->nshards < 2)
		return 0;
	if (give_boxes(c) == -1)
		return -1;
	if (!is_sorted(c))
		qsort_r(c->cat->shards + c->t->shard, c->t->nshards,
		    sizeof(*c->cat->shards), compare_shards, c);
	return set_replicas_apart(c);
}

/* All shards together. */

static int note_hole(struct check *c, uint64_t held)
{
	struct ofs_buf name = { 0 };
	int ret = tensor_name(c, c->tensor, &name);

	c->t->flags |= OFS_TENSOR_HOLES;
	if (ret == 0) {
		optimfs_fail(&c->why, EIO,
		    "OFS607 %.300s: %" PRIu64 " of %" PRIu64
		    " elements are in no chunk",
		    (char *)name.data, c->numel - held, c->numel);
		ofs_mark_lost(&c->why, OPTIMFS_LOST_HOLES);
		ret = ofs_catalog_note_as(c->cat, OFS_NOTE_MISSING, &c->why,
		    c->err);
	}
	ofs_buf_fini(&name);
	return ret;
}

static int condemn_overlap(struct check *c, uint32_t a, uint32_t b)
{
	char x[200], y[200];

	ofs_tile_print(c->cat, c->t, &c->cat->shards[a], x, sizeof(x));
	ofs_tile_print(c->cat, c->t, &c->cat->shards[b], y, sizeof(y));
	return CONDEMN(c, EUCLEAN, "OFS610 overlap of %s and %s", x, y);
}

static int check_tiling(struct check *c)
{
	uint32_t pair[2] = { 0, 0 };
	uint64_t held;

	if (ofs_tile_exact(c->cat, c->t, c->numel, &held))
		return 0;
	switch (ofs_tile_overlap(c->cat, c->t, &c->work, pair)) {
	case OFS_TILE_OVERLAP:
		return condemn_overlap(c, pair[0], pair[1]);
	case OFS_TILE_UNKNOWN:
		return CONDEMN(c, held < c->numel ? E2BIG : EUCLEAN,
		    "OFS623 %" PRIu32
		    " chunks leave gaps or overlap, in a layout too irregular "
		    "to tell which",
		    c->t->nshards);
	case OFS_TILE_DISJOINT:
		break;
	}
	return note_hole(c, held);
}

static int check_tensor(struct check *c)
{
	c->t->index = OFS_NONE;
	if (condemned(c))
		return 0;
	if (check_shape(c) == -1)
		return -1;
	if (!condemned(c) && check_shards(c) == -1)
		return -1;
	if (!condemned(c) && sort_shards(c) == -1)
		return -1;
	if (condemned(c) || c->numel == 0)
		return 0;
	if (ofs_shards_index(c->cat, c->t, c->err) == -1)
		return -1;
	return check_tiling(c);
}

static int note_replicas(struct check *c)
{
	struct ofs_buf name = { 0 };
	int ret;

	if (c->copies == 0)
		return 0;
	ret = tensor_name(c, c->example, &name);
	if (ret == 0)
		ret = ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0, c->err,
		    "OFS611 %" PRIu32 " duplicate chunk%s in %" PRIu32
		    " tensor%s (%.200s): the first readable one is used",
		    c->copies, c->copies == 1 ? "" : "s", c->copied,
		    c->copied == 1 ? "" : "s", (char *)name.data);
	ofs_buf_fini(&name);
	return ret;
}

OFS_COMPARE_BY(by_shard, struct ofs_replica, shard)

static int check_items(struct check *c)
{
	for (uint32_t i = 0; i < c->cat->nitems; i++) {
		struct ofs_item *item = &c->cat->items[i];

		if (item->error == OFS_NONE &&
		    check_extent(c, &item->at, &item->error) == -1)
			return -1;
	}
	return 0;
}

static void reach(uint64_t *end, const struct ofs_extent *at)
{
	uint64_t to;

	/* one that overflows is an index's mistake */
	if (ofs_add_u64(at->off, at->len, &to) && to <= INT64_MAX &&
	    end[at->object] < to)
		end[at->object] = to;
}

static int note_refused(struct check *c, const struct ofs_object *o)
{
	struct optimfs_error why;

	if (ofs_object_opens(c->cat, o, &why) == 0)
		return 0; /* allowed meanwhile */
	return ofs_catalog_note_as(c->cat, OFS_NOTE_MISSING, &why, c->err);
}

/* end: where the last item in each file ends. */
static int note_files(struct check *c, const uint64_t *end)
{
	for (uint32_t i = 0; i < c->cat->nobjects; i++) {
		const struct ofs_object *o = &c->cat->objects[i];

		if (o->refused && note_refused(c, o) == -1)
			return -1;
		if (o->missing || o->refused || o->size >= end[i])
			continue;
		ofs_catalog_examine(c->cat, i);
		if (!ofs_object_pointer(o, &c->why))
			ofs_fail_lost(&c->why, EIO, OPTIMFS_LOST_SHORT,
			    "OFS603", o->path,
			    " has %" PRIu64 " bytes, its items end at %" PRIu64
			    ": reading past its end fails (EIO)",
			    o->size, end[i]);
		if (ofs_catalog_note_as(c->cat, OFS_NOTE_MISSING, &c->why,
			c->err) == -1)
			return -1;
	}
	return 0;
}

static int check_files(struct check *c)
{
	const struct ofs_catalog *cat = c->cat;
	uint64_t *end = calloc((size_t)cat->nobjects + 1, sizeof(*end));
	int ret;

	if (end == NULL)
		return ofs_no_memory(c->err);
	for (uint32_t i = 0; i < cat->nshards; i++)
		reach(end, &cat->shards[i].at);
	for (uint32_t i = 0; i < cat->nreplicas; i++)
		reach(end, &cat->replicas[i].at);
	for (uint32_t i = 0; i < cat->nitems; i++)
		reach(end, &cat->items[i].at);
	ret = note_files(c, end);
	free(end);
	return ret;
}

/* Checks the tensors from first on. */
static int check_tensors(struct check *c, uint32_t first)
{
	int ret = 0;

	for (uint32_t i = first; i < c->cat->ntensors && ret == 0; i++) {
		c->tensor = i;
		c->t = &c->cat->tensors[i];
		ret = check_tensor(c);
	}
	return ret;
}

int ofs_catalog_check_added(struct ofs_catalog *cat, uint32_t first,
    struct optimfs_error *err)
{
	struct check c = { .cat = cat, .work = OFS_TILE_WORK, .err = err };
	int ret = check_tensors(&c, first);

	free(c.entry);
	return ret;
}

int ofs_catalog_check(struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct check c = { .cat = cat, .work = OFS_TILE_WORK, .err = err };
	int ret = check_tensors(&c, 0);

	if (ret == 0)
		ret = check_items(&c);
	if (ret == 0)
		ret = check_files(&c);
	if (ret == 0)
		ret = note_replicas(&c);
	free(c.entry);
	if (ret == 0 && cat->nreplicas > 0)
		qsort(cat->replicas, cat->nreplicas, sizeof(*cat->replicas),
		    by_shard);
	return ret;
}
