/* render.c - code that the writers of all formats share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/render.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/budget.h"
#include "pickle/pickle.h"
#include "pickle/write.h"
#include "plan/cast.h"
#include "text/id_names.h"

/* A renderer answers three questions about a checkpoint in a format and layout
 * (struct ofs_files_ops), each needing only what the one before has given:
 *
 *     name    the files, from the layout alone      __0_0.distcp, .metadata
 *     spans   the lengths of a file's parts          512, 4096, 512, 1024
 *     make    the bytes and boxes of one part        a zip header; w[0:8, :]
 *
 * For ls -l of a view the first two are enough; a read makes the spans that it
 * meets. No tensor is ever read here: make says which box goes where, and
 * whoever reads the composition plans that.
 *
 * - The length of a span depends on metadata only: shapes, types, keys and
 *   values. Items that are compressed have unknown lengths: their layouts can be
 *   written (reshard), but not shown.
 * - A span begins where the one before ends, and its contents depend on its
 *   place and ref alone. Two reads that make it, at any time and in any order,
 *   get the same bytes: the checksums of a file and its bytes never differ.
 * - A layout is rendered from the catalog, not from files. So a view of a view's
 *   source, of staged changes (rewrite/merge.h) or of several ranks' files is
 *   the same code.
 *
 * A value is pickled again from its graph. One with objects that the writer of
 * pickles does not know is copied with its opcodes where the format has an
 * archive for it, left out with drop=opaque, and else the view fails and names
 * it; the report has a list of each, so that nothing disappears silently. This
 * file has what all renderers need for that: choosing entries, their types and
 * values, and the report. */

/* Values that are named, of those that are copied or left out. */
#define REPORT_MAX 16

struct ofs_files *ofs_files_new(const struct ofs_files_ops *ops,
    const struct ofs_render *from, const struct ofs_layout *to,
    struct optimfs_error *err)
{
	struct ofs_files *f = ofs_alloc(1, ops->size, err);

	if (f == NULL)
		return NULL;
	f->ops = ops;
	if (ops->lay(f, from, to, err) == 0)
		return f;
	ops->free(f);
	return NULL;
}

int ofs_spans_add(struct ofs_spans *s, uint64_t len, uint64_t ref,
    uint64_t base, struct optimfs_error *err)
{
	uint64_t end = s->n == 0 ? 0 : s->v[s->n - 1].end;

	if (len == 0)
		return 0;
	if (!ofs_add_u64(end, len, &end) || end > INT64_MAX)
		return optimfs_fail(err, EFBIG,
		    "OFS606 size overflow: a file of a view would have more "
		    "bytes than a file can");
	if (ofs_grow(s->v, s->n, s->cap, err) == -1)
		return -1;
	s->v[s->n++] = (struct ofs_span){ end, ref, base };
	return 0;
}

int ofs_spans_add_bytes(struct ofs_spans *s, uint64_t len, uint64_t ref,
    struct optimfs_error *err)
{
	uint64_t most = 64u << 10;

	for (uint64_t i = 0; i < len; i += most)
		if (ofs_spans_add(s, len - i < most ? len - i : most, ref + i,
			0, err) == -1)
			return -1;
	return 0;
}

static int compare_end(const void *key, const void *item)
{
	const struct ofs_span *s = item;

	return s->end <= *(const uint64_t *)key ? 1 : -1;
}

size_t ofs_spans_find(const struct ofs_spans *s, uint64_t off)
{
	return ofs_lower_bound(&off, s->v, s->n, sizeof(*s->v), compare_end);
}

void ofs_spans_fini(struct ofs_spans *s)
{
	free(s->v);
	*s = (struct ofs_spans){ 0 };
}

static bool first_is(const struct ofs_catalog *cat, uint32_t path,
    const char *section)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, path, &n);

	return n > 0 && ofs_catalog_string_is(cat, c[0], section);
}

