/* shared.c - tensors that share stored bytes must agree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/owners.h"
#include "catalog/shards.h"
#include "plan/fix.h"
#include "read/copies.h"
#include "rewrite/rewrite_impl.h"

/* A flat parameter has one step for all its parameters, and views share a storage:
 * writing one changes the others. The elements of one view may share their bytes, too,
 * as those of expand() and unfold() do. Of the bytes that will be stored, each tensor
 * that shares some must have its new elements: those written to it, or its old ones. A
 * computed tensor follows the tensor it is computed from; bytes written to it must
 * agree. */

#define STEP_MAX (8u << 20)
/* Runs at most this far apart are read together, up to so many bytes. */
#define CLOSE  4096
#define WINDOW (1u << 20)

struct sharer {
	uint32_t object, tensor;
	uint64_t off;
};

struct shared {
	struct ofs_commit *c;
	struct sharer *v;
	size_t n, cap;
	const struct ofs_change **change; /* by tensor; NULL: no change */
	bool *seen;
	struct optimfs_error *err;
};

OFS_COMPARE_BY3(by_place, struct sharer, object, off, tensor)

static bool is_changed(const struct ofs_commit *c, uint32_t object)
{
	size_t i = ofs_commit_changed(c, object);

	return i < c->nchanged && c->changed[i].at.object == object;
}

static int add_sharer(struct shared *s, const struct ofs_extent *at,
    uint32_t tensor)
{
	if (!is_changed(s->c, at->object))
		return 0;
	if (ofs_grow(s->v, s->n, s->cap, s->err) == -1)
		return -1;
	s->v[s->n++] = (struct sharer){ at->object, tensor, at->off };
	return 0;
}

static int collect(struct shared *s)
{
	const struct ofs_catalog *cat = s->c->cat;

	for (uint32_t i = 0; i < cat->ntensors; i++) {
		const struct ofs_tensor *t = &cat->tensors[i];

		/* a value has what is written to the tensor it shares, as has
		 * what is computed */
		if ((t->flags & OFS_TENSOR_INNER) != 0 ||
		    ofs_tensor_is_derived(cat, t))
			continue;
		for (uint32_t k = 0; k < t->nshards; k++) {
			const struct ofs_replica *r;
			uint32_t n;

			if (add_sharer(s, &cat->shards[t->shard + k].at, i) ==
			    -1)
				return -1;
			r = ofs_replicas(cat, t->shard + k, &n);
			for (uint32_t j = 0; j < n; j++)
				if (add_sharer(s, &r[j].at, i) == -1)
					return -1;
		}
	}
	if (s->n > 0)
		qsort(s->v, s->n, sizeof(*s->v), by_place);
	return 0;
}

static int mark_changed(struct shared *s)
{
	const struct ofs_commit *c = s->c;

	s->change = calloc((size_t)c->cat->ntensors + 1, sizeof(*s->change));
	s->seen = calloc((size_t)c->cat->ntensors + 1, sizeof(*s->seen));
	if (s->change == NULL || s->seen == NULL)
		return ofs_no_memory(s->err);
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		const struct ofs_tensor *t = ofs_commit_tensor(c, ch);

		if (t != NULL)
			s->change[t - c->cat->tensors] = ch;
	}
	return 0;
}

/* The path below the mount point of an entry, or of the first entry that is
 * this tensor. */
static void name_of(const struct ofs_commit *c, uint32_t entry, uint32_t tensor,
    char *name, size_t size)
{
	const struct ofs_tree *tree = c->job->tree;

	*name = '\0';
	for (uint32_t i = 0; i < tree->n; i++) {
		uint32_t e = tree->node[i].entry;

		if (e != OFS_NONE &&
		    (e == entry ||
			(entry == OFS_NONE &&
			    c->cat->entries[e].kind == OFS_ENTRY_TENSOR &&
			    c->cat->entries[e].ref == tensor))) {
			ofs_tree_path(tree, i, name, size);
			return;
		}
	}
}

/* Calls each for the runs of a segment, with the bytes that they will have, until
 * it returns something other than 1; returns that, or 1. Runs that are close are
 * read together. */
typedef int run_fn(void *ctx, uint64_t i, const uint8_t *bytes);

