/* writethrough_derive.c - elements of a template derived from others */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "overlay/overlay_impl.h"
#include "plan/cast.h"
#include "push/writethrough.h"

#define STEP ((uint64_t)1 << 20)

/* Nothing of this is in the journal: each commit does it again. */

/* Is the tensor visible and completely written? */
static bool is_whole(const struct ofs_overlay *o, uint32_t node)
{
	struct ofs_overlay_file *f = ofs_overlay_file(o, node);
	uint64_t total =
	    ofs_tensor_bytes(o->cat, ofs_tree_tensor(o->tree, o->cat, node));
	bool whole;

	if (f == NULL || !ofs_writethrough_present(o, node))
		return false;
	pthread_rwlock_rdlock(&f->lock);
	if (f->text)
		whole = f->accepted != NULL && !f->unwritten;
	else
		whole = f->size == total && ofs_ranges_total(&f->lost) == 0 &&
		    ofs_ranges_cover(&f->written, 0, total);
	pthread_rwlock_unlock(&f->lock);
	return whole;
}

uint32_t ofs_writethrough_written(const struct ofs_overlay *o, uint32_t node)
{
	uint32_t i = node;

	do {
		if (is_whole(o, i))
			return i;
		i = ofs_writethrough_next(o, i);
	} while (i != node);
	return OFS_NONE;
}

/* Makes the elements in the template visible as the file's contents. */
static struct ofs_overlay_file *show(struct ofs_overlay *o, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file_touch(o, node, err);

	if (f == NULL || f->text)
		return f;
	pthread_rwlock_wrlock(&f->lock);
	f->size = f->base =
	    ofs_tensor_bytes(o->cat, ofs_tree_tensor(o->tree, o->cat, node));
	pthread_rwlock_unlock(&f->lock);
	return f;
}

void ofs_writethrough_forget(struct ofs_overlay *o)
{
	for (struct ofs_overlay_file *f = o->files; f != NULL; f = f->next) {
		pthread_rwlock_wrlock(&f->lock);
		if (f->base > 0)
			f->size = f->base = 0;
		pthread_rwlock_unlock(&f->lock);
	}
}

/* Reads bytes [off, off + n) that were written by the name node. */
static int take(struct ofs_overlay *o, uint32_t node, void *buf, uint64_t off,
    uint64_t n, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file(o, node);

	if (f->bytes->in_place)
		return ofs_writethrough_read(o, f, buf, n, off, err);
	return ofs_overlay_file_apply(o, f, buf, off, off + n, 0, err);
}

/* A block of elements, and the same after the cast. */
struct pouring {
	struct ofs_overlay *o;
	uint8_t *from,
	    *to; /* STEP elements of at most 16 bytes; STEP elements of 4 */
};

/* Copies the elements written by the name source to the place of node. */
static int pour(const struct pouring *p, uint32_t source, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = p->o;
	const struct ofs_snapshot *snap = ofs_writethrough_snapshot(o);
	const struct ofs_tensor *a = ofs_tree_tensor(o->tree, o->cat, source);
	const struct ofs_tensor *b = ofs_tree_tensor(o->tree, o->cat, node);
	uint64_t in = ofs_dtype_size(a->dtype), out = ofs_dtype_size(b->dtype);
	uint64_t all = ofs_tensor_numel(snap->cat, a), most = STEP / 16, n;
	struct ofs_overlay_file *f = show(o, node, err);

	if (f == NULL)
		return -1;
	for (uint64_t i = 0; i < all; i += n) {
		const void *bytes = p->from;

		n = all - i < most ? all - i : most;
		if (take(o, source, p->from, i * in, n * in, err) == -1)
			return -1;
		if (a->dtype != b->dtype) {
			ofs_cast(a->dtype, p->from, b->dtype, p->to, n);
			bytes = p->to;
		}
		if (ofs_writethrough_write(o, f, bytes, n * out, i * out,
			err) == -1)
			return -1;
	}
	return 0;
}

/* Fills a place with the bytes written to any of its names. */
static int fill_place(const struct pouring *p, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = p->o;
	uint32_t primary = ofs_writethrough_primary(o, node), source;

	if (primary == node && ofs_writethrough_next(o, node) == node)
		return 0;
	if (is_whole(o, node))
		return 0;
	if (primary != node ||
	    ofs_writethrough_is_rounded(o, o->tree->node[node].entry))
		return show(o, node, err) == NULL ? -1 : 0;
	source = ofs_writethrough_written(o, node);
	return source == OFS_NONE ? 0 : pour(p, source, node, err);
}

static int fill_derived(const struct pouring *p, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_overlay *o = p->o;
	uint32_t model = ofs_writethrough_model(o, node), source;

	/* if both are the same stored elements, nothing is to be done */
	if (model == OFS_NONE || ofs_writethrough_present(o, node) ||
	    ofs_writethrough_next(o, node) != node)
		return 0;
	source = ofs_writethrough_written(o, model);
	return source == OFS_NONE ? 0 : pour(p, source, node, err);
}

static int fill_zeros(struct ofs_overlay *o, uint32_t node,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f;

	if (o->tree->node[node].entry == OFS_NONE ||
	    !ofs_writethrough_zeros(o, node) ||
	    ofs_writethrough_present(o, node) ||
	    ofs_writethrough_written(o, node) != OFS_NONE)
		return 0;
	f = show(o, node, err);
	if (f == NULL)
		return -1;
	/* the step of a flat parameter comes from its other members */
	return f->text ? 0 : ofs_writethrough_zero(o, f, 0, f->size, err);
}

/* 0-dim tensors are texts, which take() finds in memory. */
int ofs_writethrough_derive(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct pouring p = { .o = o, .from = malloc(2 * STEP) };
	int ret = 0;

	if (p.from == NULL)
		return ofs_no_memory(err);
	p.to = p.from + STEP;
	pthread_rwlock_wrlock(&o->names);
	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++)
		ret = fill_zeros(o, i, err);
	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++)
		ret = fill_place(&p, i, err);
	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++)
		ret = fill_derived(&p, i, err);
	pthread_rwlock_unlock(&o->names);
	free(p.from);
	return ret;
}
