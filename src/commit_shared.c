/* commit_shared.c - what several tensors have in one place agrees */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commit_impl.h"
#include "dtype.h"
#include "scatter.h"

/* A flat parameter has one step for all its parameters, and views share a
 * storage: writing one writes the others. Once all is written, each tensor that
 * has stored bytes in common with others must be what it is to be: what was
 * written to it, or what it was. */

#define STEP_MAX (8u << 20)

struct sharer {
	uint32_t object, tensor;
	uint64_t off;
};

struct shared {
	struct ofs_commit *c;
	struct sharer *v;
	size_t n, cap;
	const struct ofs_change **change; /* of each tensor; NULL: none */
	bool *seen;
	struct optimfs_error *err;
};

static int by_place(const void *a, const void *b)
{
	const struct sharer *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static bool is_moved(const struct ofs_commit *c, uint32_t object)
{
	size_t i = ofs_commit_moved(c, object);

	return i < c->nmoved && c->moved[i].object == object;
}

/* Items of DCP are one tensor's each. */
static int add(struct shared *s, const struct ofs_extent *at, uint32_t tensor)
{
	if (at->encoding == OFS_TORCH_ITEM || at->codec != OFS_PLAIN ||
	    !is_moved(s->c, at->object))
		return 0;
	if (ofs_commit_grow(&s->v, &s->cap, s->n, sizeof(*s->v), s->err) == -1)
		return -1;
	s->v[s->n++] = (struct sharer){ at->object, tensor, at->off };
	return 0;
}

static int collect(struct shared *s)
{
	const struct ofs_catalog *cat = s->c->cat;

	for (uint32_t i = 0; i < cat->ntensors; i++) {
		const struct ofs_tensor *t = &cat->tensors[i];

		for (uint32_t k = 0; k < t->nshards; k++) {
			const struct ofs_replica *r;
			uint32_t n;

			if (add(s, &cat->shards[t->shard + k].at, i) == -1)
				return -1;
			r = ofs_replicas(cat, t->shard + k, &n);
			for (uint32_t j = 0; j < n; j++)
				if (add(s, &r[j].at, i) == -1)
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
		return optimfs_fail(s->err, ENOMEM, "tensors of a commit");
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];
		const struct ofs_tensor *t = ofs_commit_tensor(c, ch);

		if (t != NULL)
			s->change[t - c->cat->tensors] = ch;
	}
	return 0;
}

/* A tensor's path below the mount point. */
static void name_of(const struct shared *s, uint32_t tensor, char *name,
    size_t size)
{
	const struct optimfs *fs = s->c->fs;

	*name = '\0';
	for (uint32_t i = 0; i < fs->tree.n; i++) {
		uint32_t e = fs->tree.node[i].entry;

		if (e != OFS_NONE &&
		    fs->cat->entries[e].kind == OFS_ENTRY_TENSOR &&
		    fs->cat->entries[e].ref == tensor) {
			ofs_tree_path(&fs->tree, i, name, size);
			return;
		}
	}
}

/* What stands where the tensor is stored, against what it is to be. 1: it is
 * that, 0: not. */
static int compare_segment(const struct shared *s,
    const struct ofs_segment *seg, const uint8_t *want)
{
	struct ofs_commit *c = s->c;
	uint8_t *got = malloc(seg->len);
	int64_t delta;
	int fd, ret = 1;

	if (got == NULL)
		return optimfs_fail(s->err, ENOMEM, "commit buffer");
	if (!ofs_commit_where(c, seg, &fd, &delta)) {
		free(got);
		return 1; /* it is not written */
	}
	for (uint64_t i = 0; i < seg->n && ret == 1; i++) {
		uint64_t at =
		    seg->src + (uint64_t)((int64_t)i * seg->src_pitch + delta);

		if (ofs_pread_all(fd, got, seg->len, at, s->err) == -1)
			ret = -1;
		else
			ret = memcmp(got,
				  want + seg->dst + (int64_t)i * seg->dst_pitch,
				  seg->len) == 0;
	}
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
		ret = ofs_scatter_plan(c->cat, c->fs->locator, t, first, count,
		    &plan, s->err);
	ret = ret == 0 ? 1 : -1;
	for (size_t i = 0; i < plan.n && ret == 1; i++)
		if (plan.seg[i].fix == OFS_FIX_NONE)
			ret = compare_segment(s, &plan.seg[i], buf);
	ofs_plan_fini(&plan);
	return ret;
}

static int differ(const struct shared *s, uint32_t tensor, uint32_t other)
{
	char a[200], b[200];

	name_of(s, tensor, a, sizeof(a));
	name_of(s, other, b, sizeof(b));
	return optimfs_fail(s->err, EINVAL,
	    "OFS828 %s and %s have stored bytes in common, and would not agree: "
	    "write the same to both",
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
		return optimfs_fail(s->err, ENOMEM, "commit buffer");
	for (uint64_t at = 0; at < n && ret == 1; at += step)
		ret = compare_run(s, tensor, at, n - at < step ? n - at : step,
		    buf);
	free(buf);
	return ret == 0 ? differ(s, tensor, other) : ret == -1 ? -1 : 0;
}

/* Tensors i to n of v have bytes in one extent. */
static int check_place(struct shared *s, size_t i, size_t n)
{
	uint32_t changed = OFS_NONE;

	for (size_t k = i; k < n; k++)
		if (s->change[s->v[k].tensor] != NULL)
			changed = s->v[k].tensor;
	if (changed == OFS_NONE || s->v[i].tensor == s->v[n - 1].tensor)
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

	if (c->nmoved == 0)
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