static int each_run(const struct shared *s, const struct ofs_segment *seg,
    run_fn *each, void *ctx)
{
	struct ofs_commit *c = s->c;
	struct ofs_extent at = { .object = seg->object,
		.codec = seg->codec,
		.off = seg->codec == OFS_PLAIN ? 0 : seg->ext_off,
		.len = seg->codec == OFS_PLAIN
		    ? c->cat->objects[seg->object].size
		    : seg->ext_len };
	bool close = seg->n > 1 && seg->src_pitch >= (int64_t)seg->len &&
	    seg->src_pitch <= CLOSE;
	uint64_t pitch = close ? (uint64_t)seg->src_pitch : 0, n;
	uint64_t step = close ? 1 + WINDOW / pitch : 1;
	uint8_t *buf = malloc((step - 1) * pitch + seg->len);
	int ret = 1;

	if (buf == NULL)
		return ofs_no_memory(s->err);
	for (uint64_t i = 0; i < seg->n && ret == 1; i += n) {
		n = seg->n - i < step ? seg->n - i : step;
		if (ofs_patches_read(&c->patches, &at,
			seg->src + (uint64_t)((int64_t)i * seg->src_pitch),
			(n - 1) * pitch + seg->len, buf, s->err) == -1)
			ret = -1;
		for (uint64_t k = 0; k < n && ret == 1; k++)
			ret = each(ctx, i + k, buf + k * pitch);
	}
	free(buf);
	return ret;
}

/* Has no byte of a segment changed? */
static bool is_untouched(const struct shared *s, const struct ofs_segment *seg)
{
	int64_t reach = (int64_t)(seg->n - 1) * seg->src_pitch;
	uint64_t lo = seg->src + (uint64_t)(reach < 0 ? reach : 0);
	uint64_t hi = seg->src + (uint64_t)(reach < 0 ? 0 : reach) + seg->len;

	return seg->codec == OFS_PLAIN &&
	    !ofs_ranges_meet(ofs_patches_touched(&s->c->patches, seg->object),
		lo, hi);
}

/* A segment and the new elements of its tensor. */
struct wanted {
	const struct ofs_segment *seg;
	const uint8_t *want;
	uint8_t *stored;
};

static int compare_one(void *ctx, uint64_t i, const uint8_t *bytes)
{
	const struct wanted *w = ctx;

	return memcmp(bytes,
		   w->want + (int64_t)w->seg->dst +
		       (int64_t)i * w->seg->dst_pitch,
		   w->seg->len) == 0;
}

/* Compares the bytes that a tensor will have with its new elements. 1: equal; 0:
 * not. */
static int compare_segment(const struct shared *s,
    const struct ofs_segment *seg, const uint8_t *want)
{
	struct wanted w = { .seg = seg, .want = want };

	return is_untouched(s, seg) ? 1 : each_run(s, seg, compare_one, &w);
}

static int keep_one(void *ctx, uint64_t i, const uint8_t *bytes)
{
	const struct wanted *w = ctx;

	memcpy(w->stored + (int64_t)i * w->seg->dst_pitch, bytes, w->seg->len);
	return 1;
}

/* As above, for a tensor computed by rounding the stored one. */
static int compare_rounded(const struct shared *s,
    const struct ofs_segment *seg, const uint8_t *want, uint64_t size)
{
	struct ofs_segment wide;
	uint64_t n = ofs_fix_widen(seg, 0, &wide);
	uint8_t *stored = malloc(n + 1), *got = malloc(size + 1);
	struct wanted w = { .seg = &wide, .stored = stored };
	int ret = stored == NULL || got == NULL
	    ? ofs_no_memory(s->err)
	    : each_run(s, &wide, keep_one, &w);

	if (ret == 1)
		ofs_fix_round(seg, stored, got);
	for (uint64_t i = 0; i < seg->n && ret == 1; i++) {
		int64_t at = (int64_t)seg->dst + (int64_t)i * seg->dst_pitch;

		ret = memcmp(got + at, want + at, seg->len) == 0;
	}
	free(stored);
	free(got);
	return ret;
}

static int compare_run(struct shared *s, uint32_t tensor, uint64_t first,
    uint64_t count, uint8_t *buf)
{
	struct ofs_commit *c = s->c;
	const struct ofs_tensor *t = &c->cat->tensors[tensor];
	struct ofs_plan plan = { 0 };
	int ret =
	    ofs_commit_read(c, s->change[tensor], t, first, count, buf, s->err);

	if (ret == 0)
		ret =
		    ofs_plan_copies(c->reader, t, first, count, &plan, s->err);
	ret = ret == 0 ? 1 : -1;
	for (size_t i = 0; i < plan.n && ret == 1; i++)
		if (plan.seg[i].fix == OFS_FIX_NONE)
			ret = compare_segment(s, &plan.seg[i], buf);
		else if ((plan.seg[i].fix & OFS_FIX_ROUND) != 0 &&
		    s->change[tensor] != NULL)
			ret = compare_rounded(s, &plan.seg[i], buf,
			    count * ofs_dtype_size(t->dtype));
	ofs_plan_fini(&plan);
	return ret;
}

