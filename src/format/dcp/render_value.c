/* render_value.c - items of a DCP checkpoint that are no tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "base/memory.h"
#include "format/dcp/render.h"
#include "layout/inner.h"
#include "layout/state_dict.h"
#include "pickle/write.h"
#include "text/id_names.h"

static int pickle_value(struct ofs_dcp_files *f, const struct ofs_render *from,
    const struct ofs_entry *e, struct ofs_pkw *w, struct optimfs_error *err)
{
	const struct ofs_pickle *doc;
	uint32_t node;
	int ret;

	if (ofs_render_value(from, e, &doc, &node, err) == -1)
		return -1;
	ofs_pkw_begin(w);
	if (f->source)
		ret = ofs_pkw_node(w, doc, node, err);
	else
		ret = ofs_render_put(w, from->cat, e, doc, node, err);
	ofs_render_release(f->cat, e, doc);
	return ret == -1 ? -1 : ofs_pkw_end(w, err);
}

/* Write a value with globals outside the allow-list, and with storages: these
 * need an archive. */
static int put_graph(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err)
{
	struct ofs_torch_new a = { .prefix = "archive/" };
	struct ofs_inner inner = { .from = from, .e = e, .a = &a };
	struct ofs_buf pickle = { 0 };
	struct ofs_pkw w = { .out = &pickle,
		.copies = true,
		.storage = ofs_inner_put,
		.storage_ctx = &inner };
	int ret = pickle_value(f, from, e, &w, err);

	f->leaf[leaf].copied = a.nstorages > 0;
	if (ret == 0 && f->leaf[leaf].copied)
		ret = ofs_inner_archive(&a, &pickle, &f->pickles, err);
	else if (ret == 0)
		ofs_buf_put(&f->pickles, pickle.data, pickle.len);
	if (ret == 0 && f->pickles.bad)
		ret = ofs_no_memory(err);
	ofs_buf_fini(&pickle);
	ofs_inner_fini(&inner);
	ofs_torch_new_fini(&a);
	return ret == -1 ? -1 : ofs_render_report_copied(from, e, err);
}

/* Copy a value that cannot be converted, its archive byte for byte if it has
 * one. A copy executes nothing. Lists of IDs are not copied if the view has
 * names for them. */
static int copy_value(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err)
{
	bool names = !f->source && ofs_id_names_of(f->cat, e) != NULL &&
	    ofs_render_is_params(f->cat, e);

	if (names || !ofs_render_has_archive(from, e))
		return put_graph(f, from, leaf, e, err);
	f->leaf[leaf].copied = true;
	if (ofs_render_copy(from, e, &f->pickles, err) == -1)
		return -1;
	return ofs_render_report_copied(from, e, err);
}

static int value_archive(const struct ofs_dcp_files *f,
    const struct ofs_dcp_leaf *l, struct ofs_torch_new *a,
    struct optimfs_error *err)
{
	struct ofs_buf pickle = { .data = f->pickles.data + l->pickle,
		.len = l->npickle };

	return ofs_torch_new_item(a, f->cat, &pickle, NULL, err);
}

int ofs_dcp_value_lay(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const struct ofs_entry *e, struct optimfs_error *err)
{
	struct ofs_dcp_leaf *l = &f->leaf[leaf];
	struct ofs_pkw w = { .out = &f->pickles };
	struct optimfs_error why = { 0 };
	struct ofs_torch_new a = { 0 };
	int ret;

	l->pickle = f->pickles.len;
	if (pickle_value(f, from, e, &w, &why) == -1) {
		if ((why.code != EPERM && why.code != EOPNOTSUPP) ||
		    (ofs_render_sound(f->cat, e, NULL) == -1 &&
			!ofs_entry_is_pickled(f->cat, e, NULL, NULL)))
			return optimfs_fail_with(err, &why);
		f->pickles.len = l->pickle;
		if (copy_value(f, from, leaf, e, err) == -1)
			return -1;
	}
	l->npickle = l->last = f->pickles.len - l->pickle;
	if (l->copied)
		return 0;
	ret = value_archive(f, l, &a, err);
	if (ret == 0)
		l->last = ofs_torch_new_size(&a);
	ofs_torch_new_fini(&a);
	return ret;
}

static int pickle_tuple(const struct ofs_state *s,
    const struct ofs_render *from, struct ofs_torch_new *a,
    struct optimfs_error *err)
{
	struct ofs_buf pickle = { 0 };
	struct ofs_state_pickler p;
	int ret;

	ofs_state_pickler_init(&p, s, from, &pickle, a, err);
	ofs_pkw_begin(&p.w);
	ret = ofs_state_put(&p, 0);
	if (ret == 0)
		ret = ofs_pkw_end(&p.w, err);
	if (ret == 0)
		ret = ofs_torch_new_place(a, &pickle, err);
	ofs_buf_fini(&pickle);
	return ret;
}

int ofs_dcp_tuple_lay(struct ofs_dcp_files *f, const struct ofs_render *from,
    uint32_t leaf, const uint32_t *entries, uint32_t n,
    struct optimfs_error *err)
{
	uint32_t in_tree, all;
	struct ofs_torch_new *a;
	struct ofs_state s;
	int ret;

	ofs_dcp_entry_path(f, entries[0], &all);
	ofs_catalog_components(f->cat, f->cat->entries[entries[0]].tree,
	    &in_tree);
	if (ofs_grow(f->tuple, f->ntuples, f->tuple_cap, err) == -1 ||
	    ofs_state_build_of(&s, f->cat, entries, n,
		in_tree - (all - f->leaf[leaf].nkey), false, err) == -1)
		return -1;
	a = &f->tuple[f->ntuples];
	*a = (struct ofs_torch_new){
		.prefix = "archive/",
		.crc = f->to.crc,
		.cast = f->to.dtype,
	};
	f->leaf[leaf].tuple = ++f->ntuples;
	ret = pickle_tuple(&s, from, a, err);
	if (ret == 0)
		f->leaf[leaf].last = ofs_torch_new_size(a);
	ofs_state_fini(&s);
	return ret;
}

int ofs_dcp_value_make(const struct ofs_dcp_files *f,
    const struct ofs_dcp_leaf *l, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	struct ofs_torch_new a = { 0 };
	int ret;

	if (l->copied)
		return ofs_composition_bytes(c, f->pickles.data + l->pickle,
		    l->npickle, err);
	if (l->tuple > 0) {
		a = f->tuple[l->tuple - 1];
		a.base = at;
		return ofs_torch_new_put(&a, f->cat, c, err);
	}
	ret = value_archive(f, l, &a, err);
	if (ret == 0)
		ret = ofs_torch_new_put(&a, f->cat, c, err);
	ofs_torch_new_fini(&a);
	return ret;
}
