/* data.c - staged bytes of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/owners.h"
#include "read/fetch.h"
#include "rewrite/rewrite_impl.h"
#include "text/parse.h"

/* Which elements does a change replace? */

const struct ofs_tensor *ofs_commit_tensor(const struct ofs_commit *c,
    const struct ofs_change *ch)
{
	uint32_t entry = ch->kind == OFS_CHANGE_ADD ? ch->from : ch->entry;
	const struct ofs_entry *e;
	const struct ofs_tensor *t;

	if (ch->kind == OFS_CHANGE_REMOVE || entry == OFS_NONE)
		return NULL;
	e = &c->cat->entries[entry];
	if (e->kind != OFS_ENTRY_TENSOR)
		return NULL;
	t = &c->cat->tensors[e->ref];
	if (ch->kind != OFS_CHANGE_ADD)
		return t;
	/* a moved tensor keeps its shards if dtype and shape are unchanged */
	return ch->dtype == t->dtype &&
		ofs_tensor_has_shape(c->cat, t, ch->shape, ch->ndim)
	    ? t
	    : NULL;
}

/* The new bytes of t. A changed text is one element; all is where it is. */
static int edit_of(const struct ofs_change *ch, const struct ofs_tensor *t,
    struct ofs_range *all, struct ofs_edit *edit, struct optimfs_error *err)
{
	*edit =
	    (struct ofs_edit){ .staged = ch->staged, .written = ch->written };
	if (ch->text == NULL || t->ndim != 0)
		return 0;
	*all = (struct ofs_range){ 0, ofs_dtype_size(t->dtype) };
	edit->staged = (struct ofs_staged){ 0 };
	edit->written = (struct ofs_ranges){ .v = all, .n = 1 };
	return ofs_value_element(t->dtype, ch->text, ch->ntext, edit->element,
	    err);
}

/* Extents. */

OFS_COMPARE_BY2(compare_changed, struct ofs_changed, at.object, at.off)

struct extents {
	struct ofs_commit *c;
	struct optimfs_error *err;
};

static int add_extent(struct extents *x, const struct ofs_extent *at)
{
	struct ofs_commit *c = x->c;

	if (ofs_grow(c->changed, c->nchanged, c->changed_cap, x->err) == -1)
		return -1;
	c->changed[c->nchanged++] = (struct ofs_changed){ *at, false };
	return 0;
}

static int add_shard(void *ctx, uint32_t s)
{
	struct extents *x = ctx;
	const struct ofs_replica *r;
	uint32_t n;

	if (add_extent(x, &x->c->cat->shards[s].at) == -1)
		return -1;
	r = ofs_replicas(x->c->cat, s, &n);
	for (uint32_t i = 0; i < n; i++)
		if (add_extent(x, &r[i].at) == -1)
			return -1;
	return 0;
}

/* The extents of a change. */
static int add_extents(struct ofs_commit *c, const struct ofs_tensor *t,
    const struct ofs_edit *edit, struct optimfs_error *err)
{
	uint64_t item = ofs_dtype_size(t->dtype);
	struct extents x = { c, err };

	for (size_t i = 0; i < edit->written.n && t->error == OFS_NONE; i++) {
		const struct ofs_range *r = &edit->written.v[i];
		uint64_t first = r->off / item;

		if (ofs_plan_shards(c->cat, t, first,
			(r->end + item - 1) / item - first, add_shard, &x) != 0)
			return -1;
	}
	return 0;
}

/* What is staged over stored bytes. */
static int add_patch(struct ofs_commit *c, const struct ofs_tensor *t,
    const struct ofs_edit *edit, struct optimfs_error *err)
{
	(void)t;
	return edit->written.n == 0
	    ? 0
	    : ofs_patches_add(&c->patches, c->reader, edit, err);
}

static int each_edit(struct ofs_commit *c,
    int (*each)(struct ofs_commit *c, const struct ofs_tensor *t,
	const struct ofs_edit *edit, struct optimfs_error *err),
    struct optimfs_error *err)
{
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		const struct ofs_tensor *t = ofs_commit_tensor(c, ch);
		struct ofs_range all;
		struct ofs_edit edit;

