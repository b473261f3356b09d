/* data.c - copy staged bytes of tensors to new files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/zip_fix.h"
#include "base/checked.h"
#include "base/copy.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/owners.h"
#include "read/fetch.h"
#include "read/scatter.h"
#include "rewrite/rewrite_impl.h"
#include "text/parse.h"

#define STEP_MAX (8u << 20)

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

/* Calls each for runs of replaced elements. A changed text has one element. */
struct elements {
	struct ofs_commit *c;
	const struct ofs_change *ch;
	const struct ofs_tensor *t;
	uint8_t element[16];
	bool text;
	struct optimfs_error *err;
};
typedef int elements_fn(struct elements *e, uint64_t first, uint64_t count);

static int each_run(struct elements *e, elements_fn *each)
{
	uint64_t item = ofs_dtype_size(e->t->dtype);

	if (e->text)
		return each(e, 0, 1);
	for (size_t i = 0; i < e->ch->written.n; i++) {
		const struct ofs_range *r = &e->ch->written.v[i];
		uint64_t first = r->off / item;
		uint64_t end = (r->end + item - 1) / item;

		if (end > first && each(e, first, end - first) == -1)
			return -1;
	}
	return 0;
}

static int each_change(struct ofs_commit *c, elements_fn *each,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		struct elements e = { .c = c, .ch = ch, .err = err };

		e.t = ofs_commit_tensor(c, ch);
		if (e.t == NULL)
			continue;
		e.text = ch->text != NULL && e.t->ndim == 0;
		if (e.text &&
		    ofs_value_element(e.t->dtype, ch->text, ch->ntext,
			e.element, err) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
		if (each_run(&e, each) == -1)
			return optimfs_fail_in(err, "%.200s", ch->path);
	}
	return 0;
}

/* Extents. */

OFS_COMPARE_BY2(compare_moved, struct ofs_moved, object, off)

static int want(struct ofs_commit *c, const struct ofs_extent *at,
    struct optimfs_error *err)
{
	if (ofs_grow(c->moved, c->nmoved, c->moved_cap, err) == -1)
		return -1;
	c->moved[c->nmoved++] = (struct ofs_moved){ at->object, at->codec,
		at->encoding, at->off, at->len, -1, 0, false };
	return 0;
}

static int want_shard(void *ctx, uint32_t s)
{
	struct elements *e = ctx;
	const struct ofs_replica *r;
	uint32_t n;

	if (want(e->c, &e->c->cat->shards[s].at, e->err) == -1)
		return -1;
	r = ofs_replicas(e->c->cat, s, &n);
	for (uint32_t i = 0; i < n; i++)
		if (want(e->c, &r[i].at, e->err) == -1)
			return -1;
	return 0;
}

static int want_elements(struct elements *e, uint64_t first, uint64_t count)
{
	if (e->t->error != OFS_NONE)
		return ofs_catalog_fail(e->c->cat, e->t->error, e->err);
	return ofs_plan_shards(e->c->cat, e->t, first, count, want_shard, e);
}

static int add_patch(struct ofs_commit *c, const struct ofs_change *ch,
    struct optimfs_error *err)
{
	const struct ofs_tensor *t = ofs_commit_tensor(c, ch);
	struct ofs_edit edit = { .fd = ch->fd, .written = ch->written };
	struct ofs_range all = { 0 };

	if (t == NULL)
		return 0;
	edit.tensor = (uint32_t)(t - c->cat->tensors);
	if (ch->text != NULL && t->ndim == 0) {
		all.end = ofs_dtype_size(t->dtype);
		edit.fd = -1;
		edit.written = (struct ofs_ranges){ .v = &all, .n = 1 };
		if (ofs_value_element(t->dtype, ch->text, ch->ntext,
			edit.element, err) == -1)
			return -1;
	}
	return edit.written.n == 0
	    ? 0
	    : ofs_patches_add(&c->patches, c->reader, &edit, err);
}

