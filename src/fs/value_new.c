/* value_new.c - what the text that a writer gives an entry means */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/dtype.h"
#include "fs/fs.h"
#include "layout/render.h"
#include "text/parse.h"

static bool is_option(const struct ofs_catalog *cat, const struct ofs_entry *e)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->tree, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, OFS_PATH_STR(c[i]));

		if (s.len == 12 && memcmp(s.p, "param_groups", 12) == 0)
			return true;
	}
	return false;
}

static struct ofs_pickle *edit_at(struct optimfs *fs, const struct ofs_entry *e,
    const struct ofs_pickle *doc, uint32_t node, const char *text, size_t n,
    struct optimfs_error *err)
{
	struct ofs_value_form form = {
		.doc = doc,
		.node = node,
		.cat = fs->cat,
		.lines = ofs_render_is_params(fs->cat, e),
		.widen = is_option(fs->cat, e),
	};

	return ofs_value_edit(&form, text, n, err);
}

int ofs_entry_new(struct optimfs *fs, uint32_t entry, const char *text,
    size_t n, struct ofs_entry_new *out, struct optimfs_error *err)
{
	const struct ofs_entry *e = &fs->cat->entries[entry];
	const struct ofs_tensor *t = ofs_entry_tensor(fs->cat, e);
	struct ofs_pickle *doc;

	*out = (struct ofs_entry_new){ 0 };
	if (t != NULL && t->ndim != 0)
		return optimfs_fail(err, EINVAL,
		    "OFS806 a tensor with dimensions is not text");
	if (t != NULL)
		return ofs_value_element(t->dtype, text, n, out->element, err);
	if (e->kind == OFS_ENTRY_VALUE) {
		const struct ofs_value *v = &fs->cat->values[e->ref];

		out->doc = edit_at(fs, e, v->doc, v->node, text, n, err);
		return out->doc == NULL ? -1 : 0;
	}
	doc = ofs_locate_item(&fs->reader, &fs->cat->items[e->ref], err);
	if (doc == NULL)
		return -1;
	out->doc = edit_at(fs, e, doc, ofs_pickle_root(doc), text, n, err);
	ofs_pickle_free(doc);
	return out->doc == NULL ? -1 : 0;
}

int ofs_text_fits(struct optimfs *fs, uint32_t node, const char *text, size_t n,
    struct ofs_buf *canon, uint8_t element[16], struct optimfs_error *err)
{
	uint32_t entry = fs->tree.node[node].entry;
	const struct ofs_tensor *t =
	    ofs_entry_tensor(fs->cat, &fs->cat->entries[entry]);
	struct ofs_entry_new new;
	char shown[80];
	int ret = 0;

	if (ofs_entry_new(fs, entry, text, n, &new, err) == -1)
		return -1;
	if (t != NULL && element != NULL)
		memcpy(element, new.element, sizeof(new.element));
	if (t != NULL && canon != NULL) {
		ofs_buf_put(canon, shown,
		    ofs_dtype_print(t->dtype, new.element, shown));
		ofs_buf_putc(canon, '\n');
	} else if (canon != NULL) {
		ret = ofs_value_text(fs, node, new.doc,
		    ofs_pickle_root(new.doc), canon, err);
	}
	ofs_pickle_free(new.doc);
	return ret;
}
