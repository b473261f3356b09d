/* lists.c - the parameters of a group, by the names of the result */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "family/family_impl.h"
#include "pickle/pickle.h"
#include "pickle/write.h"
#include "read/locate.h"
#include "text/id_names.h"

struct listing {
	struct ofs_renaming *r;
	const struct ofs_id_names *ids;
	const struct ofs_pickle *doc;
	struct ofs_pkw w;
	uint8_t *joined; /* of each string of cat: it is in the list */
	uint32_t njoined;
};

static void put_name(struct listing *l, uint32_t name)
{
	struct ofs_str s = ofs_catalog_string(l->r->cat, name);

	ofs_pkw_str(&l->w, s.p, s.len);
}

/* The whole is in the list once, where its first part was. */
static int put_joined(struct listing *l, uint32_t name)
{
	uint32_t had = l->njoined;

	if (name == OFS_NONE ||
	    ofs_reserve(l->joined, (uint64_t)name + 1, l->njoined, l->r->err) ==
		-1)
		return -1;
	for (; had < l->njoined; had++)
		l->joined[had] = 0;
	if (!l->joined[name])
		put_name(l, name);
	l->joined[name] = 1;
	return 0;
}

static int put_split(struct listing *l, const struct ofs_verdict *v,
    uint32_t name)
{
	uint64_t n = ofs_renaming_layers(l->r, v, name);

	for (uint64_t i = 0; i < n; i++)
		for (unsigned k = 0; k < v->rule->nright; k++) {
			uint32_t part = ofs_renaming_part_name(l->r, v, i, k);

			if (part == OFS_NONE)
				return -1;
			put_name(l, part);
		}
	return 0;
}

static int put_item(struct listing *l, struct ofs_str s)
{
	uint32_t name = ofs_catalog_str(l->r->cat, s.p, s.len, l->r->err);
	struct ofs_verdict v;

	if (name == OFS_NONE || ofs_renaming_look_up(l->r, s, &v) == -1)
		return -1;
	switch (v.kind) {
	case OFS_NAME_SPLIT:
		return put_split(l, &v, name);
	case OFS_NAME_JOIN:
		return put_joined(l, ofs_renaming_part_name(l->r, &v, 0, 0));
	case OFS_NAME_OUT:
	case OFS_NAME_SAME:
	case OFS_NAME_UNKNOWN:
		break;
	}
	put_name(l, name);
	return 0;
}

/* Is every item a name? */
static bool are_names(const struct listing *l, uint32_t list)
{
	struct ofs_str s;

	for (uint32_t i = 0; i < ofs_pk_len(l->doc, list); i++) {
		uint32_t item = ofs_pk_item(l->doc, list, i);

		if (ofs_pk_kind(l->doc, item) != OFS_PK_STR &&
		    !ofs_id_name(l->r->cat, l->ids, l->doc, item, &s))
			return false;
	}
	return ofs_pk_is_sequence(l->doc, list);
}

static int rewrite(struct listing *l, uint32_t list, struct ofs_buf *out)
{
	struct ofs_str s;

	l->w.out = out;
	ofs_pkw_begin(&l->w);
	ofs_pkw_op(&l->w, OFS_PKW_LIST);
	ofs_pkw_op(&l->w, OFS_PKW_MARK);
	for (uint32_t i = 0; i < ofs_pk_len(l->doc, list); i++) {
		uint32_t item = ofs_pk_item(l->doc, list, i);

		if (!ofs_id_name(l->r->cat, l->ids, l->doc, item, &s))
			s = ofs_pk_str(l->doc, item);
		if (put_item(l, s) == -1)
			return -1;
	}
	ofs_pkw_op(&l->w, OFS_PKW_APPENDS);
	return ofs_pkw_end(&l->w, l->r->err);
}

static int make_list(struct listing *l, uint32_t list, uint32_t *value)
{
	struct ofs_buf out = { 0 };
	int ret = rewrite(l, list, &out);

	free(l->joined);
	if (ret == -1) {
		ofs_buf_fini(&out);
		return -1;
	}
	*value = ofs_catalog_pickle(l->r->cat, out.data, out.len, l->r->err);
	return *value == OFS_NONE ? -1 : 0;
}

int ofs_renaming_list(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t *value)
{
	const struct ofs_catalog *base = r->base;
	struct listing l = { .r = r, .ids = ofs_id_names_of(base, e) };
	struct ofs_pickle *own = NULL;
	uint32_t list;
	int ret = 0;

	*value = OFS_NONE;
	if (e->kind == OFS_ENTRY_ITEM) {
		own = ofs_locate_item(r->reader, &base->items[e->ref], r->err);
		if (own == NULL)
			return -1;
		l.doc = own;
		list = ofs_pickle_root(own);
	} else {
		l.doc = base->values[e->ref].doc;
		list = base->values[e->ref].node;
	}
	if (are_names(&l, list))
		ret = make_list(&l, list, value);
	ofs_pickle_free(own);
	return ret;
}
