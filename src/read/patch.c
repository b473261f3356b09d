/* patch.c - stored bytes with staged elements over them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/patch.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/owners.h"
#include "plan/fix.h"
#include "plan/runs.h"
#include "plan/window.h"
#include "read/copies.h"
#include "read/fetch.h"
#include "read/locate.h"

/* A reader of elements asks which stored bytes they are. Here a window of stored
 * bytes is given, and the question is which elements are in it. For each shard
 * with written elements plan/window.c finds the box of its elements in the
 * window. The plan of that box says where they are; run backwards, it puts them
 * into the window.
 *
 * Written ranges may begin and end inside an element, and elements may be stored
 * with their bytes swapped. So the whole elements of a box are made first, from
 * stored bytes if not all of them are staged, then the staged bytes over them.
 * Elements that were not written are put back as they were. */

/* Elements are put in steps of this many bytes. */
#define STEP (1u << 20)
/* Staged bytes of shorter runs than SHORT are read in advance. */
#define SHORT 4096u
#define AHEAD (256u << 10)

/* A copy of a shard with written elements. */
struct ofs_patch {
	struct ofs_extent at;
	uint64_t off, end; /* the hull of its elements */
	/* the last end of this patch and those before it in the object */
	uint64_t reach;
	const struct ofs_place *place;
	struct ofs_place *own; /* place, if it has to be freed; else NULL */
	uint32_t edit, shard;
	bool dense; /* ofs_stored_dense */
};

struct ofs_patched {
	uint32_t object;
	struct ofs_ranges touched;
};

/* Adding. */

OFS_COMPARE_KEY(compare_object, uint32_t, struct ofs_patched, object)

static struct ofs_patched *patched(struct ofs_patches *p, uint32_t object,
    struct optimfs_error *err)
{
	size_t i = ofs_lower_bound(&object, p->object, p->nobjects,
	    sizeof(*p->object), compare_object);

	if (i < p->nobjects && p->object[i].object == object)
		return &p->object[i];
	if (ofs_grow(p->object, p->nobjects, p->object_cap, err) == -1)
		return NULL;
	memmove(p->object + i + 1, p->object + i,
	    (p->nobjects - i) * sizeof(*p->object));
	p->nobjects++;
	p->object[i] = (struct ofs_patched){ .object = object };
	return &p->object[i];
}

static int touch(struct ofs_patches *p, const struct ofs_segment *seg,
    struct optimfs_error *err)
{
	struct ofs_patched *to;
	uint64_t lo = seg->src, hi = seg->src;
	int64_t reach = (int64_t)(seg->n - 1) * seg->src_pitch;

	if (seg->codec != OFS_PLAIN)
		return 0;
	if (reach < 0)
		lo -= (uint64_t)-reach;
	else
		hi += (uint64_t)reach;
	to = patched(p, seg->object, err);
	return to == NULL
	    ? -1
	    : ofs_ranges_add(&to->touched, lo, hi + seg->len, err);
}

/* Elements [first, first + count) of an edit. */
static int touch_elements(struct ofs_patches *p, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct optimfs_error *err)
{
	uint64_t step = STEP / ofs_dtype_size(t->dtype), n;
	struct ofs_plan plan = { 0 };
	int ret = 0;

	for (; count > 0 && ret == 0; first += n, count -= n) {
		n = count < step ? count : step;
		ofs_plan_clear(&plan);
		ret = ofs_plan_copies(p->reader, t, first, n, &plan, err);
		for (size_t i = 0; i < plan.n && ret == 0; i++)
			ret = touch(p, &plan.seg[i], err);
	}
	ofs_plan_fini(&plan);
	return ret;
}

/* The shards of an edit. */
struct adding {
	struct ofs_patches *p;
	const struct ofs_tensor *t;
	uint32_t edit;
	bool *seen; /* by shard: it was added */
	struct optimfs_error *err;
};