/* What is staged over stored bytes. */
static int add_patches(struct ofs_commit *c, struct optimfs_error *err)
{
	c->patches.reader = c->reader;
	for (size_t i = 0; i < c->changes->n; i++)
		if (add_patch(c, &c->changes->v[i], err) == -1)
			return optimfs_fail_in(err, "%.200s",
			    c->changes->v[i].path);
	ofs_patches_seal(&c->patches);
	return 0;
}

int ofs_commit_extents(struct ofs_commit *c, struct optimfs_error *err)
{
	size_t n = 0;

	if (each_change(c, want_elements, err) == -1 ||
	    add_patches(c, err) == -1)
		return -1;
	if (c->nmoved > 0)
		qsort(c->moved, c->nmoved, sizeof(*c->moved), compare_moved);
	for (size_t i = 0; i < c->nmoved; i++)
		if (n == 0 ||
		    compare_moved(&c->moved[n - 1], &c->moved[i]) != 0)
			c->moved[n++] = c->moved[i];
	c->nmoved = n;
	return 0;
}

size_t ofs_commit_moved(const struct ofs_commit *c, uint32_t object)
{
	struct ofs_moved key = { .object = object };

	return ofs_lower_bound(&key, c->moved, c->nmoved, sizeof(*c->moved),
	    compare_moved);
}

/* Files. */

/* Copies a file of another rank to out. */
static int bring(const struct ofs_commit *c, const struct ofs_object *o,
    int out, struct optimfs_error *err)
{
	struct ofs_input in;
	uint8_t *buf;
	uint64_t n;
	int ret = 0;

	if (ofs_dir_open_input(&c->cat->dir, o->path, &in, NULL, err) == -1)
		return -1;
	buf = malloc(STEP_MAX);
	if (buf == NULL)
		ret = ofs_no_memory(err);
	for (uint64_t off = 0; off < o->size && ret == 0; off += n) {
		n = o->size - off < STEP_MAX ? o->size - off : STEP_MAX;
		ret = ofs_commit_go_on(c, err);
		if (ret == 0)
			ret = ofs_input_read(&in, buf, n, off, err);
		if (ret == 0)
			ret = ofs_write_all(out, buf, n, off, err);
	}
	free(buf);
	ofs_input_close(&in);
	return ret;
}

bool ofs_commit_is_elsewhere(const struct ofs_commit *c, uint32_t object)
{
	uint32_t file;

	return ofs_dir_elsewhere(&c->cat->dir, c->cat->objects[object].path,
	    &file);
}

static int open_copy(const struct ofs_commit *c, const struct ofs_object *o,
    int *fd, struct optimfs_error *err)
{
	*fd = ofs_stage_temp(ofs_overlay_stage(c->job->overlay), err);
	if (*fd == -1)
		return -1;
	if (bring(c, o, *fd, err) == 0)
		return 0;
	close(*fd);
	return optimfs_fail_in(err, "%.200s", o->path);
}

int ofs_commit_open(const struct ofs_commit *c, uint32_t object, int *fd,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &c->cat->objects[object];
	struct stat st;

	if (ofs_commit_is_elsewhere(c, object))
		return open_copy(c, o, fd, err);
	*fd = ofs_dir_open_file(&c->cat->dir, o->path, &st, err);
	if (*fd == -1)
		return -1;
	if ((uint64_t)st.st_size == o->size && st.st_ino == o->ino &&
	    ofs_time_ns(&st.st_mtim) == o->mtime_ns)
		return 0;
	close(*fd);
	return optimfs_fail(err, ESTALE,
	    "OFS805 %.200s changed since the checkpoint was mounted", o->path);
}

int ofs_commit_decode(const struct ofs_commit *c, const struct ofs_extent *at,
    uint64_t from, uint64_t n, int fd, uint64_t to, struct optimfs_error *err)
{
	uint64_t step = n < STEP_MAX ? n : STEP_MAX, k;
	uint8_t *buf = malloc(step + 1);
	int ret = buf == NULL ? ofs_no_memory(err) : 0;

	for (uint64_t done = 0; done < n && ret == 0; done += k) {
		k = n - done < step ? n - done : step;
		ret = ofs_transport_read(c->reader->transport, at, from + done,
		    k, buf, err);
		if (ret == 0)
			ret = ofs_write_all(fd, buf, k, to + done, err);
	}
	free(buf);
	return ret;
}