static int differ(const struct shared *s, uint32_t tensor, uint32_t other)
{
	const struct ofs_catalog *cat = s->c->cat;
	char a[200], b[200];

	if (s->change[tensor] != NULL &&
	    ofs_tensor_rounded(cat, &cat->tensors[tensor]))
		return optimfs_fail(s->err, EINVAL,
		    "OFS822 %s is not stored: it is rounded from fp32, and would differ from what was written: write to fp32",
		    s->change[tensor]->path);
	name_of(s->c, OFS_NONE, tensor, a, sizeof(a));
	if (tensor == other)
		return optimfs_fail(s->err, EINVAL,
		    "OFS828 elements of %s share stored bytes, but would "
		    "differ: write the same to all of them",
		    a);
	name_of(s->c, OFS_NONE, other, b, sizeof(b));
	return optimfs_fail(s->err, EINVAL,
	    "OFS828 %s and %s share stored bytes, but would differ: write the "
	    "same to both",
	    a, b);
}

static int check_tensor(struct shared *s, uint32_t tensor, uint32_t other)
{
	const struct ofs_tensor *t = &s->c->cat->tensors[tensor];
	uint64_t n = ofs_tensor_numel(s->c->cat, t);
	uint64_t step = STEP_MAX / ofs_dtype_size(t->dtype);
	uint8_t *buf;
	int ret = 1;

	if (s->seen[tensor] || t->error != OFS_NONE)
		return 0;
	s->seen[tensor] = true;
	buf = malloc((n < step ? n : step) * ofs_dtype_size(t->dtype) + 1);
	if (buf == NULL)
		return ofs_no_memory(s->err);
	for (uint64_t at = 0; at < n && ret == 1; at += step)
		ret = compare_run(s, tensor, at, n - at < step ? n - at : step,
		    buf);
	free(buf);
	return ret == 0 ? differ(s, tensor, other) : ret == -1 ? -1 : 0;
}

/* Can two elements of a view with this box have one place? In the order of
 * strides, each must be larger than the reach of all smaller ones. */
static bool view_overlaps(const uint64_t *stride, const uint64_t *size,
    unsigned int ndim)
{
	uint64_t done = 0, reach = 0;

	for (unsigned int n = 0; n < ndim; n++) {
		unsigned int best = ndim;

		for (unsigned int i = 0; i < ndim; i++)
			if ((done >> i & 1) == 0 && size[i] > 1 &&
			    (best == ndim || stride[i] < stride[best]))
				best = i;
		if (best == ndim)
			return false;
		if (stride[best] <= reach)
			return true;
		done |= (uint64_t)1 << best;
		reach += (size[best] - 1) * stride[best];
	}
	return false;
}

static bool overlaps_itself(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t at[OFS_MAX_DIMS], size[OFS_MAX_DIMS];

	for (uint32_t k = 0; k < t->nshards; k++) {
		const struct ofs_shard *s = &cat->shards[t->shard + k];
		const struct ofs_view *v = ofs_shard_view(cat, s);

		if (v == NULL)
			continue;
		ofs_shard_box(cat, t, s, at, size);
		if (view_overlaps(cat->dims + v->stride, size, t->grid_ndim))
			return true;
	}
	return false;
}

/* Checks the tensors i to n of v, which share an extent. */
static int check_place(struct shared *s, size_t i, size_t n)
{
	const struct ofs_catalog *cat = s->c->cat;
	uint32_t changed = OFS_NONE;

	for (size_t k = i; k < n; k++)
		if (s->change[s->v[k].tensor] != NULL)
			changed = s->v[k].tensor;
	if (changed == OFS_NONE ||
	    (s->v[i].tensor == s->v[n - 1].tensor &&
		!ofs_tensor_rounded(cat, &cat->tensors[changed]) &&
		!overlaps_itself(cat, &cat->tensors[changed])))
		return 0;
	for (size_t k = i; k < n; k++) {
		uint32_t tensor = s->v[k].tensor;
		uint32_t other = tensor != changed ? changed
		    : s->v[i].tensor != changed    ? s->v[i].tensor
						   : s->v[n - 1].tensor;

		if (check_tensor(s, tensor, other) == -1)
			return -1;
	}
	return 0;
}

int ofs_commit_shared(struct ofs_commit *c, struct optimfs_error *err)
{
	struct shared s = { .c = c, .err = err };
	int ret = 0;

	if (c->nchanged == 0)
		return 0;
	if (mark_changed(&s) == -1 || collect(&s) == -1)
		ret = -1;
	for (size_t i = 0, n; i < s.n && ret == 0; i = n) {
		for (n = i + 1; n < s.n && s.v[n].object == s.v[i].object &&
		     s.v[n].off == s.v[i].off;)
			n++;
		ret = check_place(&s, i, n);
	}
	free(s.v);
	free(s.change);
	free(s.seen);
	return ret;
}