static struct ofs_stored_box stored_box(const struct ofs_tensor *t,
    const struct ofs_place *place, const uint64_t *box)
{
	return (struct ofs_stored_box){ place, t->grid_ndim, box,
		ofs_dtype_size(t->dtype) };
}

static int add_patch(struct adding *a, uint32_t shard,
    const struct ofs_extent *at, const struct ofs_place *place,
    struct ofs_place *own)
{
	struct ofs_patches *p = a->p;
	uint64_t box[2 * OFS_MAX_DIMS];
	struct ofs_stored_box s = stored_box(a->t, place, box);
	struct ofs_patch *new;

	if (place == NULL || ofs_grow(p->patch, p->n, p->cap, a->err) == -1) {
		free(own);
		return -1;
	}
	new = &p->patch[p->n++];
	*new = (struct ofs_patch){ .at = *at,
		.place = place,
		.own = own,
		.edit = a->edit,
		.shard = shard };
	ofs_shard_box(p->reader->cat, a->t, &p->reader->cat->shards[shard], box,
	    box + a->t->grid_ndim);
	ofs_stored_hull(&s, &new->off, &new->end);
	new->dense = ofs_stored_dense(&s);
	return 0;
}

static int add_shard(void *ctx, uint32_t shard)
{
	struct adding *a = ctx;
	struct ofs_reader *r = a->p->reader;
	const struct ofs_replica *copy;
	uint32_t n;

	if (a->seen[shard - a->t->shard])
		return 0; /* an earlier range of the edit has it, too */
	a->seen[shard - a->t->shard] = true;
	if (add_patch(a, shard, &r->cat->shards[shard].at,
		ofs_locate_shard(r, a->t, shard, a->err), NULL) == -1)
		return -1;
	copy = ofs_replicas(r->cat, shard, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_place *own =
		    ofs_locate_replica(r, a->t, &copy[i], a->err);

		if (add_patch(a, shard, &copy[i].at, own, own) == -1)
			return -1;
	}
	return 0;
}

/* Whole elements with a byte of range r. */
static uint64_t elements(const struct ofs_range *r, uint64_t item,
    uint64_t *first)
{
	*first = r->off / item;
	return (r->end + item - 1) / item - *first;
}

static int add_ranges(struct adding *a, const struct ofs_ranges *written)
{
	const struct ofs_catalog *cat = a->p->reader->cat;
	uint64_t item = ofs_dtype_size(a->t->dtype), first, n;

	for (size_t i = 0; i < written->n; i++) {
		n = elements(&written->v[i], item, &first);
		if (touch_elements(a->p, a->t, first, n, a->err) == -1 ||
		    ofs_plan_shards(cat, a->t, first, n, add_shard, a) != 0)
			return -1;
	}
	return 0;
}

int ofs_patches_add(struct ofs_patches *p, struct ofs_reader *r,
    const struct ofs_edit *edit, struct optimfs_error *err)
{
	const struct ofs_tensor *t = &r->cat->tensors[edit->tensor];
	struct adding a = { .p = p, .t = t, .err = err };
	struct ofs_edit *copy;
	int ret;

	p->reader = r;
	if (t->error != OFS_NONE)
		return ofs_catalog_fail(r->cat, t->error, err);
	if (ofs_tensor_rounded(r->cat, t))
		return 0;
	if (ofs_grow(p->edit, p->nedits, p->edit_cap, err) == -1)
		return -1;
	a.edit = (uint32_t)p->nedits;
	copy = &p->edit[p->nedits];
	*copy = *edit;
	copy->written = (struct ofs_ranges){ 0 };
	if (ofs_ranges_copy(&copy->written, &edit->written, err) == -1)
		return -1;
	p->nedits++;
	a.seen = calloc(t->nshards + 1ull, sizeof(*a.seen));
	ret = a.seen == NULL ? ofs_no_memory(err)
			     : add_ranges(&a, &copy->written);
	free(a.seen);
	return ret;
}

