/* direct_values.c - values that differ from those of the skeleton */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "edit_impl.h"
#include "view.h"

/* Whose text was written, in the order of the tree; while held. */
int ofs_direct_texts(struct ofs_edit *e,
    int (*each)(void *ctx, uint32_t index, struct ofs_edit_file *f,
	struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	int ret = 0;

	for (uint32_t i = 1; i < e->fs->tree.n && ret == 0; i++) {
		struct ofs_edit_file *f = e->fs->tree.node[i].entry == OFS_NONE
		    ? NULL
		    : ofs_edit_file(e, i);

		if (f != NULL && f->text && f->said != NULL)
			ret = each(ctx, i, f, err);
	}
	return ret;
}

void ofs_said_free(struct ofs_said *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; s->doc != NULL && i < s->base->nvalues; i++)
		ofs_pickle_free(s->doc[i]);
	free(s->doc);
	free(s->cat.values);
	free(s->item);
	free(s);
}

static struct ofs_said *said_new(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct ofs_said *s = calloc(1, sizeof(*s));
	size_t n = (size_t)cat->nvalues + 1;

	if (s == NULL) {
		optimfs_fail(err, ENOMEM, "values");
		return NULL;
	}
	s->base = cat;
	s->cat = *cat;
	s->doc = calloc(n, sizeof(struct ofs_pickle *));
	s->cat.values = malloc(n * sizeof(*s->cat.values));
	s->item = malloc(((size_t)cat->nitems + 1) * sizeof(*s->item));
	if (s->doc == NULL || s->cat.values == NULL || s->item == NULL) {
		optimfs_fail(err, ENOMEM, "values");
		ofs_said_free(s);
		return NULL;
	}
	if (cat->nvalues > 0)
		memcpy(s->cat.values, cat->values,
		    cat->nvalues * sizeof(*cat->values));
	for (uint32_t i = 0; i < cat->nitems; i++)
		s->item[i] = OFS_NONE;
	return s;
}

struct collecting {
	struct ofs_edit *e;
	struct ofs_said *said;
	bool any;
};

static int same_as_base(struct ofs_edit *e, uint32_t index,
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

static int collect(void *ctx, uint32_t index, struct ofs_edit_file *f,
    struct optimfs_error *err)
{
	struct collecting *c = ctx;
	struct optimfs *fs = c->e->fs;
	uint32_t entry = fs->tree.node[index].entry;
	const struct ofs_entry *of = &fs->cat->entries[entry];
	struct ofs_entry_new new;
	bool same;

	if (of->kind == OFS_ENTRY_TENSOR)
		return 0;
	if (same_as_base(c->e, index, f->said, &same, err) == -1)
		return -1;
	if (same)
		return 0;
	c->any = true;
	if (of->kind == OFS_ENTRY_ITEM) {
		c->said->item[of->ref] = index;
		return 0;
	}
	if (ofs_entry_new(fs, entry, (const char *)f->said->bytes, f->said->len,
		&new, err) == -1)
		return -1;
	ofs_pickle_free(c->said->doc[of->ref]);
	c->said->doc[of->ref] = new.doc;
	c->said->cat.values[of->ref] =
	    (struct ofs_value){ new.doc, ofs_pickle_root(new.doc) };
	return 0;
}

int ofs_direct_said(struct ofs_edit *e, struct ofs_said **out,
    struct optimfs_error *err)
{
	struct collecting c = { .e = e, .said = said_new(e->fs->cat, err) };

	*out = NULL;
	if (c.said == NULL)
		return -1;
	if (ofs_direct_texts(e, collect, &c, err) == -1) {
		ofs_said_free(c.said);
		return -1;
	}
	if (c.any)
		*out = c.said;
	else
		ofs_said_free(c.said);
	return 0;
}

struct ofs_pickle *ofs_said_item(struct optimfs *fs, const struct ofs_said *s,
    const struct ofs_item *item, struct optimfs_error *err)
{
	uint32_t index = s->item[item - fs->cat->items];
	const struct ofs_blob *said;
	struct ofs_entry_new new;

	if (index == OFS_NONE)
		return ofs_locate_item(fs->locator, item, err);
	said = ofs_edit_file(fs->edit, index)->said;
	if (ofs_entry_new(fs, fs->tree.node[index].entry,
		(const char *)said->bytes, said->len, &new, err) == -1)
		return NULL;
	return new.doc;
}