int ofs_commit_fix_sums(struct ofs_commit *c, int fd, uint64_t off,
    uint64_t len, bool sums, struct optimfs_error *err)
{
	if (ofs_grow(c->fix, c->nfixes, c->fix_cap, err) == -1)
		return -1;
	c->fix[c->nfixes++] = (struct ofs_archive_fix){ fd, off, len, sums };
	return 0;
}

static struct ofs_touched *touched_of(const struct ofs_commit *c, int fd)
{
	for (size_t i = c->ntouched; i-- > 0;)
		if (c->touched[i].fd == fd)
			return &c->touched[i];
	return NULL;
}

static int touch(struct ofs_commit *c, int fd, uint64_t off, uint64_t end,
    struct optimfs_error *err)
{
	struct ofs_touched *t = touched_of(c, fd);

	if (t == NULL) {
		if (ofs_grow(c->touched, c->ntouched, c->touched_cap, err) ==
		    -1)
			return -1;
		t = &c->touched[c->ntouched++];
		*t = (struct ofs_touched){ .fd = fd };
	}
	return ofs_ranges_add(&t->ranges, off, end, err);
}

int ofs_commit_sums(struct ofs_commit *c, struct optimfs_error *err)
{
	static const struct ofs_ranges none;

	for (size_t i = 0; i < c->nfixes; i++) {
		const struct ofs_archive_fix *m = &c->fix[i];
		const struct ofs_touched *t = touched_of(c, m->fd);

		if (ofs_zip_fix(m->fd, m->off, m->len,
			t == NULL ? &none : &t->ranges, m->sums, err) == -1)
			return -1;
	}
	return 0;
}

/* Writing. */

/* The extent that contains a segment. */
static struct ofs_moved *find_moved(struct ofs_commit *c,
    const struct ofs_segment *seg)
{
	bool coded = seg->codec != OFS_PLAIN;
	struct ofs_moved key = { .object = seg->object,
		.off = coded ? seg->ext_off : seg->src };
	size_t behind = ofs_upper_bound(&key, c->moved, c->nmoved,
	    sizeof(*c->moved), compare_moved);
	struct ofs_moved *m = behind == 0 ? NULL : &c->moved[behind - 1];

	if (m == NULL || m->object != seg->object)
		return NULL;
	/* an item after it has its own place, or none */
	if ((coded || m->encoding == OFS_TORCH_ITEM) &&
	    key.off - m->off >= m->len)
		return NULL;
	return m;
}

static int place_segment(void *ctx, const struct ofs_segment *seg, int *fd,
    int64_t *delta, struct optimfs_error *err)
{
	struct ofs_commit *c = ctx;
	const struct ofs_moved *m = find_moved(c, seg);
	uint64_t lo = seg->src, hi = seg->src;
	int64_t reach = (int64_t)(seg->n - 1) * seg->src_pitch;

	if (m != NULL && m->whole)
		return 1;
	if (m == NULL || m->fd == -1)
		return optimfs_fail(err, EUCLEAN,
		    "OFS829 %.200s at %" PRIu64 " was not prepared",
		    c->cat->objects[seg->object].path, seg->src);
	*fd = m->fd;
	*delta =
	    (int64_t)m->to - (seg->codec != OFS_PLAIN ? 0 : (int64_t)m->off);
	if (reach < 0)
		lo -= (uint64_t)-reach;
	else
		hi += (uint64_t)reach;
	return touch(c, *fd, lo + (uint64_t)*delta,
	    hi + seg->len + (uint64_t)*delta, err);
}

/* Reads the new elements: the stored ones, unless all are staged, then the
 * staged ones over them. */