OFS_COMPARE_BY3(compare_patches, struct ofs_patch, at.object, off, edit)

void ofs_patches_seal(struct ofs_patches *p)
{
	if (p->n > 0)
		qsort(p->patch, p->n, sizeof(*p->patch), compare_patches);
	for (size_t i = 0; i < p->n; i++) {
		struct ofs_patch *x = &p->patch[i];

		x->reach = x->end;
		if (i > 0 && x[-1].at.object == x->at.object &&
		    x[-1].reach > x->reach)
			x->reach = x[-1].reach;
	}
}

void ofs_patches_fini(struct ofs_patches *p)
{
	for (size_t i = 0; i < p->nedits; i++)
		ofs_ranges_fini(&p->edit[i].written);
	for (size_t i = 0; i < p->n; i++)
		free(p->patch[i].own);
	for (size_t i = 0; i < p->nobjects; i++)
		ofs_ranges_fini(&p->object[i].touched);
	free(p->edit);
	free(p->patch);
	free(p->object);
	*p = (struct ofs_patches){ 0 };
}

const struct ofs_ranges *ofs_patches_touched(const struct ofs_patches *p,
    uint32_t object)
{
	static const struct ofs_ranges none;
	const struct ofs_patched *o = ofs_search(&object, p->object,
	    p->nobjects, sizeof(*p->object), compare_object);

	return o == NULL ? &none : &o->touched;
}

/* Reading. */

/* A window: bytes [off, off + len) of an object, or with a codec of the decoded
 * extent. */
struct window {
	const struct ofs_patches *p;
	const struct ofs_extent *at;
	uint64_t off, len;
	uint8_t *buf;
	uint8_t *element; /* room for bytes of elements */
	uint64_t room;
	struct optimfs_error *err;
};

/* Elements of a patch that are put into a window: n elements from first on of
 * box. */
struct put {
	const struct window *w;
	const struct ofs_patch *patch;
	const struct ofs_edit *edit;
	const struct ofs_tensor *t;
	uint64_t box[2 * OFS_MAX_DIMS], first, n;
	/* staged bytes that were read in advance */
	uint8_t *ahead;
	uint64_t ahead_off, ahead_len;
};

static bool is_at(const struct ofs_patch *patch, const struct window *w)
{
	return patch->at.codec == w->at->codec &&
	    (w->at->codec == OFS_PLAIN || patch->at.off == w->at->off);
}

/* Is a patch before all that reach behind the start of the window? */
static int compare_reach(const void *key, const void *item)
{
	const struct window *w = key;
	const struct ofs_patch *x = item;

	if (x->at.object != w->at->object)
		return OFS_ORDER(w->at->object, x->at.object);
	return x->reach > w->off ? -1 : 1;
}

/* Calls each for the patches that meet the window, in any order. */
static int each_patch(struct window *w,
    int (*each)(void *ctx, struct window *w, const struct ofs_patch *patch),
    void *ctx)
{
	const struct ofs_patches *p = w->p;
	size_t i = ofs_lower_bound(w, p->patch, p->n, sizeof(*p->patch),
	    compare_reach);

	for (; i < p->n; i++) {
		const struct ofs_patch *x = &p->patch[i];

		if (x->at.object != w->at->object || x->off >= w->off + w->len)
			break;
		if (x->end > w->off && is_at(x, w) && each(ctx, w, x) == -1)
			return -1;
	}
	return 0;
}

static const struct ofs_tensor *tensor_of(const struct ofs_patches *p,
    const struct ofs_patch *patch)
{
	return &p->reader->cat->tensors[p->edit[patch->edit].tensor];
}

/* The bytes of the tensor from the first to the last of these elements. */
static struct ofs_range extent_of(const struct put *x)
{
	const struct ofs_catalog *cat = x->w->p->reader->cat;
	struct ofs_stretch first, last;
	struct ofs_runs runs;

