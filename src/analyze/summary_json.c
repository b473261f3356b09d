/* summary_json.c - the summary as JSON: docs/json.md */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "analyze/summary.h"
#include "base/json.h"
#include "base/json_write.h"

#define MAX_GROUPS 1000

static void put_counts(struct ofs_json_writer *w,
    const struct ofs_summary_count *n)
{
	ofs_json_put_u64(w, "tensors", n->tensors);
	ofs_json_put_u64(w, "values", n->values);
	ofs_json_put_u64(w, "elements", n->elements);
	ofs_json_put_u64(w, "bytes", n->bytes);
}

static void put_count(struct ofs_json_writer *w, const char *key,
    const struct ofs_summary_count *n)
{
	ofs_json_open(w, key, '{');
	put_counts(w, n);
	ofs_json_close(w, '}');
}

/* Is text a single number, list, object, true, false or null? */
static bool is_json(const char *text)
{
	struct ofs_json j;
	enum ofs_json_token token;
	bool ok;

	if (text[0] == '"')
		return false; /* a string with quotes */
	ofs_json_init(&j, text, (uint32_t)strlen(text));
	token = ofs_json_next(&j, NULL);
	ok = token != OFS_JSON_ERROR && token != OFS_JSON_END &&
	    ofs_json_skip(&j, token, NULL) == 0 &&
	    ofs_json_next(&j, NULL) == OFS_JSON_END;
	ofs_json_fini(&j);
	return ok;
}

/* Writes the text of a value: JSON values as they are, others as strings. */
static void put_value(struct ofs_json_writer *w, const char *key,
    const char *text)
{
	if (is_json(text))
		ofs_json_put_raw(w, key, text);
	else
		ofs_json_put_string(w, key, text);
}

static void put_step(struct ofs_json_writer *w, const char *step)
{
	put_value(w, "step", step[0] == '\0' ? "null" : step);
}

static void put_group(const struct ofs_summary *s, uint32_t dir,
    struct ofs_json_writer *w)
{
	const struct ofs_tree_node *node = s->snap->tree.node;
	char text[256];

	ofs_json_open(w, NULL, '{');
	for (uint32_t i = 0; i < node[dir].nchild; i++) {
		uint32_t option = node[dir].child + i;

		if (strcmp(node[option].name, "params") != 0 &&
		    ofs_summary_value(s->snap, option, text, sizeof(text)))
			put_value(w, node[option].name, text);
	}
	ofs_json_close(w, '}');
}

static void put_state(const struct ofs_summary_state *state,
    struct ofs_json_writer *w)
{
	ofs_json_open(w, state->name, '{');
	ofs_json_put_string(w, "dtype",
	    state->dtype == OFS_DTYPE_NONE ? NULL
					   : ofs_dtype_name(state->dtype));
	put_counts(w, &state->n);
	ofs_json_put_string(w, "error",
	    state->why.code == 0 ? NULL : state->why.text);
	ofs_json_close(w, '}');
}

static void put_optim(const struct ofs_summary *s,
    const struct ofs_summary_optim *o, struct ofs_json_writer *w)
{
	const struct ofs_tree_node *dir =
	    o->groups == OFS_NONE ? NULL : &s->snap->tree.node[o->groups];

	ofs_json_open(w, NULL, '{');
	ofs_json_put_string(w, "name", o->name);
	ofs_json_put_string(w, "kind", o->kind);
	put_step(w, o->step);
	ofs_json_put_u64(w, "parameters", o->parameters);
	ofs_json_open(w, "states", '{');
	for (unsigned i = 0; i < o->nstates; i++)
		put_state(&o->states[i], w);
	ofs_json_close(w, '}');
	ofs_json_open(w, "param_groups", '[');
	for (uint32_t i = 0; dir != NULL && i < dir->nchild && i < MAX_GROUPS;
	     i++)
		put_group(s, dir->child + i, w);
	ofs_json_close(w, ']');
	ofs_json_close(w, '}');
}

static void put_dtypes(const struct ofs_summary *s, struct ofs_json_writer *w)
{
	ofs_json_open(w, "dtypes", '{');
	for (int t = 0; t < OFS_NDTYPES; t++)
		if (s->dtype[t].tensors > 0)
			put_count(w, ofs_dtype_name((enum ofs_dtype)t),
			    &s->dtype[t]);
	ofs_json_close(w, '}');
}

static void put_sharding(const struct ofs_summary *s, struct ofs_json_writer *w)
{
	char dim[16];

	ofs_json_open(w, "sharding", '{');
	ofs_json_put_u64(w, "whole", s->whole);
	ofs_json_put_u64(w, "sharded", s->sharded);
	ofs_json_put_u64(w, "flat", s->flat);
	ofs_json_put_u64(w, "replicated", s->replicated);
	ofs_json_put_u64(w, "absent", s->lost);
	ofs_json_open(w, "dims", '{');
	for (unsigned d = 0; d < OFS_MAX_DIMS; d++) {
		if (s->cut[d] == 0)
			continue;
		snprintf(dim, sizeof(dim), "%u", d);
		ofs_json_put_u64(w, dim, s->cut[d]);
	}
	ofs_json_close(w, '}');
	ofs_json_close(w, '}');
}

