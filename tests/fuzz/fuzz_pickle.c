/* fuzz_pickle.c - parse arbitrary bytes as a pickle, walk the values, print them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "pickle/pickle.h"
#include "text/text.h"

#define DEPTH  64
#define VISITS 20000

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* A sink for bytes that must be read but are not compared. */
static volatile uint8_t sink;

/* Calls every accessor of a node. */
static void ask(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_str m, name, s;
	int64_t v;

	s = ofs_pk_str(doc, node);
	for (uint32_t i = 0; i < s.len; i += s.len < 64 ? 1 : s.len / 64)
		sink = (uint8_t)s.p[i];
	must(ofs_pk_kind_name(doc, node)[0] != '\0');
	ofs_pk_class(doc, node, &m, &name);
	must((m.len == 0) == (name.len == 0));
	ofs_pk_attribute(doc, node, &m, &name);
	ofs_pk_int(doc, node, &v);
	ofs_pk_float(doc, node);
	ofs_pk_bool(doc, node);
	ofs_pk_attr(doc, node, "x");
	ofs_pk_get(doc, node, "x");
	ofs_text_kind(doc, node);
	must(ofs_pk_item(doc, node, ofs_pk_len(doc, node)) == OFS_NONE);
	must(ofs_pk_key(doc, node, ofs_pk_len(doc, node)) == OFS_NONE);
}

/* Child i of a node; false after the last. */
static bool part(const struct ofs_pickle *doc, uint32_t node, uint32_t i,
    uint32_t *child)
{
	uint32_t n = ofs_pk_len(doc, node);

	if (ofs_pk_kind(doc, node) == OFS_PK_DICT) {
		*child = i % 2 == 0 ? ofs_pk_key(doc, node, i / 2)
				    : ofs_pk_val(doc, node, i / 2);
		n *= 2;
	} else {
		*child = ofs_pk_item(doc, node, i);
	}
	if (i < n) {
		must(*child != OFS_NONE);
		return true;
	}
	if (i == n)
		*child = ofs_pk_state(doc, node);
	else if (i == n + 1)
		*child = ofs_pk_callable(doc, node);
	else if (i == n + 2)
		*child = ofs_pk_args(doc, node);
	return i <= n + 2;
}

/* No path from the root may be longer than the limit, so none is a cycle. */
static void walk(const struct ofs_pickle *doc)
{
	struct {
		uint32_t node, next;
	} frame[DEPTH + 1];
	uint32_t depth = 1, child;

	frame[0].node = ofs_pickle_root(doc);
	frame[0].next = 0;
	ask(doc, frame[0].node);
	for (int visits = 0; depth > 0 && visits < VISITS; visits++) {
		if (!part(doc, frame[depth - 1].node, frame[depth - 1].next++,
			&child)) {
			depth--;
			continue;
		}
		if (child == OFS_NONE)
			continue;
		ask(doc, child);
		must(depth <= DEPTH);
		frame[depth].node = child;
		frame[depth++].next = 0;
	}
}

static void print(const struct ofs_pickle *doc, bool lines)
{
	struct ofs_buf out = { .limit = 1 << 24 };
	struct optimfs_error err = { 0 };

	if (ofs_text_value(doc, ofs_pickle_root(doc),
		&(struct ofs_text_form){ .lines = lines }, &out, &err) == -1)
		must(out.len == 0 && strncmp(err.text, "OFS4", 4) == 0);
	ofs_buf_fini(&out);
}

static void names(const struct ofs_pickle *doc)
{
	size_t n;
	const struct ofs_pk_global *g = ofs_pk_globals(doc, &n);

	for (size_t i = 0; i < n; i++) {
		must(g[i].module.len > 0 && g[i].name.len > 0);
		ofs_pk_global_allowed(&g[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct ofs_pickle_limits limits = { .memory = 64 << 20 };
	struct optimfs_error err = { 0 };
	struct ofs_pickle *doc;
	uint64_t used = 0;

	doc = ofs_pickle_parse(bytes, n, false, &limits, &used, &err);
	if (doc == NULL) {
		must(err.code != 0 && strncmp(err.text, "OFS4", 4) == 0);
		return 0;
	}
	must(used > 0 && used <= n);
	must(ofs_pickle_memory(doc) <= limits.memory);
	walk(doc);
	names(doc);
	print(doc, false);
	print(doc, true);
	ofs_pickle_free(doc);
	return 0;
}
