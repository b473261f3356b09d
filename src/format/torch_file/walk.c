/* walk.c - paths from a pickled object's mappings and lists */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "format/torch_file/leaf.h"
#include "format/torch_file/sharded.h"
#include "text/key.h"

/* The deepest nesting of containers; more than the parser's limit. */
#define MAX_DEPTH 256
/* Shared containers can unfold without bound. The most items that are visited,
 * and the most for each node of the pickle. */
#define MAX_VISITS      (1u << 20)
#define VISITS_PER_NODE 16

/* A container whose items are being visited. */
struct frame {
	uint32_t node, next, n;
	bool dict;
	bool hollow; /* a sequence of empty mappings that is in no sequence */
	/* of a dict: components; OFS_NONE: the key is repeated later */
	uint32_t *key;
};

enum known {
	WALKED = 1, /* it was examined */
	NESTS = 2,  /* it becomes a directory */
};

struct walk {
	struct ofs_catalog *cat;
	const struct ofs_pickle *doc;
	ofs_torch_visit_fn *leaf;
	void *ctx;
	/* of each node of doc, so that a value with a million references is
	 * examined once */
	uint8_t *known;  /* enum known */
	uint64_t visits; /* that are left */
	uint32_t *path;  /* components of the path to the current item */
	size_t nprefix;
	struct frame frame[MAX_DEPTH];
	unsigned depth;
	struct ofs_buf text;
	struct optimfs_error *err;
};

static int visit(struct walk *w)
{
	if (w->visits-- > 0)
		return 0;
	w->visits = 0;
	return optimfs_fail(w->err, E2BIG,
	    "OFS444 its containers refer to each other so often that they "
	    "unfold to more than %" PRIu64 " items",
	    MAX_VISITS + VISITS_PER_NODE * (uint64_t)ofs_pickle_nodes(w->doc));
}

static bool is_tensor(const struct ofs_pickle *doc, uint32_t node)
{
	enum ofs_pk_kind kind = ofs_pk_kind(doc, node);
	struct ofs_torch_tensor t;

	return (kind == OFS_PK_OBJECT || kind == OFS_PK_PERSID) &&
	    (ofs_torch_is_sharded(doc, node) ||
		ofs_torch_tensor(doc, node, &t, NULL) != 0);
}

/* A list or tuple whose items may be separate entries. A deque stays one value,
 * as in DCP: no list could say its length. */
static bool is_sequence(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_pk_is_sequence(doc, node) &&
	    !ofs_pk_is(doc, node, "collections", "deque");
}

/* Does node become a directory; as an item, does it make its list one? 1 or 0;
 * -1 when it must be examined. */
static int nests(const struct walk *w, uint32_t node)
{
	uint8_t known = w->known[node];

	if (ofs_pk_kind(w->doc, node) == OFS_PK_DICT || is_tensor(w->doc, node))
		return 1;
	if (!is_sequence(w->doc, node))
		return 0;
	if ((known & WALKED) == 0)
		return -1;
	return (known & NESTS) != 0;
}

struct level {
	uint32_t node, next;
};

/* Examine the items of the innermost of depth levels until one decides; returns
 * the new depth. */
static unsigned look(struct walk *w, struct level *stack, unsigned depth)
{
	struct level *top = &stack[depth - 1];
	uint32_t n = ofs_pk_len(w->doc, top->node);
	uint8_t verdict = WALKED;

	for (; top->next < n; top->next++) {
		uint32_t item = ofs_pk_item(w->doc, top->node, top->next);
		int is = nests(w, item);

		if (is == -1 && depth < MAX_DEPTH) {
			stack[depth] = (struct level){ item, 0 };
			return depth + 1;
		}
		if (is == 1) {
			verdict |= NESTS;
			break;
		}
	}
	w->known[top->node] |= verdict;
	return depth - 1;
}

/* Does a list or tuple become a directory? It does if it contains a tensor or a
 * mapping, or a list or tuple that becomes one. */
static bool descends(struct walk *w, uint32_t node)
{
	struct level stack[MAX_DEPTH] = { { node, 0 } };
	unsigned depth = nests(w, node) == -1;

	while (depth > 0)
		depth = look(w, stack, depth);
	return nests(w, node) == 1;
}

