/* file_read.c - reading an open file: plan, fetch, add staged bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "fs/view.h"
#include "fs/write_open.h"
#include "plan/cast.h"
#include "read/alike.h"

/* A longer read is split, which bounds the size of its plan, if the transport
 * does not want more. */
#define STEP_MAX (UINT64_C(8) << 20)
/* The largest element, and the largest range that a partial element is widened
 * to. */
#define ELEMENT_MAX 64
/* Elements to be cast are first fetched into a buffer of this size. */
#define BOUNCE (1u << 20)

/* The state of a read: the catalog its pieces refer to, and the plan. */
struct reading {
	struct optimfs_file *file;
	struct ofs_reader *reader;
	const struct ofs_catalog *cat;
	const struct ofs_composition *c;
	struct ofs_plan *plan;
	struct ofs_rank_place rank; /* for a file of .optimfs/rank */
};

/* A file of a rank has what the rank stored, whatever others did. */
static const struct ofs_place *place_of(void *ctx, const struct ofs_tensor *t,
    uint32_t shard, struct optimfs_error *err)
{
	struct reading *r = ctx;

	if (r->file->view != NULL || r->file->at.space < OFS_SPACE_RANK)
		return ofs_locate(r->reader, t, shard, err);
	r->rank.reader = r->reader;
	r->rank.rank = r->file->snap->space[r->file->at.space].rank;
	return ofs_locate_rank(&r->rank, t, shard, err);
}

/* A piece is literal bytes or a box of a tensor. A box has up to three layers:
 * the stored elements, over them the staged ones, over both a cast to the dtype
 * of the file. A read loops over the pieces. Literal pieces and pieces with
 * only the first layer are fetched together. */

/* A box with staged elements; the other elements are read. */
struct gaps {
	struct reading *r;
	const struct ofs_piece *p;
	const struct ofs_tensor *t;
	uint64_t first;
};

static int plan_gap(void *ctx, uint64_t first, uint64_t count,
    struct optimfs_error *err)
{
	const struct gaps *h = ctx;

	return ofs_plan_box(h->r->cat, h->t, h->p->box, first, count,
	    (first - h->first) * ofs_dtype_size(h->t->dtype), place_of, h->r,
	    h->r->plan, err);
}

/* A tensor that is being written may end inside an element. */
static bool ends_anywhere(const struct optimfs_file *file)
{
	return file->view == NULL && ofs_space_edited(file->at.space);
}

/* Reads elements [first, first + count) of a piece's box: the stored ones, then
 * the staged ones over them. */
static int read_overlaid(struct reading *r, const struct ofs_piece *p,
    void *buf, uint64_t first, uint64_t count, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = r->file->snap;
	const struct ofs_tensor *t = &r->cat->tensors[p->tensor];
	struct ofs_overlay_file *f = ofs_file_staged(r->file, p->tensor);
	struct gaps h = { r, p, t, first };
	int ret;

	ofs_plan_clear(r->plan);
	if (f == NULL && snap->overlay != NULL &&
	    ofs_overlay_hides_tensor(snap->overlay, p->tensor))
		return optimfs_fail(err, EIO,
		    "OFS301 none of it has been written");
	ret = f == NULL ? plan_gap(&h, first, count, err)
			: ofs_overlay_gaps(f, r->cat, t, p->box, first, count,
			      plan_gap, &h, err);
	if (ret == -1 || ofs_fetch(r->reader, r->plan, buf, err) == -1)
		return -1;
	return f == NULL
	    ? 0
	    : ofs_overlay_apply(snap->overlay, f, r->cat, t, p->box, first,
		  count, ends_anywhere(r->file), buf, err);
}

