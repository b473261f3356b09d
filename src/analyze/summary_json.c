/* summary_json.c - a checkpoint at a glance, for programs: docs/json.md */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "analyze/summary.h"
#include "base/json.h"

#define MAX_GROUPS 1000

/* "key":"s", or null. */
static void put_string(struct ofs_buf *out, const char *key, const char *s)
{
	ofs_buf_printf(out, "\"%s\":", key);
	if (s == NULL) {
		ofs_buf_puts(out, "null");
		return;
	}
	ofs_buf_putc(out, '"');
	ofs_buf_json(out, s, strlen(s));
	ofs_buf_putc(out, '"');
}

static void put_count(struct ofs_buf *out, const char *key,
    const struct ofs_summary_count *n)
{
	ofs_buf_printf(out,
	    "\"%s\":{\"tensors\":%" PRIu64 ",\"values\":%" PRIu64
	    ",\"elements\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
	    key, n->tensors, n->values, n->elements, n->bytes);
}

/* Is it one number, list, object, true, false or null? */
static bool is_json(const char *text)
{
	struct ofs_json j;
	enum ofs_json_token token;
	bool ok;

	if (text[0] == '"')
		return false; /* a string that has quotes */
	ofs_json_init(&j, text, (uint32_t)strlen(text));
	token = ofs_json_next(&j, NULL);
	ok = token != OFS_JSON_ERROR && token != OFS_JSON_END &&
	    ofs_json_skip(&j, token, NULL) == 0 &&
	    ofs_json_next(&j, NULL) == OFS_JSON_END;
	ofs_json_fini(&j);
	return ok;
}

/* The text of a value: numbers, lists and so on as they are, others as
 * strings. */
static void put_value(struct ofs_buf *out, const char *key, const char *text)
{
	ofs_buf_putc(out, '"');
	ofs_buf_json(out, key, strlen(key));
	ofs_buf_puts(out, "\":");
	if (is_json(text)) {
		ofs_buf_puts(out, text);
		return;
	}
	ofs_buf_putc(out, '"');
	ofs_buf_json(out, text, strlen(text));
	ofs_buf_putc(out, '"');
}

static void put_step(struct ofs_buf *out, const char *step)
{
	ofs_buf_putc(out, ',');
	if (step[0] == '\0')
		ofs_buf_puts(out, "\"step\":null");
	else
		put_value(out, "step", step);
}

static void put_group(const struct ofs_summary *s, uint32_t dir,
    struct ofs_buf *out)
{
	const struct ofs_tree_node *node = s->fs->tree.node;
	const char *between = "";
	char text[256];

	ofs_buf_putc(out, '{');
	for (uint32_t i = 0; i < node[dir].nchild; i++) {
		uint32_t option = node[dir].child + i;

		if (strcmp(node[option].name, "params") == 0 ||
		    !ofs_summary_value(s->fs, option, text, sizeof(text)))
			continue;
		ofs_buf_puts(out, between);
		put_value(out, node[option].name, text);
		between = ",";
	}
	ofs_buf_putc(out, '}');
}

static void put_state(const struct ofs_summary_state *state,
    struct ofs_buf *out)
{
	ofs_buf_putc(out, '"');
	ofs_buf_json(out, state->name, strlen(state->name));
	ofs_buf_puts(out, "\":{");
	put_string(out, "dtype",
	    state->dtype == OFS_DTYPE_NONE ? NULL
					   : ofs_dtype_name(state->dtype));
	ofs_buf_printf(out,
	    ",\"tensors\":%" PRIu64 ",\"values\":%" PRIu64
	    ",\"elements\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
	    state->n.tensors, state->n.values, state->n.elements,
	    state->n.bytes);
}

static void put_optim(const struct ofs_summary *s,
    const struct ofs_summary_optim *o, struct ofs_buf *out)
{
	ofs_buf_putc(out, '{');
	put_string(out, "name", o->name);
	ofs_buf_putc(out, ',');
	put_string(out, "kind", o->kind);
	put_step(out, o->step);
	ofs_buf_printf(out, ",\"parameters\":%" PRIu64 ",\"states\":{",
	    o->parameters);
	for (unsigned i = 0; i < o->nstates; i++) {
		ofs_buf_puts(out, i == 0 ? "" : ",");
		put_state(&o->states[i], out);
	}
	ofs_buf_puts(out, "},\"param_groups\":[");
	if (o->groups != OFS_NONE) {
		const struct ofs_tree_node *dir = &s->fs->tree.node[o->groups];

		for (uint32_t i = 0; i < dir->nchild && i < MAX_GROUPS; i++) {
			ofs_buf_puts(out, i == 0 ? "" : ",");
			put_group(s, dir->child + i, out);
		}
	}
	ofs_buf_puts(out, "]}");
}

static void put_dtypes(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = "";

	ofs_buf_puts(out, ",\"dtypes\":{");
	for (int t = 0; t < OFS_NDTYPES; t++) {
		if (s->dtype[t].tensors == 0)
			continue;
		ofs_buf_puts(out, between);
		put_count(out, ofs_dtype_name((enum ofs_dtype)t), &s->dtype[t]);
		between = ",";
	}
	ofs_buf_putc(out, '}');
}