/* The key of pair i as a path component. */
static uint32_t key_component(struct walk *w, uint32_t node, uint32_t i)
{
	uint32_t key = ofs_pk_key(w->doc, node, i), c;

	w->text.len = 0;
	ofs_torch_key(w->doc, key, i, &w->text);
	if (w->text.bad) {
		ofs_no_memory(w->err);
		return OFS_NONE;
	}
	c = ofs_catalog_str(w->cat, w->text.len > 0 ? (char *)w->text.data : "",
	    w->text.len, w->err);
	if (c != OFS_NONE && ofs_torch_key_is_plain(w->doc, key))
		c |= OFS_PATH_PLAIN;
	return c;
}

/* Two pairs of a dict have the same key if component and kind are equal. */
struct same {
	uint32_t component, kind, pair;
};

OFS_COMPARE_BY3(by_key, struct same, component, kind, pair)

/* Python keeps the last value of a repeated key. */
static int drop_repeated(struct walk *w, struct frame *f)
{
	struct same *s = malloc(f->n * sizeof(*s) + 1);
	int ret = 0;

	if (s == NULL)
		return ofs_no_memory(w->err);
	for (uint32_t i = 0; i < f->n; i++)
		s[i] = (struct same){ f->key[i],
			ofs_pk_kind(w->doc, ofs_pk_key(w->doc, f->node, i)),
			i };
	qsort(s, f->n, sizeof(*s), by_key);
	for (uint32_t i = 1; i < f->n && ret == 0; i++) {
		struct ofs_str key;

		if (s[i].component != s[i - 1].component ||
		    s[i].kind != s[i - 1].kind)
			continue;
		key = ofs_catalog_string(w->cat, s[i].component);
		f->key[s[i - 1].pair] = OFS_NONE;
		ret = ofs_catalog_note(w->cat, OFS_NOTE_WARNING, 0, w->err,
		    "OFS428 duplicate key '%.*s': the last one counts",
		    OFS_STR_ARGS(key, 200));
	}
	free(s);
	return ret;
}

static int read_keys(struct walk *w, struct frame *f)
{
	f->key = malloc(f->n * sizeof(*f->key) + 1);
	if (f->key == NULL)
		return ofs_no_memory(w->err);
	for (uint32_t i = 0; i < f->n; i++) {
		f->key[i] = key_component(w, f->node, i);
		if (f->key[i] == OFS_NONE || visit(w) == -1)
			return -1;
	}
	return drop_repeated(w, f);
}

static bool is_empty_dict(const struct walk *w, uint32_t node)
{
	return ofs_pk_kind(w->doc, node) == OFS_PK_DICT &&
	    ofs_pk_len(w->doc, node) == 0;
}

static bool is_hollow(const struct walk *w, const struct frame *f)
{
	bool inner = f > w->frame && !f[-1].dict;
	uint32_t i = 0;

	if (f->dict || inner)
		return false;
	while (i < f->n && is_empty_dict(w, ofs_pk_item(w->doc, f->node, i)))
		i++;
	return i == f->n;
}

static int enter(struct walk *w, uint32_t node)
{
	struct frame *f = &w->frame[w->depth];

	if (w->depth == MAX_DEPTH)
		return optimfs_fail(w->err, E2BIG,
		    "OFS410 nesting deeper than %d (limit)", MAX_DEPTH);
	w->depth++;
	*f = (struct frame){ .node = node,
		.n = ofs_pk_len(w->doc, node),
		.dict = ofs_pk_kind(w->doc, node) == OFS_PK_DICT };
	f->hollow = is_hollow(w, f);
	return f->dict ? read_keys(w, f) : 0;
}

static void leave(struct walk *w)
{
	free(w->frame[--w->depth].key);
}

static uint32_t index_component(struct walk *w, uint32_t node, uint32_t i)
{
	uint32_t flags = OFS_PATH_INDEX;
	char text[16];
	uint32_t c;

	c = ofs_catalog_str(w->cat, text,
	    (size_t)snprintf(text, sizeof(text), "%" PRIu32, i), w->err);
	if (ofs_pk_kind(w->doc, node) == OFS_PK_TUPLE)
		flags |= OFS_PATH_TUPLE;
	return c | flags;
}

static bool is_called_state(const struct walk *w, unsigned depth)
{
	return depth > 0 &&
	    ofs_str_is(ofs_catalog_string(w->cat,
			   OFS_PATH_STR(w->path[w->nprefix + depth - 1])),
		"state");
}