/* As above, cast to the dtype of the file. */
static int read_cast(struct reading *r, const struct ofs_piece *p, uint8_t *buf,
    uint64_t first, uint64_t count, struct optimfs_error *err)
{
	enum ofs_dtype from = r->cat->tensors[p->tensor].dtype;
	size_t in = ofs_dtype_size(from), out = ofs_dtype_size(p->dtype);
	uint64_t most = count < BOUNCE / in ? count : BOUNCE / in, k;
	void *bounce = malloc(most * in);
	int ret = 0;

	if (bounce == NULL)
		return ofs_no_memory(err);
	for (; count > 0 && ret == 0; count -= k) {
		k = count < most ? count : most;
		ret = read_overlaid(r, p, bounce, first, k, err);
		if (ret == 0)
			ofs_cast(from, bounce, p->dtype, buf, k);
		first += k;
		buf += k * out;
	}
	free(bounce);
	return ret;
}

/* Reads bytes [from, till) of the file, elements of one piece. */
static int read_box(struct reading *r, const struct ofs_piece *p, uint8_t *buf,
    uint64_t from, uint64_t till, struct optimfs_error *err)
{
	size_t item = ofs_dtype_size(p->dtype);
	uint64_t first = p->first + (from - p->off) / item;
	uint64_t count = (till - from) / item;

	return p->dtype == r->cat->tensors[p->tensor].dtype
	    ? read_overlaid(r, p, buf, first, count, err)
	    : read_cast(r, p, buf, first, count, err);
}

/* Does the piece have staged elements or a cast? */
static bool is_layered(const struct reading *r, const struct ofs_piece *p)
{
	const struct ofs_snapshot *snap = r->file->snap;

	return p->kind == OFS_PIECE_BOX &&
	    (p->dtype != r->cat->tensors[p->tensor].dtype ||
		(snap->overlay != NULL &&
		    (ofs_overlay_hides_tensor(snap->overlay, p->tensor) ||
			ofs_file_staged(r->file, p->tensor) != NULL)));
}

/* Reads adjacent pieces without layers in one plan. */
static int read_plain(struct reading *r, void *buf, uint64_t from,
    uint64_t till, struct optimfs_error *err)
{
	ofs_plan_clear(r->plan);
	if (from == till)
		return 0;
	if (ofs_composition_plan(r->c, r->cat, from, till - from, buf, place_of,
		r, r->plan, err) == -1)
		return -1;
	return ofs_fetch(r->reader, r->plan, buf, err);
}

static int read_cut(struct reading *r, uint8_t *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err);

/* Reads any range of at most STEP_MAX bytes. */
static int read_range(struct reading *r, uint8_t *buf, uint64_t len,
    uint64_t off, struct optimfs_error *err)
{
	uint64_t end = off + len, whole = off, n = len;

	ofs_composition_align(r->c, &whole, &n);
	if (whole != off || n != len)
		return read_cut(r, buf, len, off, err);
	if (!r->c->casts && r->file->snap->overlay == NULL)
		return read_plain(r, buf, off, end, err);
	for (size_t i = ofs_composition_find(r->c, off); i < r->c->n; i++) {
		const struct ofs_piece *p = &r->c->piece[i];
		uint64_t from = p->off > off ? p->off : off;
		uint64_t till = p->off + p->len < end ? p->off + p->len : end;

		if (p->off >= end)
			break;
		if (!is_layered(r, p) || from >= till)
			continue;
		if (read_plain(r, buf, off, from, err) == -1 ||
		    read_box(r, p, buf + (from - off), from, till, err) == -1)
			return -1;
		buf += till - off;
		off = till;
	}
	return read_plain(r, buf, off, end, err);
}

/* Reads len bytes at off that lie inside one element. */
static int read_inside(struct reading *r, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	uint8_t element[ELEMENT_MAX];
	uint64_t from = off, width = 1;

	ofs_composition_align(r->c, &from, &width);
	if (width > sizeof(element))
		return optimfs_fail(err, EUCLEAN,
		    "element of %" PRIu64 " bytes", width);
	if (read_range(r, element, width, from, err) == -1)
		return -1;
	memcpy(buf, element + (off - from), len);
	return 0;
}

