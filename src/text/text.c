/* text.c - plain values as the text of their files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "text/fields.h"
#include "text/leaf.h"

/* The most nodes that one value may unfold to. Nodes are shared, so a few
 * hundred bytes of pickle can expand without bound. A long string counts as
 * several. */
#define VISITS_MAX (1u << 24)
#define VISIT_SIZE 8

/* More than the parser's limit of depth. */
#define FRAMES 256

struct frame {
	uint32_t node, next;
};

struct writer {
	const struct ofs_pickle *doc;
	struct ofs_buf *out;
	struct optimfs_error *err;
	struct ofs_text_budget budget;
	bool key; /* inside a key: mappings are not expanded */
	bool lossy;
	uint32_t depth;
	struct frame frame[FRAMES];
};

static int write_value(struct writer *w, uint32_t node);

enum ofs_text_kind ofs_text_kind(const struct ofs_pickle *doc, uint32_t node)
{
	uint32_t fields;

	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_NONE:
	case OFS_PK_BOOL:
	case OFS_PK_INT:
	case OFS_PK_BIGINT:
	case OFS_PK_FLOAT:
		return OFS_TEXT_SCALAR;
	case OFS_PK_STR:
		return OFS_TEXT_STRING;
	case OFS_PK_BYTES:
		return OFS_TEXT_BYTES;
	case OFS_PK_LIST:
	case OFS_PK_TUPLE:
	case OFS_PK_DICT:
	case OFS_PK_SET:
		return OFS_TEXT_JSON;
	case OFS_PK_GLOBAL:
	case OFS_PK_OBJECT:
	case OFS_PK_PERSID:
		break;
	}
	if (ofs_is_namespace(doc, node, &fields) ||
	    ofs_is_empty_deque(doc, node))
		return OFS_TEXT_JSON;
	switch (ofs_leaf(doc, node)) {
	case OFS_LEAF_NUMBER:
	case OFS_LEAF_QUOTED:
		return OFS_TEXT_SCALAR;
	case OFS_LEAF_TEXT:
	case OFS_LEAF_NAMED:
		return OFS_TEXT_STRING;
	default:
		return OFS_TEXT_OPAQUE;
	}
}

const char *ofs_text_kind_name(enum ofs_text_kind kind)
{
	static const char *const names[] = {
		[OFS_TEXT_SCALAR] = "scalar",
		[OFS_TEXT_STRING] = "string",
		[OFS_TEXT_BYTES] = "bytes",
		[OFS_TEXT_JSON] = "json",
		[OFS_TEXT_OPAQUE] = "object",
	};

	return names[kind];
}

static int spend(struct writer *w, uint64_t n)
{
	if (n > w->budget.visits)
		return optimfs_fail(w->err, E2BIG,
		    "OFS444 value expands to more than %u nodes", VISITS_MAX);
	w->budget.visits -= n;
	return 0;
}

/* Append bytes as the characters U+0000 to U+00FF. */
static void quoted_bytes(struct ofs_buf *out, const char *s, size_t n)
{
	ofs_buf_putc(out, '"');
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)s[i];

		if (c >= 0x80)
			ofs_buf_printf(out, "\\u00%02x", c);
		else
			ofs_buf_json(out, &s[i], 1);
	}
	ofs_buf_putc(out, '"');
}

/* Append a value that has no parts and is not a string. */
static void plain(struct writer *w, uint32_t node)
{
	const struct ofs_pickle *doc = w->doc;
	struct ofs_buf *out = w->out;
	struct ofs_str s;
	char text[80];
	int64_t i;

	switch (ofs_pk_kind(doc, node)) {
	case OFS_PK_NONE:
		ofs_buf_puts(out, "null");
		break;
	case OFS_PK_BOOL:
		ofs_buf_puts(out, ofs_pk_bool(doc, node) ? "true" : "false");
		break;
	case OFS_PK_INT:
		ofs_pk_int(doc, node, &i);
		ofs_buf_printf(out, "%" PRId64, i);
		break;
	case OFS_PK_FLOAT:
		ofs_print_double(ofs_pk_float(doc, node), text);
		ofs_buf_puts(out, text);
		break;
	case OFS_PK_BIGINT:
		s = ofs_pk_str(doc, node);
		ofs_leaf_bigint((const uint8_t *)s.p, s.len, out);
		break;
	default:
		if (ofs_leaf_text(doc, node, &w->budget, out) == OFS_LEAF_NAMED)
			w->lossy = true;
	}
}

/* The cost of printing a node, in visits. */
static uint64_t cost(const struct ofs_pickle *doc, uint32_t node)
{
	uint64_t n = ofs_pk_str(doc, node).len;

	if (ofs_pk_kind(doc, node) == OFS_PK_BIGINT)
		/* printing decimal digits takes quadratic time */
		return 1 + n * n / 64;
	return 1 + n / VISIT_SIZE;
}

