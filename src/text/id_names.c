/* id_names.c - names from ids= in place of integer parameter IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/id_names.h"

#include <inttypes.h>

bool ofs_id_names_in(const struct ofs_catalog *cat, const struct ofs_entry *e)
{
	const uint32_t *c;
	uint32_t n;

	if (cat->ids == NULL || e->tree == OFS_NONE)
		return false;
	c = ofs_catalog_components(cat, e->tree, &n);
	return n > 1 && ofs_catalog_string_is(cat, c[0], "optim") &&
	    (cat->ids_optim == OFS_NONE || c[1] == cat->ids_optim);
}

bool ofs_id_name(const struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str *name)
{
	int64_t id;

	if (cat->ids == NULL || !ofs_pk_int(doc, node, &id) || id < 0 ||
	    id >= cat->nids || cat->ids[id] == OFS_NONE)
		return false;
	*name = ofs_catalog_string(cat, cat->ids[id]);
	return true;
}

bool ofs_id_names(const struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t list, struct ofs_buf *out)
{
	uint32_t n = ofs_pk_len(doc, list);
	int64_t id;

	if (cat->ids == NULL || ofs_pk_kind(doc, list) != OFS_PK_LIST)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!ofs_pk_int(doc, ofs_pk_item(doc, list, i), &id))
			return false;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = ofs_pk_item(doc, list, i);
		struct ofs_str name;

		ofs_pk_int(doc, item, &id);
		if (ofs_id_name(cat, doc, item, &name))
			ofs_buf_put(out, name.p, name.len);
		else
			ofs_buf_printf(out, "%" PRId64, id);
		ofs_buf_putc(out, '\n');
	}
	return true;
}