static bool wanted(const struct ofs_catalog *cat, const struct ofs_entry *e,
    const struct ofs_layout *to, const char *section)
{
	if (e->tree == OFS_NONE)
		return false;
	if (to->only == OFS_ONLY_OPTIM && !first_is(cat, e->tree, "optim"))
		return false;
	if (to->only == OFS_ONLY_MODEL && !first_is(cat, e->tree, "model"))
		return false;
	return section == NULL || first_is(cat, e->tree, section);
}

int ofs_render_only(const struct ofs_catalog *cat, const struct ofs_layout *to,
    struct optimfs_error *err)
{
	const char *section = to->only == OFS_ONLY_MODEL ? "model" : "optim";

	if (to->only == OFS_ONLY_ALL)
		return 0;
	for (uint32_t i = 0; i < cat->nentries; i++)
		if (wanted(cat, &cat->entries[i], to, NULL))
			return 0;
	return optimfs_fail(err, ENOENT,
	    "OFS777 only=%s: this checkpoint has no %s/ (the option %s_key= "
	    "names the key that is shown there)",
	    section, section, section);
}

/* Is it a value that cannot be converted (OFS445, OFS448)? */
static bool is_opaque(const struct ofs_render *from, const struct ofs_entry *e)
{
	struct ofs_buf out = { 0 };
	struct ofs_pkw w = { .out = &out };
	struct optimfs_error why = { 0 };
	const struct ofs_pickle *doc;
	uint32_t node;
	int ret;

	if (!ofs_render_is_value(from->cat, e))
		return false;
	ret = ofs_render_value(from, e, &doc, &node, &why);
	if (ret == 0) {
		ret = ofs_pkw_node(&w, doc, node, &why);
		ofs_render_release(from->cat, e, doc);
	}
	ofs_buf_fini(&out);
	return ret == -1 && (why.code == EPERM || why.code == EOPNOTSUPP);
}

int ofs_render_entries(const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, uint32_t **entries,
    uint32_t *n, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = from->cat;
	uint32_t *v = malloc(((size_t)cat->nentries + 1) * sizeof(*v));
	int ret = 0;

	if (v == NULL)
		return ofs_no_memory(err);
	*n = 0;
	for (uint32_t i = 0; i < cat->nentries && ret == 0; i++) {
		const struct ofs_entry *e = &cat->entries[i];

		if (!wanted(cat, e, to, section))
			continue;
		if (to->drop && is_opaque(from, e))
			ret = ofs_render_report_dropped(from, e, err);
		else
			v[(*n)++] = i;
	}
	if (ret == 0)
		*entries = v;
	else
		free(v);
	return ret;
}

enum ofs_dtype ofs_render_dtype(const struct ofs_layout *to,
    const struct ofs_tensor *t)
{
	return ofs_cast_type(t, to->dtype);
}

int ofs_render_sound(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	uint32_t error = ofs_entry_error(cat, e);

	if (error == OFS_NONE)
		return 0;
	if (!ofs_entry_is_pickled(cat, e, NULL, NULL))
		return ofs_catalog_fail(cat, error, err);
	if (e->kind == OFS_ENTRY_ITEM)
		return 0;
	return optimfs_fail_as(err, cat->notes[error].code,
	    "%s: views torch and dcp copy it, drop=opaque leaves it out",
	    cat->notes[error].text);
}

int ofs_render_unscaled(const struct ofs_catalog *cat,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	enum ofs_dtype dtype;

	if (ofs_render_sound(cat, e, err) == -1)
		return -1;
	if (e->kind != OFS_ENTRY_TENSOR)
		return 0;
	dtype = cat->tensors[e->ref].dtype;
	if (!ofs_dtype_is_quantized(dtype))
		return 0;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS448 a tensor of type %s cannot be divided, because its parts "
	    "would have no scale: views torch and dcp have it",
	    ofs_dtype_name(dtype));
}

bool ofs_render_is_value(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	return e->kind != OFS_ENTRY_TENSOR ||
	    ofs_entry_is_pickled(cat, e, NULL, NULL);
}

