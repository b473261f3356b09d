/* new_value.c - parse the new text of an entry */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/new_value.h"

#include <errno.h>

#include "layout/render.h"
#include "read/locate.h"
#include "text/id_names.h"
#include "text/parse.h"

static bool is_option(const struct ofs_catalog *cat, const struct ofs_entry *e)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->tree, &n);

	for (uint32_t i = 0; i < n; i++)
		if (ofs_catalog_string_is(cat, OFS_PATH_STR(c[i]),
			"param_groups"))
			return true;
	return false;
}

static struct ofs_pickle *edit_at(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc, uint32_t node,
    const char *text, size_t n, struct optimfs_error *err)
{
	struct ofs_value_form form = {
		.doc = doc,
		.node = node,
		.cat = cat,
		.names = ofs_id_names_of(cat, e),
		.lines = ofs_render_is_params(cat, e),
		.option = is_option(cat, e),
	};

	return ofs_value_edit(&form, text, n, err);
}

int ofs_entry_new(struct ofs_reader *r, uint32_t entry, const char *text,
    size_t n, struct ofs_entry_new *out, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = r->cat;
	const struct ofs_entry *e = &cat->entries[entry];
	const struct ofs_tensor *t = ofs_entry_tensor(cat, e);
	struct ofs_pickle *doc;

	*out = (struct ofs_entry_new){ 0 };
	if (t != NULL && t->ndim != 0)
		return optimfs_fail(err, EINVAL,
		    "OFS806 a tensor with dimensions is not text");
	if (t != NULL)
		return ofs_value_element(t->dtype, text, n, out->element, err);
	if (e->kind == OFS_ENTRY_VALUE) {
		const struct ofs_value *v = &cat->values[e->ref];

		out->doc = edit_at(cat, e, v->doc, v->node, text, n, err);
		return out->doc == NULL ? -1 : 0;
	}
	doc = ofs_locate_item(r, &cat->items[e->ref], err);
	if (doc == NULL)
		return -1;
	out->doc = edit_at(cat, e, doc, ofs_pickle_root(doc), text, n, err);
	ofs_pickle_free(doc);
	return out->doc == NULL ? -1 : 0;
}