static void put_names(const struct ofs_summary *s, struct ofs_json_writer *w)
{
	const struct ofs_tree *tree = &s->snap->tree;
	uint32_t dir = ofs_tree_lookup(tree, 0, "extra");

	ofs_json_open(w, "extra", '[');
	for (uint32_t i = 0; dir != OFS_NONE && i < tree->node[dir].nchild; i++)
		ofs_json_put_string(w, NULL,
		    tree->node[tree->node[dir].child + i].name);
	ofs_json_close(w, ']');
}

static void put_notes(const struct ofs_summary *s, const char *key,
    enum ofs_note_kind kind, struct ofs_json_writer *w)
{
	const struct ofs_catalog *cat = s->snap->cat;

	ofs_json_open(w, key, '[');
	for (uint32_t i = 0; i < cat->nnotes; i++) {
		if (cat->notes[i].kind != kind)
			continue;
		ofs_json_open(w, NULL, '{');
		ofs_json_put_code(w, cat->notes[i].number);
		ofs_json_put_string(w, "text", cat->notes[i].text);
		ofs_json_close(w, '}');
	}
	ofs_json_close(w, ']');
}

static void put_left(const struct ofs_inventory *left,
    struct ofs_json_writer *w)
{
	ofs_json_open(w, "left_out", '[');
	for (size_t i = 0; i < left->n; i++) {
		ofs_json_open(w, NULL, '{');
		ofs_json_put_string(w, "path", left->item[i].path);
		ofs_json_put_string(w, "kind",
		    ofs_left_kind_name(left->item[i].kind));
		ofs_json_put_string(w, "why", left->item[i].why);
		ofs_json_close(w, '}');
	}
	ofs_json_close(w, ']');
}

static void put_views(const struct ofs_summary *s, struct ofs_json_writer *w)
{
	ofs_json_open(w, "views", '{');
	for (unsigned i = 0; i < s->nviews; i++) {
		const struct ofs_summary_view *v = &s->view[i];
		bool can = v->why.code == 0;

		ofs_json_open(w, v->name, '{');
		ofs_json_put_bool(w, "ranked", v->ranked);
		ofs_json_put_bool(w, "possible", can);
		ofs_json_put_string(w, "why_not", can ? NULL : v->why.text);
		ofs_json_put_u64(w, "copied", v->ncopied);
		ofs_json_close(w, '}');
	}
	ofs_json_close(w, '}');
}

static void put_found(const struct ofs_found *f, struct ofs_json_writer *w)
{
	ofs_json_open(w, "buckets", '{');
	ofs_json_put_u64(w, "proved", f->proved);
	ofs_json_put_u64(w, "ordered", f->ordered);
	ofs_json_put_u64(w, "open", f->open);
	ofs_json_close(w, '}');
}

static void put_checkpoint(const struct ofs_summary *s,
    struct ofs_json_writer *w)
{
	ofs_info_source(s->snap, w);
	ofs_json_put_u64(w, "ranks", s->ranks);
	put_step(w, s->step);
	ofs_json_open(w, "files", '{');
	ofs_json_put_u64(w, "count", s->files);
	ofs_json_put_u64(w, "missing", s->missing_files);
	ofs_json_put_u64(w, "bytes", s->file_bytes);
	ofs_json_close(w, '}');
	put_count(w, "model", &s->model);
	put_count(w, "optimizer", &s->optimizer);
	ofs_json_open(w, "optimizers", '[');
	for (unsigned i = 0; i < s->noptims; i++)
		put_optim(s, &s->optim[i], w);
	ofs_json_close(w, ']');
	put_found(&s->snap->cat->found, w);
	put_names(s, w);
	put_notes(s, "missing", OFS_NOTE_MISSING, w);
	put_notes(s, "errors", OFS_NOTE_ERROR, w);
	put_notes(s, "warnings", OFS_NOTE_WARNING, w);
	put_left(&s->left, w);
	put_views(s, w);
}

void ofs_summary_json(const struct ofs_summary *s, struct ofs_buf *out)
{
	struct ofs_json_writer w = { out, " ", false };
	char path[4096] = "";

	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "schema",
	    s->below == 0 ? "optimfs.info" : "optimfs.info.directory");
	ofs_json_put_u64(&w, "v", 2);
	if (s->below == 0) {
		ofs_json_put_string(&w, "kind", "checkpoint");
		put_checkpoint(s, &w);
	} else {
		ofs_at_path(s->snap,
		    (struct ofs_at){ OFS_SPACE_TREE, s->below }, path,
		    sizeof(path));
		ofs_json_put_string(&w, "kind", "directory");
		ofs_json_put_string(&w, "path", path);
	}
	put_count(&w, "all", &s->all);
	put_dtypes(s, &w);
	put_count(&w, "few_bits", &s->few_bits);
	put_sharding(s, &w);
	ofs_json_put_u64(&w, "damaged", s->damaged);
	ofs_json_put_u64(&w, "gone", s->gone);
	ofs_json_put_u64(&w, "unread", s->unread);
	if (s->below == 0)
		ofs_json_put_u64(&w, "problems", ofs_summary_problems(s));
	ofs_json_close(&w, '}');
	ofs_buf_putc(out, '\n');
}