int ofs_render_value(const struct ofs_render *from, const struct ofs_entry *e,
    const struct ofs_pickle **doc, uint32_t *node, struct optimfs_error *err)
{
	const struct ofs_value *v;

	if (ofs_entry_is_pickled(from->cat, e, doc, node))
		return 0;
	if (ofs_render_sound(from->cat, e, err) == -1)
		return -1;
	if (e->kind == OFS_ENTRY_VALUE) {
		v = &from->cat->values[e->ref];
		*doc = v->doc;
		*node = v->node;
		return 0;
	}
	*doc = from->item(from->ctx, &from->cat->items[e->ref], err);
	if (*doc == NULL)
		return -1;
	*node = ofs_pickle_root(*doc);
	return 0;
}

void ofs_render_release(const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc)
{
	if (e->kind == OFS_ENTRY_ITEM &&
	    !ofs_entry_is_pickled(cat, e, NULL, NULL))
		ofs_pickle_free((struct ofs_pickle *)doc);
}

/* Append the tree path with a NUL. */
static void put_path(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->tree, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, OFS_PATH_STR(c[i]));

		if (i > 0)
			ofs_buf_putc(out, '/');
		ofs_buf_plain(out, s.p, s.len);
	}
	ofs_buf_putc(out, '\0');
}

struct ofs_render_report *ofs_render_report_new(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	struct ofs_render_report *report = calloc(1, sizeof(*report));

	if (report != NULL)
		report->seen = calloc((size_t)cat->nentries + 1, 1);
	if (report != NULL && report->seen != NULL)
		return report;
	free(report);
	ofs_no_memory(err);
	return NULL;
}

void ofs_render_report_end(struct ofs_render_report *report)
{
	free(report->seen);
	report->seen = NULL;
}

void ofs_render_report_free(struct ofs_render_report *report)
{
	if (report == NULL)
		return;
	ofs_buf_fini(&report->copied.paths);
	ofs_buf_fini(&report->dropped.paths);
	ofs_buf_fini(&report->unnamed.paths);
	free(report->seen);
	free(report);
}

static void say_values(const struct ofs_value_list *list, const char *what,
    const struct optimfs_watch *to)
{
	const char *path = (const char *)list->paths.data;
	char text[512];

	for (uint32_t i = 0; i < list->n; i++) {
		if (i == REPORT_MAX) {
			snprintf(text, sizeof(text), "and %" PRIu32 " more",
			    list->n - i);
			to->say(to->ctx, text);
			return;
		}
		snprintf(text, sizeof(text),
		    "%.300s: %s: it has values that cannot be converted", path,
		    what);
		to->say(to->ctx, text);
		path += strlen(path) + 1;
	}
}

int ofs_render_report_renamed(struct ofs_render_report *report,
    const struct ofs_renamed *renamed, struct optimfs_error *err)
{
	report->padded = renamed->padded;
	report->unnamed.n = renamed->nkept;
	ofs_buf_put(&report->unnamed.paths, renamed->kept.data,
	    renamed->kept.len);
	return report->unnamed.paths.bad ? ofs_no_memory(err) : 0;
}

static void say_names(const struct ofs_render_report *report,
    const struct optimfs_watch *to)
{
	char text[512];

	if (report->unnamed.n > 0) {
		snprintf(text, sizeof(text),
		    "OFS896 no rule of names= covers %" PRIu32
		    " name%s, which %s kept: %.200s%s",
		    report->unnamed.n, report->unnamed.n == 1 ? "" : "s",
		    report->unnamed.n == 1 ? "is" : "are",
		    (const char *)report->unnamed.paths.data,
		    report->unnamed.n == 1 ? "" : " and others");
		to->say(to->ctx, text);
	}
	if (report->padded > 0) {
		snprintf(text, sizeof(text),
		    "OFS897 the vocabulary is written with all %" PRIu64
		    " rows, some of which may be padding: vocab=N says how "
		    "many it has",
		    report->padded);
		to->say(to->ctx, text);
	}
}

void ofs_render_report_say(const struct ofs_render_report *report,
    const struct optimfs_watch *to)
{
	if (to->say == NULL)
		return;
	say_values(&report->copied, "copied in pickled form", to);
	say_values(&report->dropped, "left out", to);
	say_names(report, to);
}

