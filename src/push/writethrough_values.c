/* writethrough_values.c - values that differ from those of the template */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fs/view.h"
#include "overlay/overlay_impl.h"
#include "push/writethrough.h"
#include "rewrite/new_value.h"

int ofs_writethrough_texts(struct ofs_overlay *o,
    int (*each)(void *ctx, uint32_t index, struct ofs_overlay_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++) {
		struct ofs_overlay_file *f = o->tree->node[i].entry == OFS_NONE
		    ? NULL
		    : ofs_overlay_file(o, i);

		if (f != NULL && f->text && f->accepted != NULL)
			ret = each(ctx, i, f, err);
	}
	return ret;
}

static void overrides_free(struct ofs_edition *e)
{
	struct ofs_overrides *t = (struct ofs_overrides *)e;
	const struct ofs_catalog *cat = t->snap->cat;

	for (uint32_t i = 0; t->doc != NULL && i < cat->nvalues; i++)
		ofs_pickle_free(t->doc[i]);
	for (uint32_t i = 0; t->item != NULL && i < cat->nitems; i++)
		ofs_blob_unref(t->item[i].text);
	free(t->doc);
	free(t->cat.values);
	free(t->item);
	free(t);
}

static struct ofs_pickle *override_item(const struct ofs_edition *e,
    const struct ofs_item *item, struct optimfs_error *err)
{
	const struct ofs_overrides *t = (const struct ofs_overrides *)e;
	const struct ofs_override_item *now = &t->item[item - t->cat.items];
	struct ofs_entry_new new;

	if (now->text == NULL)
		return ofs_locate_item(&t->snap->reader, item, err);
	if (ofs_entry_new(&t->snap->reader, now->entry,
		(const char *)now->text->bytes, now->text->len, &new,
		err) == -1)
		return NULL;
	return new.doc;
}

static bool is_edited(const struct ofs_edition *e, const struct ofs_item *item)
{
	const struct ofs_overrides *t = (const struct ofs_overrides *)e;

	return t->item[item - t->cat.items].text != NULL;
}

static struct ofs_overrides *overrides_new(struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	static const struct ofs_edition_ops ops = {
		.item = override_item,
		.edited = is_edited,
		.free = overrides_free,
	};
	const struct ofs_catalog *cat = snap->cat;
	struct ofs_overrides *t = calloc(1, sizeof(*t));
	size_t n = (size_t)cat->nvalues + 1;

	if (t == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	t->base.ops = &ops;
	t->base.cat = &t->cat;
	atomic_init(&t->base.refs, 1);
	t->snap = snap;
	t->cat = *cat;
	t->doc = calloc(n, sizeof(struct ofs_pickle *));
	t->cat.values = malloc(n * sizeof(*t->cat.values));
	t->item = calloc((size_t)cat->nitems + 1, sizeof(*t->item));
	if (t->doc == NULL || t->cat.values == NULL || t->item == NULL) {
		ofs_no_memory(err);
		ofs_edition_unref(&t->base);
		return NULL;
	}
	if (cat->nvalues > 0)
		memcpy(t->cat.values, cat->values,
		    cat->nvalues * sizeof(*cat->values));
	return t;
}

struct collecting {
	struct ofs_overlay *o;
	struct ofs_overrides *to;
};

static int same_as_base(struct ofs_overlay *o, uint32_t index,
    const struct ofs_blob *text, bool *same, struct optimfs_error *err)
{
	struct ofs_blob *base = o->reader->text(o->reader_ctx, index, err);

	if (base == NULL)
		return -1;
	*same = ofs_blob_equal(base, text);
	ofs_blob_unref(base);
	return 0;
}

static int collect(void *ctx, uint32_t index, struct ofs_overlay_file *f,
    struct optimfs_error *err)
{
	struct collecting *c = ctx;
	struct ofs_overrides *to = c->to;
	struct ofs_snapshot *snap = c->to->snap;
	uint32_t entry = snap->tree.node[index].entry;
	const struct ofs_entry *of = &snap->cat->entries[entry];
	struct ofs_entry_new new;
	bool same;

	if (of->kind == OFS_ENTRY_TENSOR || f->unwritten)
		return 0;
	if (same_as_base(c->o, index, f->accepted, &same, err) == -1)
		return -1;
	if (same)
		return 0;
	to->differs = true;
	if (of->kind == OFS_ENTRY_ITEM) {
		ofs_blob_unref(to->item[of->ref].text);
		to->item[of->ref] =
		    (struct ofs_override_item){ ofs_blob_ref(f->accepted),
			    entry };
		return 0;
	}
	if (ofs_entry_new(&snap->reader, entry,
		(const char *)f->accepted->bytes, f->accepted->len, &new,
		err) == -1)
		return -1;
	ofs_pickle_free(to->doc[of->ref]);
	to->doc[of->ref] = new.doc;
	to->cat.values[of->ref] =
	    (struct ofs_value){ new.doc, ofs_pickle_root(new.doc), OFS_NONE };
	return 0;
}

struct ofs_overrides *ofs_writethrough_overrides(struct ofs_overlay *o,
    struct optimfs_error *err)
{
	struct collecting c = { o,
		overrides_new(ofs_writethrough_snapshot(o), err) };

	if (c.to == NULL)
		return NULL;
	if (ofs_writethrough_texts(o, collect, &c, err) == 0)
		return c.to;
	ofs_edition_unref(&c.to->base);
	return NULL;
}