	ofs_runs_begin(&runs, cat, x->t, x->box, x->first, 1);
	ofs_runs_next(&runs, &first);
	ofs_runs_begin(&runs, cat, x->t, x->box, x->first + x->n - 1, 1);
	ofs_runs_next(&runs, &last);
	return (struct ofs_range){ first.off, last.end };
}

static bool is_staged(const struct put *x)
{
	struct ofs_range r = extent_of(x);

	return ofs_ranges_cover(&x->edit->written, r.off, r.end);
}

/* The bytes [lo, hi) of the window that a dense patch has, and their elements. */
static struct put dense_part(const struct window *w,
    const struct ofs_patch *patch, uint64_t *lo, uint64_t *hi)
{
	const struct ofs_catalog *cat = w->p->reader->cat;
	struct put x = { .w = w,
		.patch = patch,
		.edit = &w->p->edit[patch->edit],
		.t = tensor_of(w->p, patch) };
	uint64_t item = ofs_dtype_size(x.t->dtype), end = w->off + w->len;

	*lo = patch->off > w->off ? patch->off : w->off;
	*hi = patch->end < end ? patch->end : end;
	ofs_shard_box(cat, x.t, &cat->shards[patch->shard], x.box,
	    x.box + x.t->grid_ndim);
	x.first = (*lo - patch->off) / item;
	x.n = (*hi - patch->off + item - 1) / item - x.first;
	return x;
}

/* Takes the bytes of the window that are replaced as a whole from ctx, the
 * ranges to read. */
static int find_replaced(void *ctx, struct window *w,
    const struct ofs_patch *patch)
{
	uint64_t lo, hi;
	struct put x;

	if (!patch->dense)
		return 0;
	x = dense_part(w, patch, &lo, &hi);
	return is_staged(&x) ? ofs_ranges_remove(ctx, lo, hi, w->err) : 0;
}

/* If the bytes of a patch in the window are one run of staged bytes, reads them
 * to their place: 1; 0: they are not. */
static int put_run(const struct window *w, const struct ofs_patch *patch)
{
	struct ofs_range r;
	uint64_t lo, hi, item;
	struct put x;

	if (!patch->dense || patch->place->fix != OFS_FIX_NONE)
		return 0;
	x = dense_part(w, patch, &lo, &hi);
	item = ofs_dtype_size(x.t->dtype);
	r = extent_of(&x);
	if (r.end - r.off != x.n * item ||
	    !ofs_ranges_cover(&x.edit->written, r.off, r.end))
		return 0;
	return ofs_edit_read(x.edit, w->buf + (lo - w->off), hi - lo,
		   r.off + (lo - patch->off - x.first * item), w->err) == -1
	    ? -1
	    : 1;
}

/* Reads the stored bytes that are not replaced. */
static int read_stored(struct window *w)
{
	struct ofs_ranges rest = { 0 };
	struct ofs_plan plan = { 0 };
	int ret = ofs_ranges_add(&rest, w->off, w->off + w->len, w->err);

	if (ret == 0)
		ret = each_patch(w, find_replaced, &rest);
	for (size_t i = 0; i < rest.n && ret == 0; i++) {
		uint64_t off = rest.v[i].off;
		struct ofs_segment seg = {
			.object = w->at->object,
			.codec = w->at->codec,
			.src = off,
			.dst = off - w->off,
			.len = rest.v[i].end - off,
			.n = 1,
		};

		if (seg.codec != OFS_PLAIN) {
			seg.ext_off = w->at->off;
			seg.ext_len = w->at->len;
		}
		ret = ofs_plan_add(&plan, &seg, w->err);
	}
	if (ret == 0)
		ret = ofs_fetch(w->p->reader, &plan, w->buf, w->err);
	ofs_plan_fini(&plan);
	ofs_ranges_fini(&rest);
	return ret;
}

static const struct ofs_place *its_place(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	const struct put *x = ctx;

	return shard == x->patch->shard
	    ? x->patch->place
	    : ofs_locate_shard(x->w->p->reader, t, shard, err);
}