static int read_elements(struct elements *e, uint64_t first, uint64_t count,
    uint8_t *buf)
{
	uint64_t item = ofs_dtype_size(e->t->dtype);
	uint64_t off = first * item, end = (first + count) * item;
	const struct ofs_ranges *w = &e->ch->written;
	int ret = 0;

	if (e->text) {
		memcpy(buf, e->element, item);
		return 0;
	}
	if (!ofs_ranges_cover(w, off, end))
		ret = ofs_fetch_elements(e->c->reader, e->t, first, count, buf,
		    e->err);
	for (size_t i = ofs_ranges_find(w, off);
	     ret == 0 && i < w->n && w->v[i].off < end; i++) {
		uint64_t lo = w->v[i].off > off ? w->v[i].off : off;
		uint64_t hi = w->v[i].end < end ? w->v[i].end : end;

		ret = ofs_pread_all(e->ch->fd, buf + (lo - off), hi - lo, lo,
		    e->err);
	}
	return ret;
}

int ofs_commit_read(struct ofs_commit *c, const struct ofs_change *ch,
    const struct ofs_tensor *t, uint64_t first, uint64_t count, void *buf,
    struct optimfs_error *err)
{
	static const struct ofs_change none;
	struct elements e = {
		.c = c, .ch = ch == NULL ? &none : ch, .t = t, .err = err
	};

	e.text = ch != NULL && ch->text != NULL && t->ndim == 0;
	if (e.text &&
	    ofs_value_element(t->dtype, ch->text, ch->ntext, e.element, err) ==
		-1)
		return -1;
	return read_elements(&e, first, count, buf);
}

static int scatter_elements(struct elements *e, uint64_t first, uint64_t count)
{
	struct ofs_target to = { .at = place_segment, .ctx = e->c };
	uint64_t item = ofs_dtype_size(e->t->dtype), step = STEP_MAX / item;
	uint8_t *buf = malloc((count < step ? count : step) * item + 1);
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(e->err);
	if (ofs_tensor_rounded(e->c->cat, e->t))
		count = 0; /* shared.c checks it */
	while (count > 0 && ret == 0) {
		uint64_t n = count < step ? count : step;

		ret = ofs_commit_go_on(e->c, e->err);
		if (ret == 0)
			ret = read_elements(e, first, n, buf);
		if (ret == 0)
			ret = ofs_scatter(e->c->reader, e->t, first, n, buf,
			    &to, e->err);
		ofs_commit_did(e->c, n * item);
		first += n;
		count -= n;
	}
	free(buf);
	return ret;
}

int ofs_commit_scatter(struct ofs_commit *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->nmoved; i++)
		if (!c->moved[i].whole)
			return each_change(c, scatter_elements, err);
	return 0; /* the engine has written all of them */
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

int ofs_commit_elements(struct ofs_commit *c, const struct ofs_commit_task *t,
    int fd, uint64_t off, struct optimfs_error *err)
{
	struct elements e = {
		.c = c, .ch = t->change, .text = t->text, .err = err
	};
	uint64_t bytes = ofs_commit_bytes(t), item = ofs_dtype_size(t->dtype);
	struct ofs_tensor bare = { .dtype = t->dtype };
	uint64_t step = STEP_MAX / item * item, at = 0;
	uint8_t *buf = malloc(step);
	int ret = 0;

	if (buf == NULL)
		return ofs_no_memory(err);
	e.t = ofs_commit_tensor(c, t->change);
	if (e.t == NULL) {
		e.t = &bare;
		if (!t->text &&
		    !ofs_ranges_cover(&t->change->written, 0, bytes))
			ret = optimfs_fail(err, EINVAL,
			    "OFS301 %.200s: %" PRIu64 " of %" PRIu64
			    " bytes were written",
			    t->change->path,
			    ofs_ranges_total(&t->change->written), bytes);
	}
	memcpy(e.element, t->element, sizeof(e.element));
	while (at < bytes && ret == 0) {
		uint64_t n = bytes - at < step ? bytes - at : step;

		ret = read_elements(&e, at / item, n / item, buf);
		if (ret == 0)
			ret = ofs_write_all(fd, buf, n, off + at, err);
		ofs_commit_did(c, n);
		at += n;
	}
	free(buf);
	if (ret == 0)
		ret = touch(c, fd, off, off + bytes, err);
	return ret;
}