/* Add the entry once, also if it is in several files. Files that are made after
 * ofs_render_report_end have the same values. */
static int add_value(const struct ofs_render *from, const struct ofs_entry *e,
    struct ofs_value_list *list, struct optimfs_error *err)
{
	struct ofs_render_report *report = from->report;
	size_t i = (size_t)(e - from->cat->entries);

	if (report->seen == NULL || report->seen[i] != 0)
		return 0;
	report->seen[i] = 1;
	put_path(from->cat, e, &list->paths);
	list->n++;
	return list->paths.bad ? ofs_no_memory(err) : 0;
}

int ofs_render_report_copied(const struct ofs_render *from,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	return add_value(from, e, &from->report->copied, err);
}

int ofs_render_report_dropped(const struct ofs_render *from,
    const struct ofs_entry *e, struct optimfs_error *err)
{
	return add_value(from, e, &from->report->dropped, err);
}

int ofs_render_scale(const struct ofs_render *from, uint32_t tensor,
    struct ofs_pkw_scale *scale, struct optimfs_error *err)
{
	struct ofs_scale s = { 0 };
	int has = 0;

	if (ofs_dtype_is_quantized(from->cat->tensors[tensor].dtype))
		has = from->scale(from->ctx, tensor, &s, err);
	if (has == -1)
		return -1;
	*scale = (struct ofs_pkw_scale){ s.scale, s.zero_point, has == 1 };
	return 0;
}

bool ofs_render_has_archive(const struct ofs_render *from,
    const struct ofs_entry *e)
{
	return e->kind == OFS_ENTRY_ITEM &&
	    !ofs_entry_is_pickled(from->cat, e, NULL, NULL) &&
	    from->cat->items[e->ref].at.encoding == OFS_TORCH_ITEM;
}

int ofs_render_copy(const struct ofs_render *from, const struct ofs_entry *e,
    struct ofs_buf *out, struct optimfs_error *err)
{
	uint64_t max = ofs_metadata_max(from->cat);

	return from->bytes(from->ctx, &from->cat->items[e->ref],
	    out->len < max ? max - out->len : 0, out, err);
}

int ofs_render_fail_in(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	struct ofs_buf path = { 0 };

	put_path(cat, e, &path);
	if (!path.bad)
		optimfs_fail_in(err, "%.120s", (char *)path.data);
	ofs_buf_fini(&path);
	return -1;
}

const uint32_t *ofs_render_path(const struct ofs_catalog *cat,
    const struct ofs_entry *e, uint32_t *n)
{
	const uint32_t *c = ofs_catalog_components(cat, e->tree, n);

	if (*n < 2 || !first_is(cat, e->tree, "extra"))
		return c;
	(*n)--;
	return c + 1;
}

bool ofs_render_is_params(const struct ofs_catalog *cat,
    const struct ofs_entry *e)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->tree, &n);

	return n >= 3 &&
	    ofs_catalog_string_is(cat, OFS_PATH_STR(c[n - 3]),
		"param_groups") &&
	    ofs_catalog_string_is(cat, OFS_PATH_STR(c[n - 1]), "params");
}

int ofs_render_put(struct ofs_pkw *w, const struct ofs_catalog *cat,
    const struct ofs_entry *e, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err)
{
	const struct ofs_id_names *names = ofs_id_names_of(cat, e);
	uint32_t n = ofs_pk_len(doc, node);

	if (names == NULL || !ofs_render_is_params(cat, e) ||
	    ofs_pk_kind(doc, node) != OFS_PK_LIST)
		return ofs_pkw_node(w, doc, node, err);
	ofs_pkw_op_put(w, OFS_PKW_LIST);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t item = ofs_pk_item(doc, node, i);
		struct ofs_str name;

		if (ofs_id_name(cat, names, doc, item, &name))
			ofs_pkw_str(w, name.p, name.len);
		else if (ofs_pkw_node(w, doc, item, err) == -1)
			return -1;
		ofs_pkw_op(w, OFS_PKW_APPEND);
	}
	return 0;
}
