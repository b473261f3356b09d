/* file_read.c - reading an open file: plan, fetch, lay over what is staged */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fs/view.h"
#include "fs/write_open.h"
#include "plan/cast.h"

/* A longer read is made in steps, so that its plan stays small however the
 * tensor is cut. */
#define STEP_MAX (8u << 20)
/* No element is longer, nor is what a cut one widens a range to. */
#define ELEMENT_MAX 64
/* What is rounded is fetched into a buffer of this size first. */
#define BOUNCE (1u << 20)

/* What the pieces of a file count in: a view of an edited mount has a catalog of
 * its own. */
static const struct ofs_catalog *catalog_of(const struct optimfs_file *file)
{
	return file->view != NULL ? ofs_view_cat(file->view) : file->fs->cat;
}

/* Elements of a box of which some are staged: those that are not are read. */
struct box_read {
	struct optimfs *fs;
	const struct ofs_catalog *cat;
	const struct ofs_tensor *t;
	const struct ofs_piece *p;
	struct ofs_plan *plan;
	uint64_t first;
};

static int plan_hole(void *ctx, uint64_t first, uint64_t count,
    struct optimfs_error *err)
{
	const struct box_read *r = ctx;

	return ofs_plan_box(r->cat, r->t, r->p->box, first, count,
	    (first - r->first) * ofs_dtype_size(r->t->dtype), ofs_locate,
	    r->fs->locator, r->plan, err);
}

/* Of a tensor that is being written there may be any number of bytes. */
static bool ends_anywhere(const struct optimfs_file *file)
{
	return file->view == NULL &&
	    (file->at.space == OFS_SPACE_TREE ||
		file->at.space == OFS_SPACE_NPY);
}

static int read_box(struct optimfs_file *file, const struct ofs_piece *p,
    struct ofs_plan *plan, void *buf, uint64_t first, uint64_t count,
    struct optimfs_error *err)
{
	struct optimfs *fs = file->fs;
	const struct ofs_catalog *cat = catalog_of(file);
	const struct ofs_tensor *t = &cat->tensors[p->tensor];
	struct ofs_overlay_file *f = ofs_overlay_staged(file, p->tensor);
	struct box_read r = { fs, cat, t, p, plan, first };
	int ret;

	ofs_plan_clear(plan);
	if (f == NULL && fs->edit != NULL && ofs_overlay_is_template(fs->edit))
		return optimfs_fail(err, EIO,
		    "OFS301 nothing has been written of it");
	ret = f == NULL ? plan_hole(&r, first, count, err)
			: ofs_overlay_holes(f, cat, t, p->box, first, count,
			      plan_hole, &r, err);
	if (ret == -1 || ofs_fetch(fs, plan, buf, err) == -1)
		return -1;
	return f == NULL ? 0
			 : ofs_overlay_lay(fs->edit, f, cat, t, p->box, first,
			       count, ends_anywhere(file), buf, err);
}

static int read_plain(struct optimfs_file *file,
    const struct ofs_composition *c, struct ofs_plan *plan, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	struct optimfs *fs = file->fs;

	ofs_plan_clear(plan);
	if (len == 0)
		return 0;
	if (ofs_composition_plan(c, catalog_of(file), off, len, buf, ofs_locate,
		fs->locator, plan, err) == -1)
		return -1;
	return ofs_fetch(fs, plan, buf, err);
}

/* Bytes from off that lie in whole elements as they are stored: what was
 * written to box by box, what is between at once. */