/* Reads a range that begins or ends inside an element: the partial first
 * element, the whole ones, the partial last one. */
static int read_cut(struct reading *r, uint8_t *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	uint64_t end = off + len, head = off, tail = end - 1, n = 1, k = 1;

	ofs_composition_align(r->c, &head, &n);
	if (head < off || head + n > end) {
		n = head + n < end ? head + n - off : len;
		if (read_inside(r, buf, n, off, err) == -1)
			return -1;
		buf += n;
		off += n;
	}
	ofs_composition_align(r->c, &tail, &k);
	if (off < end && tail + k > end) {
		if (read_inside(r, buf + (tail - off), end - tail, tail, err) ==
		    -1)
			return -1;
		end = tail;
	}
	return off < end ? read_range(r, buf, end - off, off, err) : 0;
}

struct view_read {
	struct optimfs_file *file;
	struct ofs_plan *plan;
};

/* Reads a range of a file of a view, without the checksums in it. *c, for
 * ofs_composition_fini, begins at byte *base of the file. */
static int read_window(const struct view_read *v, uint8_t *buf, uint64_t len,
    uint64_t off, struct ofs_composition *c, uint64_t *base,
    struct optimfs_error *err)
{
	struct ofs_view_file *view = v->file->view;
	struct reading r = { .file = v->file,
		.reader = ofs_view_reader(view),
		.cat = ofs_view_cat(view),
		.c = c,
		.plan = v->plan };

	if (ofs_view_window(view, off, len, c, base, err) == -1)
		return -1;
	if (read_range(&r, buf, len, off - *base, err) == 0)
		return 0;
	ofs_composition_fini(c);
	return -1;
}

/* For a checksum: a range that one covers contains none. */
static int read_covered(void *ctx, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	struct ofs_composition c;
	uint64_t base;

	if (read_window(ctx, buf, len, off, &c, &base, err) == -1)
		return -1;
	ofs_composition_fini(&c);
	return 0;
}

static int read_view(struct optimfs_file *file, struct ofs_plan *plan,
    uint8_t *buf, uint64_t len, uint64_t off, struct optimfs_error *err)
{
	struct view_read v = { file, plan };
	struct ofs_composition c;
	uint64_t base;
	int ret = ofs_view_read(file->view, buf, len, off, err);

	if (ret != 0)
		return ret == 1 ? 0 : -1;
	if (read_window(&v, buf, len, off, &c, &base, err) == -1)
		return -1;
	ret = ofs_view_checksums(file->view, &c, base, buf, off, len,
	    read_covered, &v, err);
	ofs_composition_fini(&c);
	return ret;
}

static struct ofs_plan *take_plan(struct optimfs_file *file)
{
	for (size_t i = 0; i < sizeof(file->spare) / sizeof(*file->spare);
	     i++) {
		struct ofs_plan *plan = atomic_exchange(&file->spare[i], NULL);

		if (plan != NULL)
			return plan;
	}
	return calloc(1, sizeof(struct ofs_plan));
}

static void drop_plan(struct ofs_plan *plan)
{
	if (plan != NULL)
		ofs_plan_fini(plan);
	free(plan);
}

void ofs_file_drop_plans(struct optimfs_file *file)
{
	for (size_t i = 0; i < sizeof(file->spare) / sizeof(*file->spare); i++)
		drop_plan(file->spare[i]);
}

static void give_plan(struct optimfs_file *file, struct ofs_plan *plan)
{
	for (size_t i = 0; i < sizeof(file->spare) / sizeof(*file->spare);
	     i++) {
		struct ofs_plan *none = NULL;

		if (atomic_compare_exchange_strong(&file->spare[i], &none,
			plan))
			return;
	}
	drop_plan(plan);
}

