/* values.c - values that differ from those of the skeleton */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/view.h"
#include "overlay/overlay_impl.h"
#include "push/writethrough.h"

/* Whose text was written, in the order of the tree; while held. */
int ofs_writethrough_texts(struct ofs_overlay *e,
    int (*each)(void *ctx, uint32_t index, struct ofs_overlay_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 1; i < e->fs->tree.n && ret == 0; i++) {
		struct ofs_overlay_file *f =
		    e->fs->tree.node[i].entry == OFS_NONE
		    ? NULL
		    : ofs_overlay_file(e, i);

		if (f != NULL && f->text && f->said != NULL)
			ret = each(ctx, i, f, err);
	}
	return ret;
}

void ofs_told_unref(struct ofs_told *t)
{
	if (t == NULL || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	for (uint32_t i = 0; t->doc != NULL && i < t->base->nvalues; i++)
		ofs_pickle_free(t->doc[i]);
	for (uint32_t i = 0; t->item != NULL && i < t->base->nitems; i++)
		ofs_blob_unref(t->item[i].text);
	free(t->doc);
	free(t->cat.values);
	free(t->item);
	free(t);
}

static struct ofs_told *told_new(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct ofs_told *t = calloc(1, sizeof(*t));
	size_t n = (size_t)cat->nvalues + 1;

	if (t == NULL) {
		optimfs_fail(err, ENOMEM, "values");
		return NULL;
	}
	atomic_init(&t->refs, 1);
	t->base = cat;
	t->cat = *cat;
	t->doc = calloc(n, sizeof(struct ofs_pickle *));
	t->cat.values = malloc(n * sizeof(*t->cat.values));
	t->item = calloc((size_t)cat->nitems + 1, sizeof(*t->item));
	if (t->doc == NULL || t->cat.values == NULL || t->item == NULL) {
		optimfs_fail(err, ENOMEM, "values");
		ofs_told_unref(t);
		return NULL;
	}
	if (cat->nvalues > 0)
		memcpy(t->cat.values, cat->values,
		    cat->nvalues * sizeof(*cat->values));
	return t;
}

struct collecting {
	struct ofs_overlay *e;
	struct ofs_told *told;
};

static int same_as_base(struct ofs_overlay *e, uint32_t index,
    const struct ofs_blob *said, bool *same, struct optimfs_error *err)
{
	struct ofs_blob *base = ofs_entry_text_base(e->fs, index, err);

	if (base == NULL)
		return -1;
	*same = base->len == said->len &&
	    memcmp(base->bytes, said->bytes, said->len) == 0;
	ofs_blob_unref(base);
	return 0;
}

static int collect(void *ctx, uint32_t index, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct collecting *c = ctx;
	struct ofs_told *told = c->told;
	struct optimfs *fs = c->e->fs;
	uint32_t entry = fs->tree.node[index].entry;
	const struct ofs_entry *of = &fs->cat->entries[entry];
	struct ofs_entry_new new;
	bool same;

	if (of->kind == OFS_ENTRY_TENSOR || f->unsaid)
		return 0;
	if (same_as_base(c->e, index, f->said, &same, err) == -1)
		return -1;
	if (same)
		return 0;
	told->differs = true;
	if (of->kind == OFS_ENTRY_ITEM) {
		ofs_blob_unref(told->item[of->ref].text);
		told->item[of->ref] =
		    (struct ofs_told_item){ ofs_blob_ref(f->said), entry };
		return 0;
	}
	if (ofs_entry_new(fs, entry, (const char *)f->said->bytes, f->said->len,
		&new, err) == -1)
		return -1;
	ofs_pickle_free(told->doc[of->ref]);
	told->doc[of->ref] = new.doc;
	told->cat.values[of->ref] =
	    (struct ofs_value){ new.doc, ofs_pickle_root(new.doc) };
	return 0;
}

struct ofs_told *ofs_writethrough_told(struct ofs_overlay *e,
    struct optimfs_error *err)
{
	struct collecting c = { .e = e, .told = told_new(e->fs->cat, err) };

	if (c.told == NULL)
		return NULL;
	if (ofs_writethrough_texts(e, collect, &c, err) == 0)
		return c.told;
	ofs_told_unref(c.told);
	return NULL;
}

struct ofs_told *ofs_writethrough_told_now(struct ofs_overlay *e,
    struct optimfs_error *err)
{
	struct ofs_told *told;

	if (ofs_gate_hold(e->fs, false, err) == -1)
		return NULL;
	told = ofs_writethrough_told(e, err);
	ofs_gate_let(e->fs);
	return told;
}

struct ofs_pickle *ofs_told_item(struct optimfs *fs, const struct ofs_told *t,
    const struct ofs_item *item, struct optimfs_error *err)
{
	const struct ofs_told_item *now = &t->item[item - fs->cat->items];
	struct ofs_entry_new new;

	if (now->text == NULL)
		return ofs_locate_item(fs->locator, item, err);
	if (ofs_entry_new(fs, now->entry, (const char *)now->text->bytes,
		now->text->len, &new, err) == -1)
		return NULL;
	return new.doc;
}