static int read_stored(struct optimfs_file *file,
    const struct ofs_composition *c, struct ofs_plan *plan, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	uint64_t end = off + len, item;
	uint8_t *to = buf;
	int ret = 0;

	if (file->fs->edit == NULL)
		return read_plain(file, c, plan, buf, len, off, err);
	for (size_t i = 0; i < c->n && off < end && ret == 0; i++) {
		const struct ofs_piece *p = &c->piece[i];
		uint64_t from = p->off > off ? p->off : off;
		uint64_t till = p->off + p->len < end ? p->off + p->len : end;

		if (p->kind != OFS_PIECE_BOX || from >= till ||
		    (ofs_overlay_staged(file, p->tensor) == NULL &&
			!ofs_overlay_is_template(file->fs->edit)))
			continue;
		ret = read_plain(file, c, plan, to, from - off, off, err);
		item = ofs_dtype_size(p->dtype);
		if (ret == 0)
			ret = read_box(file, p, plan, to + (from - off),
			    p->first + (from - p->off) / item,
			    (till - from) / item, err);
		to += till - off;
		off = till;
	}
	return ret == -1 ? -1
			 : read_plain(file, c, plan, to, end - off, off, err);
}

/* Elements from byte off of the file on, all of p, in the type they have there. */
static int read_rounded(struct optimfs_file *file, const struct ofs_piece *p,
    struct ofs_plan *plan, uint8_t *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	const struct ofs_tensor *t = &catalog_of(file)->tensors[p->tensor];
	size_t in = ofs_dtype_size(t->dtype), out = ofs_dtype_size(p->dtype);
	uint64_t at = p->first + (off - p->off) / out, n = len / out, k;
	uint64_t most = n < BOUNCE / in ? n : BOUNCE / in;
	void *bounce = malloc(most * in);
	int ret = 0;

	if (bounce == NULL)
		return optimfs_fail(err, ENOMEM, "elements to round");
	for (; n > 0 && ret == 0; n -= k) {
		k = n < most ? n : most;
		ret = read_box(file, p, plan, bounce, at, k, err);
		if (ret == 0)
			ofs_cast(t->dtype, bounce, p->dtype, buf, k);
		at += k;
		buf += k * out;
	}
	free(bounce);
	return ret;
}

/* Bytes from off that lie in whole elements: those that are stored so at once,
 * boxes that must be rounded one by one. */
static int read_whole(struct optimfs_file *file,
    const struct ofs_composition *c, struct ofs_plan *plan, void *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err)
{
	uint64_t end = off + len, n;
	uint8_t *to = buf;

	while (off < end) {
		const struct ofs_piece *p =
		    ofs_composition_cast(c, catalog_of(file), off, end);

		n = (p == NULL ? end : p->off > off ? p->off : off) - off;
		if (read_stored(file, c, plan, to, n, off, err) == -1)
			return -1;
		to += n;
		off += n;
		if (p == NULL)
			return 0;
		n = (p->off + p->len < end ? p->off + p->len : end) - off;
		if (read_rounded(file, p, plan, to, n, off, err) == -1)
			return -1;
		to += n;
		off += n;
	}
	return 0;
}

/* len bytes at off, which the element at [from, from + width) contains. */
static int read_cut(struct optimfs_file *file, const struct ofs_composition *c,
    struct ofs_plan *plan, void *buf, uint64_t len, uint64_t off, uint64_t from,
    uint64_t width, struct optimfs_error *err)
{
	uint8_t element[ELEMENT_MAX];

	if (width > sizeof(element))
		return optimfs_fail(err, EUCLEAN,
		    "element of %" PRIu64 " bytes", width);
	if (read_whole(file, c, plan, element, width, from, err) == -1)
		return -1;
	memcpy(buf, element + (off - from), len);
	return 0;
}

/* Any range of at most STEP_MAX bytes: a cut element, whole ones, a cut one. */
static int read_step(struct optimfs_file *file, const struct ofs_composition *c,
    struct ofs_plan *plan, uint8_t *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	uint64_t from = off, n = len, k;

	ofs_composition_align(c, &from, &n);
	if (from == off && n == len)
		return read_whole(file, c, plan, buf, len, off, err);
	from = off;
	n = 1;
	ofs_composition_align(c, &from, &n);
	if (from < off || n > len) {
		k = from + n - off < len ? from + n - off : len;
		if (read_cut(file, c, plan, buf, k, off, from, n, err) == -1)
			return -1;
		buf += k;
		off += k;
		len -= k;
		if (len == 0)
			return 0;
	}
	from = off + len - 1;
	n = 1;
	ofs_composition_align(c, &from, &n);
	k = from + n > off + len ? off + len - from : 0;
	if (k > 0 &&
	    read_cut(file, c, plan, buf + (len - k), k, from, from, n, err) ==
		-1)
		return -1;
	return read_whole(file, c, plan, buf, len - k, off, err);
}