static ssize_t read_pieces(struct optimfs_file *file, uint8_t *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_plan *plan = take_plan(file);
	struct reading r = { .file = file,
		.reader = &file->snap->reader,
		.cat = file->snap->cat,
		.c = &file->comp,
		.plan = plan };
	uint64_t most = r.reader->transport->ops->at_once;
	size_t stored = len, n;
	int ret = 0;

	if (most < STEP_MAX)
		most = STEP_MAX;
	if (plan == NULL)
		return ofs_no_memory(err);
	if (file->view == NULL && off + len > file->comp.size) {
		stored = off < file->comp.size ? file->comp.size - off : 0;
		ret = ofs_file_read_behind(file, buf + stored, len - stored,
		    off + stored, err);
		if (ret == -1)
			ofs_file_failed(file->snap, file->at, off + stored,
			    len - stored, err);
	}
	for (size_t done = 0; done < stored && ret == 0; done += n) {
		n = stored - done < most ? stored - done : (size_t)most;
		ofs_file_ahead(file, off + done, n);
		ret = file->view != NULL
		    ? read_view(file, plan, buf + done, n, off + done, err)
		    : read_range(&r, buf + done, n, off + done, err);
		if (ret == -1)
			ofs_file_failed(file->snap, file->at, off + done, n,
			    err);
	}
	give_plan(file, plan);
	free(r.rank.place);
	return ret == -1 ? -1 : (ssize_t)len;
}

/* Reads an added file, or a text or .npy that is being written. */
static ssize_t read_staged(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	ssize_t n = ofs_file_read_staged(file, buf, len, off, err);

	return n == -1 ? ofs_file_failed(file->snap, file->at, off, len, err)
		       : n;
}

ssize_t ofs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	uint64_t size = ofs_file_size(file);

	err = OFS_SOME_ERROR(err);
	if (file->lost)
		return optimfs_fail(err, ESTALE,
		    "OFS844 a commit has changed or removed the file: open it "
		    "again");
	if (off >= size || len == 0)
		return 0;
	if (len > size - off)
		len = (size_t)(size - off);
	atomic_fetch_add_explicit(&file->snap->fs->reads, 1,
	    memory_order_relaxed);
	atomic_fetch_add_explicit(&file->snap->fs->read_bytes, len,
	    memory_order_relaxed);
	if (file->staged != NULL && file->comp.n == 0)
		return read_staged(file, buf, len, off, err);
	if (file->blob != NULL) {
		memcpy(buf, file->blob->bytes + off, len);
		return (ssize_t)len;
	}
	if (file->lines != NULL)
		return ofs_lines_read(file->lines, file->snap, buf, len, off,
		    err);
	return read_pieces(file, buf, len, off, err);
}

int ofs_file_read_all(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	ssize_t n = ofs_file_read(file, buf, len, off, err);

	if (n == -1 || (size_t)n == len)
		return n == -1 ? -1 : 0;
	return optimfs_fail(err, EIO, "%zd bytes of %zu", n, len);
}

ssize_t optimfs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	ssize_t ret;

	do {
		snap = ofs_file_enter(file);
		ret = ofs_file_read(file, buf, len, off, err);
	} while (ofs_file_leave(file, snap, ret == -1));
	return ret;
}

/* Several ranges. */

static bool is_stored(const struct optimfs_file *file)
{
	return !file->lost && file->view == NULL && file->staged == NULL &&
	    file->blob == NULL && file->lines == NULL && !file->comp.casts &&
	    file->snap->overlay == NULL;
}

/* Does the range begin and end at elements, inside the file? */
static bool is_aligned(const struct ofs_composition *c,
    const struct optimfs_part *part)
{
	uint64_t off = part->off, len = part->len;

	if (off > c->size || len > c->size - off)
		return false;
	ofs_composition_align(c, &off, &len);
	return off == part->off && len == part->len;
}

