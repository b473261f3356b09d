/* writethrough_coupled.c - texts that share one stored value must agree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "overlay/overlay_impl.h"
#include "plan/cast.h"
#include "push/writethrough.h"
#include "read/scatter.h"

/* All parameters in a flat parameter share its step: one stored element with
 * many names. Or several names are one tensor, and each name has the text it
 * was given. */

struct where {
	uint32_t object, index;
	uint64_t at;
	const struct ofs_blob *text;
	enum ofs_dtype rounded; /* dtype that the stored value is rounded to */
};

struct places {
	struct ofs_overlay *o;
	struct where *v;
	size_t n, cap;
};

static int add(struct places *p, const struct where *w,
    struct optimfs_error *err)
{
	if (ofs_grow(p->v, p->n, p->cap, err) == -1)
		return -1;
	p->v[p->n++] = *w;
	return 0;
}

static int add_places(void *ctx, uint32_t index, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct places *p = ctx;
	struct ofs_snapshot *snap = ofs_writethrough_snapshot(p->o);
	const struct ofs_overlay_node *v = ofs_overlay_node(p->o, index);
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, index);
	struct ofs_plan plan = { 0 };
	int ret;

	if (t == NULL)
		return 0;
	ret = ofs_scatter_plan(&snap->reader, t, 0, 1, &plan, err);
	for (size_t i = 0; i < plan.n && ret == 0; i++) {
		struct where w = { plan.seg[i].object, index, plan.seg[i].src,
			v->accepted == NULL ? f->accepted : v->accepted,
			OFS_DTYPE_NONE };

		if ((plan.seg[i].fix & OFS_FIX_ROUND) != 0)
			w.rounded = t->dtype;
		ret = add(p, &w, err);
	}
	ofs_plan_fini(&plan);
	return ret;
}

OFS_COMPARE_BY3(by_place, struct where, object, at, index)

static int words(const struct ofs_blob *b)
{
	const uint8_t *end = memchr(b->bytes, '\n', b->len);

	return (int)(end == NULL ? b->len : (size_t)(end - b->bytes));
}

/* Is the text of w the stored number, rounded? The texts were parsed when they
 * were written. */
static int compare_rounded(const struct places *p, const struct where *w,
    const struct where *stored, struct optimfs_error *err)
{
	uint8_t wide[16], is[16], given[16];
	char path[100], text[80];
	size_t size = ofs_dtype_size(w->rounded);

	ofs_tree_path(p->o->tree, w->index, path, sizeof(path));
	if (stored == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS828 %.100s is %.*s, but the layout stores the "
		    "optimizer's copy, and that was not written",
		    path, words(w->text), (const char *)w->text->bytes);
	if (ofs_dtype_parse(OFS_FLOAT32, (const char *)stored->text->bytes,
		(size_t)words(stored->text), wide) != 0 ||
	    ofs_dtype_parse(w->rounded, (const char *)w->text->bytes,
		(size_t)words(w->text), given) != 0)
		return optimfs_fail(err, EINVAL, "OFS806 %.100s: no number",
		    path);
	ofs_cast(OFS_FLOAT32, wide, w->rounded, is, 1);
	if (memcmp(is, given, size) == 0)
		return 0;
	text[ofs_dtype_print(w->rounded, is, text)] = '\0';
	return optimfs_fail(err, EINVAL,
	    "OFS822 %.100s is %.*s: the layout stores the optimizer's copy, "
	    "which rounds to %.40s",
	    path, words(w->text), (const char *)w->text->bytes, text);
}

/* Checks the names of one place that are rounded copies and not stored. Returns
 * the number of other names. */
static int compare_all_rounded(const struct places *p, struct where *w,
    size_t *n, struct optimfs_error *err)
{
	const struct where *stored = NULL;
	size_t left = 0;

	for (size_t i = 0; i < *n && stored == NULL; i++)
		if (w[i].rounded == OFS_DTYPE_NONE)
			stored = &w[i];
	for (size_t i = 0; i < *n; i++)
		if (w[i].rounded != OFS_DTYPE_NONE &&
		    compare_rounded(p, &w[i], stored, err) == -1)
			return -1;
	for (size_t i = 0; i < *n; i++)
		if (w[i].rounded == OFS_DTYPE_NONE)
			w[left++] = w[i];
	*n = left;
	return 0;
}

/* Checks the names of one place. */
static int compare(const struct places *p, struct where *w, size_t n,
    struct optimfs_error *err)
{
	const struct where *other = NULL;
	char one[100], two[100];
	uint64_t agree = 0;

	if (compare_all_rounded(p, w, &n, err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (ofs_blob_equal(w[i].text, w[0].text))
			agree++;
		else if (other == NULL)
			other = &w[i];
	}
	if (other == NULL)
		return 0;
	ofs_tree_path(p->o->tree, w[0].index, one, sizeof(one));
	ofs_tree_path(p->o->tree, other->index, two, sizeof(two));
	return optimfs_fail(err, EINVAL,
	    "OFS828 %.60s is %.*s, so are %" PRIu64 " of %zu, but %.60s is "
	    "%.*s: in this layout they are one value",
	    one, words(w[0].text), (const char *)w[0].text->bytes, agree, n,
	    two, words(other->text), (const char *)other->text->bytes);
}

int ofs_writethrough_coupled(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct places p = { .o = o };
	int ret = ofs_writethrough_texts(o, add_places, &p, err);

	if (ret == 0 && p.n > 0)
		qsort(p.v, p.n, sizeof(*p.v), by_place);
	for (size_t i = 0, end; i < p.n && ret == 0; i = end) {
		for (end = i; end < p.n && p.v[end].object == p.v[i].object &&
		     p.v[end].at == p.v[i].at;)
			end++;
		ret = compare(&p, p.v + i, end - i, err);
	}
	free(p.v);
	return ret;
}
