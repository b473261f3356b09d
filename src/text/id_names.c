/* id_names.c - names in place of integer parameter IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/id_names.h"

#include <inttypes.h>
#include <string.h>

#include "base/json_write.h"

const struct ofs_id_names *ofs_id_names_of(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	const uint32_t *c;
	uint32_t n;

	if (cat->nid_names == 0 || e->tree == OFS_NONE)
		return NULL;
	c = ofs_catalog_components(cat, e->tree, &n);
	if (n < 2 || !ofs_catalog_string_is(cat, c[0], "optim"))
		return NULL;
	for (uint32_t i = 0; i < cat->nid_names; i++)
		if (cat->id_names[i].optim == OFS_NONE ||
		    cat->id_names[i].optim == c[1])
			return &cat->id_names[i];
	return NULL;
}

bool ofs_id_name(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str *name)
{
	int64_t id;

	if (names == NULL || !ofs_pk_int(doc, node, &id) || id < 0 ||
	    id >= names->n || names->name[id] == OFS_NONE)
		return false;
	*name = ofs_catalog_string(cat, names->name[id]);
	return true;
}

bool ofs_id_of_name(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, struct ofs_str name, uint32_t *id)
{
	for (uint32_t i = 0; names != NULL && i < names->n; i++)
		if (names->name[i] != OFS_NONE &&
		    ofs_str_equal(ofs_catalog_string(cat, names->name[i]),
			name)) {
			*id = i;
			return true;
		}
	return false;
}

static bool has_newline(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t list)
{
	struct ofs_str name;

	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++)
		if (ofs_id_name(cat, names, doc, ofs_pk_item(doc, list, i),
			&name) &&
		    memchr(name.p, '\n', name.len) != NULL)
			return true;
	return false;
}

/* As a list of such strings is shown (ofs_text_fits_lines). */
static bool put_list(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t list, struct ofs_buf *out)
{
	for (uint32_t i = 0; i < ofs_pk_len(doc, list); i++) {
		uint32_t item = ofs_pk_item(doc, list, i);
		struct ofs_str name;
		int64_t id = 0;

		ofs_buf_puts(out, i == 0 ? "[" : ", ");
		ofs_pk_int(doc, item, &id);
		if (ofs_id_name(cat, names, doc, item, &name))
			ofs_json_quote(out, name.p, name.len);
		else
			ofs_buf_printf(out, "\"%" PRId64 "\"", id);
	}
	ofs_buf_puts(out, "]\n");
	return true;
}

bool ofs_id_names_put(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t list, struct ofs_buf *out)
{
	uint32_t n = ofs_pk_len(doc, list);
	int64_t id;

	if (names == NULL || ofs_pk_kind(doc, list) != OFS_PK_LIST)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (!ofs_pk_int(doc, ofs_pk_item(doc, list, i), &id))
			return false;
	if (has_newline(cat, names, doc, list))
		return put_list(cat, names, doc, list, out);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = ofs_pk_item(doc, list, i);
		struct ofs_str name;

		ofs_pk_int(doc, item, &id);
		if (ofs_id_name(cat, names, doc, item, &name))
			ofs_buf_put(out, name.p, name.len);
		else
			ofs_buf_printf(out, "%" PRId64, id);
		ofs_buf_putc(out, '\n');
	}
	return true;
}