static int plan_part(struct reading *r, const struct optimfs_part *part,
    const uint8_t *base, struct optimfs_error *err)
{
	struct ofs_plan *plan = r->plan;
	uint64_t at = (uint64_t)((uint8_t *)part->to - base);
	size_t seg = plan->n, zero = plan->nzeros;

	if (part->len > 0 &&
	    ofs_composition_plan(r->c, r->cat, part->off, part->len, part->to,
		place_of, r, plan, err) == -1)
		return ofs_file_failed(r->file->snap, r->file->at, part->off,
		    part->len, err);
	while (seg < plan->n)
		plan->seg[seg++].dst += at;
	while (zero < plan->nzeros)
		plan->zero[zero++].dst += at;
	return 0;
}

/* In one plan, whose buffer begins where the first of the parts goes to. */
static int read_together(struct optimfs_file *file,
    const struct optimfs_part *part, size_t n, struct optimfs_error *err)
{
	struct reading r = { .file = file,
		.reader = &file->snap->reader,
		.cat = file->snap->cat,
		.c = &file->comp,
		.plan = take_plan(file) };
	uint8_t *base = part[0].to;
	uint64_t bytes = 0;
	int ret = 0;

	if (r.plan == NULL)
		return ofs_no_memory(err);
	ofs_plan_clear(r.plan);
	for (size_t i = 0; i < n; i++) {
		bytes += part[i].len;
		if ((uint8_t *)part[i].to < base)
			base = part[i].to;
	}
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = plan_part(&r, &part[i], base, err);
	if (ret == 0 && ofs_fetch(r.reader, r.plan, base, err) == -1)
		ret = ofs_file_failed(file->snap, file->at, part[0].off, bytes,
		    err);
	give_plan(file, r.plan);
	free(r.rank.place);
	atomic_fetch_add_explicit(&file->snap->fs->reads, 1,
	    memory_order_relaxed);
	atomic_fetch_add_explicit(&file->snap->fs->read_bytes, bytes,
	    memory_order_relaxed);
	return ret;
}

static int read_parts(struct optimfs_file *file,
    const struct optimfs_part *part, size_t n, struct optimfs_error *err)
{
	bool together = n > 1 && is_stored(file);
	int ret = 0;

	for (size_t i = 0; together && i < n; i++)
		together = is_aligned(&file->comp, &part[i]);
	if (together)
		return read_together(file, part, n, err);
	for (size_t i = 0; ret == 0 && i < n; i++)
		ret = ofs_file_read_all(file, part[i].to, part[i].len,
		    part[i].off, err);
	return ret;
}

int ofs_file_read_parts(struct optimfs_file *file,
    const struct optimfs_part *part, size_t n, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	int ret;

	do {
		snap = ofs_file_enter(file);
		ret = read_parts(file, part, n, err);
	} while (ofs_file_leave(file, snap, ret == -1));
	return ret;
}

/* A tensor's file is a single box. */
uint64_t ofs_file_alike_in(struct optimfs_file *file, uint64_t first,
    uint64_t least, uint64_t max)
{
	struct reading r = { .file = file,
		.reader = &file->snap->reader,
		.cat = file->snap->cat };
	const struct ofs_piece *p = file->comp.piece;
	struct ofs_alike a = { .place = place_of, .ctx = &r };
	uint64_t n = 0;

	if (file->lost || file->view != NULL || file->staged != NULL ||
	    file->comp.n != 1 || p->kind != OFS_PIECE_BOX ||
	    is_layered(&r, p) || first >= p->len / ofs_dtype_size(p->dtype))
		return 0;
	if (max > p->len / ofs_dtype_size(p->dtype) - first)
		max = p->len / ofs_dtype_size(p->dtype) - first;
	a.t = &r.cat->tensors[p->tensor];
	a.box = p->box;
	n = ofs_alike(&file->snap->reader, &a, p->first + first, least, max);
	free(r.rank.place);
	return n;
}

uint64_t ofs_file_alike(struct optimfs_file *file, uint64_t first,
    uint64_t least, uint64_t max)
{
	struct ofs_snapshot *snap = ofs_file_enter(file);
	uint64_t n = ofs_file_alike_in(file, first, least, max);

	(void)ofs_file_leave(file, snap, false);
	return n;
}