static void put_sharding(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = "";

	ofs_buf_printf(out,
	    ",\"sharding\":{\"whole\":%" PRIu64 ",\"sharded\":%" PRIu64
	    ",\"flat\":%" PRIu64 ",\"replicated\":%" PRIu64
	    ",\"absent\":%" PRIu64 ",\"dims\":{",
	    s->whole, s->sharded, s->flat, s->replicated, s->lost);
	for (unsigned d = 0; d < OFS_MAX_DIMS; d++) {
		if (s->cut[d] == 0)
			continue;
		ofs_buf_printf(out, "%s\"%u\":%" PRIu64, between, d, s->cut[d]);
		between = ",";
	}
	ofs_buf_puts(out, "}}");
}

static void put_names(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_tree *tree = &s->fs->tree;
	uint32_t dir = ofs_tree_lookup(tree, 0, "extra");

	ofs_buf_puts(out, ",\"extra\":[");
	for (uint32_t i = 0; dir != OFS_NONE && i < tree->node[dir].nchild;
	     i++) {
		const char *name = tree->node[tree->node[dir].child + i].name;

		ofs_buf_puts(out, i == 0 ? "\"" : ",\"");
		ofs_buf_json(out, name, strlen(name));
		ofs_buf_putc(out, '"');
	}
	ofs_buf_putc(out, ']');
}

static void put_notes(const struct ofs_summary *s, const char *key,
    enum ofs_note_kind kind, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->fs->cat;
	const char *between = "";

	ofs_buf_printf(out, ",\"%s\":[", key);
	for (uint32_t i = 0; i < cat->nnotes; i++) {
		if (cat->notes[i].kind != kind)
			continue;
		ofs_buf_printf(out, "%s{", between);
		if (cat->notes[i].number == 0)
			ofs_buf_puts(out, "\"code\":null,");
		else
			ofs_buf_printf(out, "\"code\":\"OFS%03d\",",
			    cat->notes[i].number);
		put_string(out, "text", cat->notes[i].text);
		ofs_buf_putc(out, '}');
		between = ",";
	}
	ofs_buf_putc(out, ']');
}

static void put_views(const struct ofs_summary *s, struct ofs_buf *out)
{
	ofs_buf_puts(out, ",\"views\":{");
	for (unsigned i = 0; i < s->nviews; i++) {
		const struct ofs_summary_view *v = &s->view[i];
		bool can = v->why.code == 0;

		ofs_buf_puts(out, i == 0 ? "" : ",");
		ofs_buf_printf(out, "\"%s\":{\"ranked\":%s,\"possible\":%s,",
		    v->name, v->ranked ? "true" : "false",
		    can ? "true" : "false");
		put_string(out, "why_not", can ? NULL : v->why.text);
		ofs_buf_putc(out, '}');
	}
	ofs_buf_putc(out, '}');
}

static void put_checkpoint(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->fs->cat;

	put_string(out, "source", s->fs->source);
	ofs_buf_putc(out, ',');
	put_string(out, "format", cat->format);
	ofs_buf_putc(out, ',');
	put_string(out, "writer", cat->writer);
	ofs_buf_putc(out, ',');
	put_string(out, "trainer", cat->trainer);
	if (cat->world_size > 0)
		ofs_buf_printf(out, ",\"world_size\":%d", cat->world_size);
	else
		ofs_buf_puts(out, ",\"world_size\":null");
	ofs_buf_printf(out, ",\"ranks\":%" PRIu32, s->ranks);
	put_step(out, s->step);
	ofs_buf_printf(out,
	    ",\"files\":{\"count\":%" PRIu64 ",\"missing\":%" PRIu64
	    ",\"bytes\":%" PRIu64 "},",
	    s->files, s->missing_files, s->file_bytes);
	put_count(out, "model", &s->model);
	ofs_buf_putc(out, ',');
	put_count(out, "optimizer", &s->optimizer);
	ofs_buf_puts(out, ",\"optimizers\":[");
	for (unsigned i = 0; i < s->noptims; i++) {
		ofs_buf_puts(out, i == 0 ? "" : ",");
		put_optim(s, &s->optim[i], out);
	}
	ofs_buf_putc(out, ']');
	put_names(s, out);
	put_notes(s, "missing", OFS_NOTE_MISSING, out);
	put_notes(s, "errors", OFS_NOTE_ERROR, out);
	put_notes(s, "warnings", OFS_NOTE_WARNING, out);
	put_views(s, out);
}

void ofs_summary_json(const struct ofs_summary *s, struct ofs_buf *out)
{
	char path[4096] = "";

	if (s->below == 0) {
		ofs_buf_puts(out, "{\"v\":2,\"kind\":\"checkpoint\",");
		put_checkpoint(s, out);
	} else {
		ofs_at_path(s->fs, (struct ofs_at){ OFS_SPACE_TREE, s->below },
		    path, sizeof(path));
		ofs_buf_puts(out, "{\"v\":2,\"kind\":\"directory\",");
		put_string(out, "path", path);
	}
	ofs_buf_putc(out, ',');
	put_count(out, "all", &s->all);
	put_dtypes(s, out);
	put_sharding(s, out);
	ofs_buf_printf(out, ",\"damaged\":%" PRIu64, s->damaged);
	if (s->below == 0)
		ofs_buf_printf(out, ",\"problems\":%" PRIu64,
		    ofs_summary_problems(s));
	ofs_buf_puts(out, "}\n");
}