int ofs_edit_read(const struct ofs_edit *edit, void *buf, uint64_t n,
    uint64_t off, struct optimfs_error *err)
{
	if (edit->staged.read != NULL)
		return edit->staged.read(edit->staged.ctx, buf, n, off, err);
	memcpy(buf, edit->element + off, n);
	return 0;
}

/* Reads staged bytes [off, end), which are in one written range up to limit. */
static int read_staged(struct put *x, uint64_t off, uint64_t end,
    uint64_t limit, uint8_t *buf)
{
	uint64_t n = end - off;

	if (n >= SHORT || x->edit->staged.read == NULL)
		return ofs_edit_read(x->edit, buf, n, off, x->w->err);
	if (off < x->ahead_off || end > x->ahead_off + x->ahead_len) {
		x->ahead_off = off;
		x->ahead_len = limit - off < AHEAD ? limit - off : AHEAD;
		if (x->ahead == NULL)
			x->ahead = malloc(AHEAD);
		if (x->ahead == NULL)
			return ofs_no_memory(x->w->err);
		if (ofs_edit_read(x->edit, x->ahead, x->ahead_len, off,
			x->w->err) == -1)
			return -1;
	}
	memcpy(buf, x->ahead + (off - x->ahead_off), n);
	return 0;
}

/* Copies the staged bytes over the elements. */
static int lay_staged(struct put *x)
{
	const struct ofs_ranges *written = &x->edit->written;
	struct ofs_range all = extent_of(x);
	struct ofs_stretch s;
	struct ofs_runs runs;

	ofs_runs_begin(&runs, x->w->p->reader->cat, x->t, x->box, x->first,
	    x->n);
	while (ofs_runs_next(&runs, &s))
		for (size_t i = ofs_ranges_find(written, s.off);
		     i < written->n && written->v[i].off < s.end; i++) {
			const struct ofs_range *r = &written->v[i];
			uint64_t lo = r->off > s.off ? r->off : s.off;
			uint64_t hi = r->end < s.end ? r->end : s.end;

			if (read_staged(x, lo, hi,
				r->end < all.end ? r->end : all.end,
				x->w->element + s.dst + (lo - s.off)) == -1)
				return -1;
		}
	return 0;
}

/* Copies the runs of a segment to the window, as far as they are inside. */
static void put_segment(const struct window *w, const struct ofs_segment *seg)
{
	for (uint64_t i = 0; i < seg->n; i++) {
		uint64_t at =
		    (uint64_t)((int64_t)seg->src + (int64_t)i * seg->src_pitch);
		const uint8_t *from = w->element + (int64_t)seg->dst +
		    (int64_t)i * seg->dst_pitch;
		uint64_t lo = at > w->off ? at : w->off;
		uint64_t hi = at + seg->len < w->off + w->len ? at + seg->len
							      : w->off + w->len;

		if (lo < hi)
			memcpy(w->buf + (lo - w->off), from + (lo - at),
			    hi - lo);
	}
}

/* Puts the elements of a step. */
static int put_step(struct put *x, struct ofs_plan *plan)
{
	struct ofs_reader *r = x->w->p->reader;
	struct ofs_range all = extent_of(x);

	if (!ofs_ranges_meet(&x->edit->written, all.off, all.end))
		return 0;
	ofs_plan_clear(plan);
	if (ofs_plan_box(r->cat, x->t, x->box, x->first, x->n, 0, its_place, x,
		plan, x->w->err) == -1)
		return -1;
	if (!is_staged(x) && ofs_fetch(r, plan, x->w->element, x->w->err) == -1)
		return -1;
	if (lay_staged(x) == -1)
		return -1;
	for (size_t i = 0; i < plan->n; i++) {
		/* every fix is its own inverse */
		if (plan->seg[i].fix != OFS_FIX_NONE)
			ofs_fix_segment(&plan->seg[i], x->w->element);
		put_segment(x->w, &plan->seg[i]);
	}
	return 0;
}