static void quoted_leaf(struct writer *w, uint32_t node)
{
	struct ofs_buf text = { 0 };

	ofs_leaf_text(w->doc, node, &w->budget, &text);
	ofs_json_quote(w->out, text.data, text.len);
	w->out->bad = w->out->bad || text.bad;
	ofs_buf_fini(&text);
}

static void leaf(struct writer *w, uint32_t node)
{
	struct ofs_str s = ofs_pk_str(w->doc, node);
	size_t before = w->out->len;

	switch (ofs_pk_kind(w->doc, node)) {
	case OFS_PK_STR:
		ofs_json_quote(w->out, s.p, s.len);
		return;
	case OFS_PK_BYTES:
		w->lossy = true;
		quoted_bytes(w->out, s.p, s.len);
		return;
	default:
		break;
	}
	switch (ofs_leaf(w->doc, node)) {
	case OFS_LEAF_QUOTED:
	case OFS_LEAF_NAMED:
		w->lossy = true;
		quoted_leaf(w, node);
		return;
	case OFS_LEAF_TEXT:
		quoted_leaf(w, node);
		return;
	default:
		plain(w, node);
	}
	if (w->out->len > before && w->out->data[before] == '{')
		w->lossy = true;
}

static bool is_container(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_text_kind(doc, node) == OFS_TEXT_JSON;
}

/* Numbers by value, other texts by their bytes. The items are offsets of
 * NUL-terminated texts in data. */
static int by_value(const void *va, const void *vb, void *data)
{
	const char *s = (const char *)data + *(const size_t *)va;
	const char *t = (const char *)data + *(const size_t *)vb;
	double x, y;

	/* not strtod, which follows the program's locale */
	if (ofs_dtype_parse(OFS_FLOAT64, s, strlen(s), &x) == 0 &&
	    ofs_dtype_parse(OFS_FLOAT64, t, strlen(t), &y) == 0 &&
	    (x < y || x > y))
		return x < y ? -1 : 1;
	return strcmp(s, t);
}

/* Append the text of each member of a set to parts, with a NUL. */
static int write_parts(struct writer *w, uint32_t node, struct ofs_buf *parts,
    size_t *start)
{
	struct writer inner = {
		.doc = w->doc,
		.out = parts,
		.err = w->err,
		.budget = w->budget,
		.key = w->key,
	};
	uint32_t n = ofs_pk_len(w->doc, node);
	int ret = 0;

	for (uint32_t i = 0; i < n && ret == 0; i++) {
		start[i] = parts->len;
		ret = write_value(&inner, ofs_pk_item(w->doc, node, i));
		ofs_buf_putc(parts, '\0');
		if (ret == 0 && parts->bad)
			ret = ofs_no_memory(w->err);
	}
	w->budget = inner.budget;
	w->lossy = w->lossy || inner.lossy;
	return ret;
}

/* Python writes a set in an order that changes from process to process; its
 * text is sorted. Sets in sets are no deeper than the parser allows. */
static int write_set(struct writer *w, uint32_t node)
{
	uint32_t n = ofs_pk_len(w->doc, node);
	size_t *start = calloc((size_t)n + 1, sizeof(*start));
	struct ofs_buf parts = { 0 };
	int ret = start == NULL ? ofs_no_memory(w->err)
				: write_parts(w, node, &parts, start);

	if (ret == 0)
		qsort_r(start, n, sizeof(*start), by_value, parts.data);
	ofs_buf_putc(w->out, '[');
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		if (i > 0)
			ofs_buf_puts(w->out, ", ");
		ofs_buf_puts(w->out, (char *)parts.data + start[i]);
	}
	ofs_buf_putc(w->out, ']');
	ofs_buf_fini(&parts);
	free(start);
	return ret;
}

static int enter(struct writer *w, uint32_t node)
{
	bool namespace = ofs_is_namespace(w->doc, node, &node);
	bool dict;

	w->lossy = w->lossy || namespace;
	if (namespace && node == OFS_NONE) {
		ofs_buf_puts(w->out, "{}");
		return spend(w, 1);
	}
	if (ofs_is_empty_deque(w->doc, node)) {
		ofs_buf_puts(w->out, "[]");
		return spend(w, 1);
	}
	dict = ofs_pk_kind(w->doc, node) == OFS_PK_DICT;
	if (spend(w, cost(w->doc, node)) == -1)
		return -1;
	if (!is_container(w->doc, node)) {
		leaf(w, node);
		return 0;
	}
	if (ofs_pk_kind(w->doc, node) == OFS_PK_SET)
		return write_set(w, node);
	if (w->key && dict) {
		ofs_buf_puts(w->out, "{}");
		return 0;
	}
	if (w->depth == FRAMES)
		return optimfs_fail(w->err, E2BIG,
		    "OFS410 value is nested deeper than %d", FRAMES);
	ofs_buf_putc(w->out, dict ? '{' : '[');
	w->frame[w->depth++] = (struct frame){ node, 0 };
	return 0;
}