/* Does node, at the current path, become a directory? An empty mapping is a
 * value: a program may look for its key, and other items of its list would lose
 * their places without it. But optimizers, and parameters, without state have no
 * file. */
static bool is_directory(struct walk *w, uint32_t node)
{
	const struct frame *in = w->depth > 0 ? &w->frame[w->depth - 1] : NULL;

	if (is_empty_dict(w, node))
		return in == NULL || in->hollow ||
		    is_called_state(w, w->depth) ||
		    is_called_state(w, w->depth - 1);
	return ofs_pk_kind(w->doc, node) == OFS_PK_DICT ||
	    (is_sequence(w->doc, node) && descends(w, node));
}

/* Visit a value at the current path. */
static int visit_value(struct walk *w, uint32_t node)
{
	size_t n = w->nprefix + w->depth;
	uint32_t path;

	if (is_directory(w, node))
		return enter(w, node);
	if (n == 0)
		/* the root is not a mapping: its file needs a name */
		w->path[n++] = ofs_catalog_str(w->cat,
		    is_tensor(w->doc, node) ? "tensor" : "value",
		    is_tensor(w->doc, node) ? 6 : 5, w->err);
	path = ofs_catalog_path(w->cat, w->path, n, w->err);
	if (path == OFS_NONE)
		return -1;
	return w->leaf(w->ctx, path, node, w->err);
}

/* Visit the next item of the innermost container. */
static int step(struct walk *w)
{
	struct frame *f = &w->frame[w->depth - 1];
	uint32_t i = f->next++, c, item;

	if (i == f->n) {
		leave(w);
		return 0;
	}
	if (visit(w) == -1)
		return -1;
	c = f->dict ? f->key[i] : index_component(w, f->node, i);
	if (f->dict && c == OFS_NONE)
		return 0;
	if (c == OFS_NONE)
		return -1;
	w->path[w->nprefix + w->depth - 1] = c;
	item = f->dict ? ofs_pk_val(w->doc, f->node, i)
		       : ofs_pk_item(w->doc, f->node, i);
	return visit_value(w, item);
}

static int walk(struct walk *w, uint32_t root)
{
	int ret = visit_value(w, root);

	while (ret == 0 && w->depth > 0)
		ret = step(w);
	while (w->depth > 0)
		leave(w);
	return ret;
}

int ofs_torch_walk(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t root, const uint32_t *prefix, size_t npref,
    ofs_torch_visit_fn *leaf, void *ctx, struct optimfs_error *err)
{
	struct walk *w = calloc(1, sizeof(*w));
	int ret = -1;

	if (w == NULL)
		return ofs_no_memory(err);
	w->cat = cat;
	w->doc = doc;
	w->leaf = leaf;
	w->ctx = ctx;
	w->visits =
	    MAX_VISITS + VISITS_PER_NODE * (uint64_t)ofs_pickle_nodes(doc);
	w->nprefix = npref;
	w->err = err;
	w->path = calloc(npref + MAX_DEPTH + 1, sizeof(*w->path));
	w->known = calloc(ofs_pickle_nodes(doc), sizeof(*w->known));
	if (w->path == NULL || w->known == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	if (npref > 0)
		memcpy(w->path, prefix, npref * sizeof(*prefix));
	ret = walk(w, root);
out:
	ofs_buf_fini(&w->text);
	free(w->path);
	free(w->known);
	free(w);
	return ret;
}

static int add_leaf(void *ctx, uint32_t path, uint32_t node,
    struct optimfs_error *err)
{
	return ofs_torch_leaf(ctx, node, path, err);
}

int ofs_torch_add(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t root, const struct ofs_torch_archive *at, const uint32_t *prefix,
    size_t npref, struct optimfs_error *err)
{
	struct ofs_torch_leaves leaves;
	int ret = ofs_torch_leaves_init(&leaves, cat, doc, at, err);

	if (ret == 0)
		ret = ofs_torch_walk(cat, doc, root, prefix, npref, add_leaf,
		    &leaves, err);
	if (ret == 0)
		ret = ofs_torch_leaves_end(&leaves, err);
	ofs_torch_leaves_fini(&leaves);
	return ret;
}