		if (t == NULL)
			continue;
		if (edit_of(ch, t, &all, &edit, err) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
		edit.tensor = (uint32_t)(t - c->cat->tensors);
		if (each(c, t, &edit, err) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
	}
	return 0;
}

/* Are the files with changed bytes those that were mounted? */
static int check_objects(const struct ofs_commit *c, struct optimfs_error *err)
{
	uint32_t last = OFS_NONE;
	int fd;

	for (size_t i = 0; i < c->nchanged; i++) {
		uint32_t object = c->changed[i].at.object;

		if (object == last || ofs_commit_elsewhere(c, object))
			continue;
		if (ofs_commit_open(c, object, &fd, err) == -1)
			return -1;
		close(fd);
		last = object;
	}
	return 0;
}

static void sort_extents(struct ofs_commit *c)
{
	size_t n = 0;

	if (c->nchanged > 0)
		qsort(c->changed, c->nchanged, sizeof(*c->changed),
		    compare_changed);
	for (size_t i = 0; i < c->nchanged; i++)
		if (n == 0 ||
		    compare_changed(&c->changed[n - 1], &c->changed[i]) != 0)
			c->changed[n++] = c->changed[i];
	c->nchanged = n;
}

int ofs_commit_extents(struct ofs_commit *c, struct optimfs_error *err)
{
	if (each_edit(c, add_extents, err) == -1)
		return -1;
	sort_extents(c);
	c->patches.reader = c->reader;
	if (check_objects(c, err) == -1 || each_edit(c, add_patch, err) == -1)
		return -1;
	ofs_patches_seal(&c->patches);
	return 0;
}

size_t ofs_commit_changed(const struct ofs_commit *c, uint32_t object)
{
	struct ofs_changed key = { .at.object = object };

	return ofs_lower_bound(&key, c->changed, c->nchanged,
	    sizeof(*c->changed), compare_changed);
}

void ofs_commit_placed(struct ofs_commit *c, const struct ofs_extent *at)
{
	struct ofs_changed key = { .at = *at };
	size_t i = ofs_lower_bound(&key, c->changed, c->nchanged,
	    sizeof(*c->changed), compare_changed);

	for (; i < c->nchanged && c->changed[i].at.object == at->object &&
	     c->changed[i].at.off - at->off < at->len;
	     i++)
		c->changed[i].placed = true;
}

/* Elements. */

/* Runs of elements of a changed tensor. */
struct elements {
	const struct ofs_commit *c;
	const struct ofs_tensor *t;
	struct ofs_edit edit;
	struct optimfs_error *err;
};

/* Reads the new elements: the stored ones, unless all are staged, then the
 * staged ones over them. */
static int read_elements(struct elements *e, uint64_t first, uint64_t count,
    uint8_t *buf)
{
	uint64_t item = ofs_dtype_size(e->t->dtype);
	uint64_t off = first * item, end = (first + count) * item;
	const struct ofs_ranges *w = &e->edit.written;
	int ret = 0;

	if (!ofs_ranges_cover(w, off, end))
		ret = ofs_fetch_elements(e->c->reader, e->t, first, count, buf,
		    e->err);
	for (size_t i = ofs_ranges_find(w, off);
	     ret == 0 && i < w->n && w->v[i].off < end; i++) {
		uint64_t lo = w->v[i].off > off ? w->v[i].off : off;
		uint64_t hi = w->v[i].end < end ? w->v[i].end : end;

		ret = ofs_edit_read(&e->edit, buf + (lo - off), hi - lo, lo,
		    e->err);
	}
	return ret;
}

int ofs_commit_read(struct ofs_commit *c, const struct ofs_change *ch,
    const struct ofs_tensor *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	static const struct ofs_change none;
	struct elements e = { .c = c, .t = t, .err = err };
	struct ofs_range all;

	if (edit_of(ch == NULL ? &none : ch, t, &all, &e.edit, err) == -1)
		return -1;
	return read_elements(&e, first, count, buf);
}

/* Added tensors. */

uint64_t ofs_commit_bytes(const struct ofs_commit_task *t)
{
	uint64_t n = ofs_dtype_size(t->dtype);

	if (t->doc != NULL)
		return 0;
	for (unsigned d = 0; d < t->ndim; d++)
		n *= t->shape[d];
	return n;
}

int ofs_commit_complete(const struct ofs_commit *c,
    const struct ofs_commit_task *t, struct optimfs_error *err)
{
	uint64_t bytes = ofs_commit_bytes(t);

	if (t->text || ofs_commit_tensor(c, t->change) != NULL ||
	    ofs_ranges_cover(&t->change->written, 0, bytes))
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS301 %.200s: %" PRIu64 " of %" PRIu64 " bytes were written",
	    t->change->path, ofs_ranges_total(&t->change->written), bytes);
}

int ofs_commit_elements(const struct ofs_commit *c,
    const struct ofs_commit_task *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	struct ofs_tensor bare = { .dtype = t->dtype };
	struct ofs_range all = { 0, ofs_commit_bytes(t) };
	struct elements e = {
		.c = c,
		.t = ofs_commit_tensor(c, t->change),
		.edit = { .staged = t->change->staged,
		    .written = t->change->written },
		.err = err,
	};

	if (e.t == NULL)
		e.t = &bare;
	if (t->text) {
		e.edit.staged = (struct ofs_staged){ 0 };
		e.edit.written = (struct ofs_ranges){ .v = &all, .n = 1 };
		memcpy(e.edit.element, t->element, sizeof(t->element));
	}
	return read_elements(&e, first, count, buf);
}