/* Names. */

static const struct ofs_change **changes_of(const struct ofs_commit *c,
    struct optimfs_error *err)
{
	const struct ofs_change **v =
	    calloc((size_t)c->cat->nentries + 1, sizeof(*v));

	if (v == NULL)
		ofs_no_memory(err);
	for (size_t i = 0; v != NULL && i < c->changes->n; i++)
		if (c->changes->v[i].entry != OFS_NONE)
			v[c->changes->v[i].entry] = &c->changes->v[i];
	return v;
}

/* Do two changes of one tensor give it the same elements? */
static int same_bytes(struct ofs_commit *c, const struct ofs_tensor *t,
    const struct ofs_change *a, const struct ofs_change *b,
    struct optimfs_error *err)
{
	uint64_t size = ofs_dtype_size(t->dtype), step = STEP_MAX / size;
	uint64_t n = ofs_tensor_numel(c->cat, t);
	uint8_t *buf = malloc(2 * (n < step ? n : step) * size + 1);
	int ret = 1;

	if (buf == NULL)
		return ofs_no_memory(err);
	for (uint64_t at = 0; at < n && ret == 1; at += step) {
		uint64_t k = n - at < step ? n - at : step;

		if (ofs_commit_read(c, a, t, at, k, buf, err) == -1 ||
		    ofs_commit_read(c, b, t, at, k, buf + k * size, err) == -1)
			ret = -1;
		else
			ret = memcmp(buf, buf + k * size, k * size) == 0;
	}
	free(buf);
	return ret;
}

static int same_change(struct ofs_commit *c, const struct ofs_entry *e,
    const struct ofs_change *a, const struct ofs_change *b,
    struct optimfs_error *err)
{
	if (a->kind == OFS_CHANGE_REMOVE || b->kind == OFS_CHANGE_REMOVE)
		return 1;
	if (a->text != NULL && b->text != NULL)
		return a->ntext == b->ntext &&
		    memcmp(a->text, b->text, a->ntext) == 0;
	if (e->kind != OFS_ENTRY_TENSOR)
		return a->text == b->text;
	/* usually one file with two names */
	if (a->staged.ctx != NULL && a->staged.ctx == b->staged.ctx)
		return 1;
	return same_bytes(c, &c->cat->tensors[e->ref], a, b, err);
}

/* Checks entry i, whose value was changed through another name. */
static int check_name(struct ofs_commit *c, uint32_t i,
    const struct ofs_change *by, const struct ofs_change *own,
    struct optimfs_error *err)
{
	int same =
	    own == NULL ? 0 : same_change(c, &c->cat->entries[i], by, own, err);
	char name[200];

	if (same != 0)
		return same == 1 ? 0 : -1;
	name_of(c, i, OFS_NONE, name, sizeof(name));
	return optimfs_fail(err, EINVAL,
	    "OFS828 %.200s and %s are stored once, but would differ: write the "
	    "same to both",
	    by->path, name);
}

int ofs_commit_names(struct ofs_commit *c, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = c->cat;
	const struct ofs_change **own, **tensor, **value;
	int ret = 0;

	if (c->changes->n == 0)
		return 0;
	own = changes_of(c, err);
	tensor = calloc((size_t)cat->ntensors + 1, sizeof(*tensor));
	value = calloc((size_t)cat->nvalues + 1, sizeof(*value));
	if (own == NULL || tensor == NULL || value == NULL)
		ret = ofs_no_memory(err);
	for (uint32_t i = 0; i < cat->nentries && ret == 0; i++) {
		const struct ofs_entry *e = &cat->entries[i];

		if (own[i] == NULL || own[i]->kind == OFS_CHANGE_REMOVE)
			continue;
		if (e->kind == OFS_ENTRY_TENSOR)
			tensor[e->ref] = own[i];
		else if (e->kind == OFS_ENTRY_VALUE)
			value[e->ref] = own[i];
	}
	for (uint32_t i = 0; i < cat->nentries && ret == 0; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		const struct ofs_change *by = e->kind == OFS_ENTRY_TENSOR
		    ? tensor[e->ref]
		    : e->kind == OFS_ENTRY_VALUE ? value[e->ref]
						 : NULL;

		if (by != NULL && by != own[i] && e->tree != OFS_NONE)
			ret = check_name(c, i, by, own[i], err);
	}
	free(own);
	free(tensor);
	free(value);
	return ret;
}