/* Keys in JSON are strings: a key of another kind is its own JSON, quoted.
 * Mappings in a key are not expanded, so this nests only once. */
static int write_key(struct writer *w, uint32_t node)
{
	struct writer inner = {
		.doc = w->doc,
		.err = w->err,
		.budget = w->budget,
		.key = true,
	};
	enum ofs_pk_kind kind = ofs_pk_kind(w->doc, node);
	struct ofs_buf text = { 0 };
	int ret;

	if (kind == OFS_PK_STR || kind == OFS_PK_BYTES) {
		ret = spend(w, cost(w->doc, node));
		if (ret == 0)
			leaf(w, node);
		return ret;
	}
	inner.out = &text;
	ret = write_value(&inner, node);
	w->budget = inner.budget;
	if (ret == 0 && text.len > 0 && text.data[0] == '"')
		ofs_buf_put(w->out, text.data, text.len);
	else if (ret == 0)
		ofs_json_quote(w->out, text.data, text.len);
	w->out->bad = w->out->bad || text.bad;
	ofs_buf_fini(&text);
	return ret;
}

/* One step in the innermost container: write its next part, or its end. */
static int step(struct writer *w)
{
	struct frame *f = &w->frame[w->depth - 1];
	bool dict = ofs_pk_kind(w->doc, f->node) == OFS_PK_DICT;
	uint32_t child;

	if (f->next == ofs_pk_len(w->doc, f->node)) {
		ofs_buf_putc(w->out, dict ? '}' : ']');
		w->depth--;
		return 0;
	}
	if (f->next > 0)
		ofs_buf_puts(w->out, ", ");
	if (dict) {
		if (write_key(w, ofs_pk_key(w->doc, f->node, f->next)) == -1)
			return -1;
		ofs_buf_puts(w->out, ": ");
		child = ofs_pk_val(w->doc, f->node, f->next);
	} else {
		child = ofs_pk_item(w->doc, f->node, f->next);
	}
	f->next++;
	return enter(w, child);
}

static int write_value(struct writer *w, uint32_t node)
{
	if (enter(w, node) == -1)
		return -1;
	while (w->depth > 0 && !w->out->bad)
		if (step(w) == -1)
			return -1;
	return 0;
}

bool ofs_text_fits_lines(const struct ofs_pickle *doc, uint32_t node)
{
	if (!ofs_pk_is_sequence(doc, node))
		return false;
	for (uint32_t i = 0; i < ofs_pk_len(doc, node); i++) {
		uint32_t item = ofs_pk_item(doc, node, i);
		enum ofs_pk_kind kind = ofs_pk_kind(doc, item);
		struct ofs_str s = ofs_pk_str(doc, item);

		if (kind != OFS_PK_STR && kind != OFS_PK_INT)
			return false;
		if (s.len > 0 && memchr(s.p, '\n', s.len) != NULL)
			return false;
	}
	return true;
}

static int write_lines(struct writer *w, uint32_t node)
{
	for (uint32_t i = 0; i < ofs_pk_len(w->doc, node); i++) {
		uint32_t item = ofs_pk_item(w->doc, node, i);
		struct ofs_str s = ofs_pk_str(w->doc, item);

		if (spend(w, cost(w->doc, item)) == -1)
			return -1;
		if (ofs_pk_kind(w->doc, item) == OFS_PK_STR)
			ofs_buf_put(w->out, s.p, s.len);
		else
			plain(w, item);
		ofs_buf_putc(w->out, '\n');
	}
	return 0;
}

static int write_file(struct writer *w, uint32_t node, bool lines)
{
	struct ofs_str s = ofs_pk_str(w->doc, node);

	if (lines && ofs_text_fits_lines(w->doc, node))
		return write_lines(w, node);
	switch (ofs_pk_kind(w->doc, node)) {
	case OFS_PK_STR:
	case OFS_PK_BYTES:
		ofs_buf_put(w->out, s.p, s.len);
		break;
	default:
		if (!is_container(w->doc, node))
			plain(w, node);
		else if (write_value(w, node) == -1)
			return -1;
	}
	if (ofs_pk_kind(w->doc, node) != OFS_PK_BYTES)
		ofs_buf_putc(w->out, '\n');
	return 0;
}

int ofs_text_value(const struct ofs_pickle *doc, uint32_t node,
    const struct ofs_text_form *form, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct writer w = {
		.doc = doc,
		.out = out,
		.err = err,
		.budget = {
			.visits = VISITS_MAX,
			.storages = form == NULL ? NULL : form->storages,
			.err = err,
		},
	};
	size_t before = out->len;
	int ret = write_file(&w, node, form != NULL && form->lines);

	if (w.budget.failed)
		ret = -1;
	if (ret == 0 && out->bad)
		ret = ofs_no_memory(err);
	if (ret == -1)
		out->len = before;
	else if (form != NULL && form->lossy != NULL)
		*form->lossy = *form->lossy || w.lossy;
	return ret;
}