/* The same of a view's file, for which its composition is made; what a
 * checksum covers holds no checksum. */
struct view_read {
	struct optimfs_file *file;
	struct ofs_plan *plan;
};

static int read_view(struct view_read *r, uint8_t *buf, uint64_t len,
    uint64_t off, bool sums, struct optimfs_error *err);

static int read_under(void *ctx, void *buf, uint64_t len, uint64_t off,
    struct optimfs_error *err)
{
	return read_view(ctx, buf, len, off, false, err);
}

static int read_view(struct view_read *r, uint8_t *buf, uint64_t len,
    uint64_t off, bool sums, struct optimfs_error *err)
{
	struct ofs_view_file *view = r->file->view;
	struct ofs_composition c;
	uint64_t base;
	int ret;

	if (ofs_view_window(view, off, len, &c, &base, err) == -1)
		return -1;
	ret = read_step(r->file, &c, r->plan, buf, len, off - base, err);
	if (ret == 0 && sums)
		ret = ofs_view_checksums(view, &c, base, buf, off, len,
		    read_under, r, err);
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
	struct view_read view = { file, plan };
	size_t done = 0, all = len;
	int ret = 0;

	if (plan == NULL)
		return optimfs_fail(err, ENOMEM, "plan");
	if (file->view == NULL && off + len > file->comp.size) {
		done = off < file->comp.size ? file->comp.size - off : 0;
		ret = ofs_overlay_read_behind(file, buf + done, len - done,
		    off + done, err);
		if (ret == -1)
			ofs_file_failed(file->fs, file->at, off + done,
			    len - done, err);
		len = done;
		done = 0;
	}
	while (done < len && ret == 0) {
		size_t n = len - done < STEP_MAX ? len - done : STEP_MAX;

		ret = file->view != NULL
		    ? read_view(&view, buf + done, n, off + done, true, err)
		    : read_step(file, &file->comp, plan, buf + done, n,
			  off + done, err);
		if (ret == -1)
			ofs_file_failed(file->fs, file->at, off + done, n, err);
		done += n;
	}
	give_plan(file, plan);
	return ret == -1 ? -1 : (ssize_t)all;
}

/* A file that was made, or a text or .npy that is being written. */
static ssize_t read_staged(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	struct optimfs_error own;
	ssize_t n;

	if (err == NULL)
		err = &own;
	n = ofs_overlay_read(file, buf, len, off, err);
	return n == -1 ? ofs_file_failed(file->fs, file->at, off, len, err) : n;
}

static ssize_t do_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	uint64_t size = optimfs_file_size(file);
	struct optimfs_error own;

	if (file->lost)
		return optimfs_fail(err, ESTALE,
		    "OFS844 a commit has changed the file or taken it away: "
		    "open it again");
	if (off >= size || len == 0)
		return 0;
	if (len > size - off)
		len = (size_t)(size - off);
	atomic_fetch_add_explicit(&file->fs->reads, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&file->fs->read_bytes, len,
	    memory_order_relaxed);
	if (file->staged != NULL && file->comp.n == 0)
		return read_staged(file, buf, len, off, err);
	if (file->blob != NULL) {
		memcpy(buf, file->blob->bytes + off, len);
		return (ssize_t)len;
	}
	if (err == NULL)
		err = &own;
	if (file->lines != NULL)
		return ofs_lines_read(file->lines, file->fs, buf, len, off,
		    err);
	return read_pieces(file, buf, len, off, err);
}

ssize_t optimfs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	ssize_t ret;

	ofs_enter(file->fs);
	ret = do_file_read(file, buf, len, off, err);
	ofs_leave(file->fs);
	return ret;
}