static int make_room(struct window *w, uint64_t n)
{
	if (n <= w->room)
		return 0;
	free(w->element);
	w->element = malloc(n);
	w->room = w->element == NULL ? 0 : n;
	return w->element == NULL ? ofs_no_memory(w->err) : 0;
}

/* Puts the elements of a patch into the window. */
static int put_patch(void *ctx, struct window *w, const struct ofs_patch *patch)
{
	const struct ofs_catalog *cat = w->p->reader->cat;
	struct put x = { .w = w,
		.patch = patch,
		.edit = &w->p->edit[patch->edit],
		.t = tensor_of(w->p, patch) };
	uint64_t item = ofs_dtype_size(x.t->dtype), total;
	uint64_t box[2 * OFS_MAX_DIMS];
	struct ofs_stored_box s = stored_box(x.t, patch->place, box);
	int ret = put_run(w, patch);

	if (ret != 0)
		return ret == 1 ? 0 : -1;
	ofs_shard_box(cat, x.t, &cat->shards[patch->shard], box,
	    box + x.t->grid_ndim);
	if (!ofs_plan_window(&s, w->off, w->len, x.box) ||
	    !ofs_numel(x.box + x.t->grid_ndim, x.t->grid_ndim, &total))
		return 0;
	if (make_room(w, total < STEP / item ? total * item : STEP) == -1)
		return -1;
	for (; x.first < total && ret == 0; x.first += x.n) {
		x.n = total - x.first < STEP / item ? total - x.first
						    : STEP / item;
		ret = put_step(&x, ctx);
	}
	free(x.ahead);
	return ret;
}

static struct window window_of(const struct ofs_patches *p,
    const struct ofs_extent *at, uint64_t off, uint64_t len)
{
	return (struct window){ .p = p,
		.at = at,
		.off = off + (at->codec == OFS_PLAIN ? at->off : 0),
		.len = len };
}

static int add_hull(void *ctx, struct window *w, const struct ofs_patch *patch)
{
	uint64_t base = w->off; /* the window is the extent */
	uint64_t lo = patch->off > base ? patch->off - base : 0;
	uint64_t hi = patch->end - base < w->len ? patch->end - base : w->len;

	return ofs_ranges_add(ctx, lo, hi, w->err);
}

int ofs_patches_hulls(const struct ofs_patches *p, const struct ofs_extent *at,
    struct ofs_ranges *out, struct optimfs_error *err)
{
	/* a decoded extent has a length that is not known here */
	struct window w =
	    window_of(p, at, 0, at->codec == OFS_PLAIN ? at->len : INT64_MAX);

	w.err = err;
	return each_patch(&w, add_hull, out);
}

static int is_any(void *ctx, struct window *w, const struct ofs_patch *patch)
{
	(void)ctx, (void)w, (void)patch;
	return -1;
}

bool ofs_patches_meet(const struct ofs_patches *p, const struct ofs_extent *at,
    uint64_t off, uint64_t len)
{
	struct window w = window_of(p, at, off, len);

	if (at->codec == OFS_PLAIN)
		return ofs_ranges_meet(ofs_patches_touched(p, at->object),
		    w.off, w.off + len);
	return len > 0 && each_patch(&w, is_any, NULL) == -1;
}

int ofs_patches_read(const struct ofs_patches *p, const struct ofs_extent *at,
    uint64_t off, uint64_t len, void *buf, struct optimfs_error *err)
{
	struct window w = window_of(p, at, off, len);
	struct ofs_plan plan = { 0 };
	int ret;

	if (len == 0)
		return 0;
	w.buf = buf;
	w.err = err;
	ret = read_stored(&w);
	if (ret == 0)
		ret = each_patch(&w, put_patch, &plan);
	free(w.element);
	ofs_plan_fini(&plan);
	return ret;
}
