/* write_node.c - the graph of a parsed pickle, pickled again */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/str.h"
#include "pickle/pickle_impl.h"
#include "pickle/write.h"

/* More than the parser's limit of depth. */
#define FRAMES     256
#define VISITS_MAX (1u << 24)

/* A container that is being written, and its next step. */
struct frame {
	uint32_t node, next;
	uint8_t made; /* the next step of the call that makes it */
};

enum { CALLABLE, ARGUMENTS, KEYWORDS, CALL, MADE };

/* A node that is in the memo. */
struct seen {
	uint32_t node, memo;
};

struct graph {
	struct ofs_pkw *w;
	const struct ofs_pickle *doc;
	struct seen *seen;
	uint32_t nseen, cap;
	struct ofs_map map;
	uint32_t visits;
	unsigned depth;
	struct frame frame[FRAMES];
	struct optimfs_error *err;
};

static bool same(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct graph *g = ctx;

	(void)n;
	return g->seen[index].node == *(const uint32_t *)key;
}

static uint32_t seen_at(const struct graph *g, uint32_t node)
{
	if (g->w->plain)
		return UINT32_MAX;
	return ofs_map_find(&g->map, ofs_map_hash(&node, sizeof(node)), same, g,
	    &node, sizeof(node));
}

static bool get_seen(struct graph *g, uint32_t node)
{
	uint32_t i = seen_at(g, node);

	if (i == UINT32_MAX)
		return false;
	ofs_pkw_get(g->w, g->seen[i].memo);
	return true;
}

/* The object on the stack is node, which is complete. One that is its own part
 * was written a second time, where it refers to itself: that is the one that
 * others know. */
static bool was_made(struct graph *g, uint32_t node)
{
	uint32_t i = seen_at(g, node);

	if (i == UINT32_MAX)
		return false;
	ofs_pkw_op(g->w, OFS_PKW_POP);
	ofs_pkw_get(g->w, g->seen[i].memo);
	return true;
}

/* node was put into the memo last: note its number. */
static int learn(struct graph *g, uint32_t node)
{
	if (g->w->plain)
		return 0;
	if (ofs_grow(g->seen, g->nseen, g->cap, g->err) == -1)
		return -1;
	g->seen[g->nseen] = (struct seen){ node, g->w->memo - 1 };
	if (!ofs_map_add(&g->map, ofs_map_hash(&node, sizeof(node)), g->nseen))
		return ofs_no_memory(g->err);
	g->nseen++;
	return 0;
}

static int unsupported(struct graph *g, const char *what)
{
	return optimfs_fail(g->err, EOPNOTSUPP,
	    "OFS448 %s cannot be written (drop=opaque leaves it out)", what);
}

/* Cut the part before the first dot, and the dot. */
static struct ofs_str cut_part(struct ofs_str *s)
{
	struct ofs_str part = *s;
	const char *dot = memchr(s->p, '.', s->len);

	if (dot != NULL)
		part.len = (uint32_t)(dot - s->p);
	*s = ofs_str_after(*s, dot != NULL ? part.len + 1 : part.len);
	return part;
}

/* Write a class within a class as getattr(getattr(A, 'B'), 'C'), because names
 * in protocol 2 have no dots. */
static void put_within(struct graph *g, const struct ofs_pk_global *name)
{
	struct ofs_str left = name->name, part;

	for (uint32_t i = 0; i < left.len; i++)
		if (left.p[i] == '.')
			ofs_pkw_global(g->w, "__builtin__", "getattr");
	part = cut_part(&left);
	ofs_pkw_name(g->w, name->module, part);
	while (left.len > 0) {
		part = cut_part(&left);
		ofs_pkw_str(g->w, part.p, part.len);
		ofs_pkw_tuple_close(g->w, 2);
		ofs_pkw_op(g->w, OFS_PKW_REDUCE);
	}
}

/* A copy may name any global: writing it runs nothing. */
static bool is_allowed(struct graph *g, const struct ofs_pk_global *name)
{
	if (ofs_pk_global_allowed(name))
		return true;
	g->w->foreign = g->w->copies;
	return g->w->copies;
}

static int put_global(struct graph *g, uint32_t node)
{
	const struct ofs_pk_global *name =
	    &g->doc->global[pk_at(g->doc, node)->v[0]];
	const char *dot = memchr(name->name.p, '.', name->name.len);

	if (!is_allowed(g, name))
		return optimfs_fail(g->err, EPERM,
		    "OFS445 the value names %.*s.%.*s, which cannot be written "
		    "(drop=opaque leaves it out)",
		    OFS_STR_ARGS(name->module, 80),
		    OFS_STR_ARGS(name->name, 80));
	if (dot != NULL)
		put_within(g, name);
	else
		ofs_pkw_name(g->w, name->module, name->name);
	ofs_pkw_put(g->w);
	return learn(g, node);
}

/* Write bytes as Latin-1 text, as protocol 2 does. */
static void put_latin1(struct ofs_pkw *w, struct ofs_str s)
{
	struct ofs_buf text = { 0 };

	for (uint32_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];

		if (c >= 0x80)
			ofs_buf_putc(&text, 0xc0 | c >> 6);
		ofs_buf_putc(&text, c >= 0x80 ? 0x80 | (c & 0x3f) : c);
	}
	w->out->bad = w->out->bad || text.bad;
	ofs_pkw_str(w, (char *)text.data, text.len);
	ofs_buf_fini(&text);
}

void ofs_pkw_bytes(struct ofs_pkw *w, const void *p, size_t n, bool array)
{
	struct ofs_str s = { p, (uint32_t)n };

	if (array)
		ofs_pkw_global(w, "__builtin__", "bytearray");
	else if (s.len == 0)
		ofs_pkw_global(w, "__builtin__", "bytes");
	else
		ofs_pkw_global(w, "_codecs", "encode");
	if (s.len == 0) {
		ofs_pkw_op(w, OFS_PKW_UNIT);
	} else {
		put_latin1(w, s);
		ofs_pkw_known(w, array ? "latin-1" : "latin1");
		ofs_pkw_tuple_close(w, 2);
	}
	ofs_pkw_op_put(w, OFS_PKW_REDUCE);
}

void ofs_pkw_long(struct ofs_pkw *w, const void *le, size_t n)
{
	ofs_buf_putc(w->out, n < 256 ? 0x8a : 0x8b);
	ofs_buf_put_le(w->out, n, n < 256 ? 1 : 4);
	ofs_buf_put(w->out, le, n);
}

static int push(struct graph *g, uint32_t node)
{
	if (g->depth == FRAMES)
		return optimfs_fail(g->err, E2BIG,
		    "OFS410 value is nested deeper than %d", FRAMES);
	g->frame[g->depth++] = (struct frame){ node, 0, MADE };
	return 0;
}

/* Push an object that a call makes. */
static int push_call(struct graph *g, uint32_t node)
{
	if (push(g, node) == -1)
		return -1;
	g->frame[g->depth - 1].made = CALLABLE;
	return 0;
}

/* Write an empty mapping or list of the class of node. */
static int begin_instance(struct graph *g, uint32_t node)
{
	static const char *const classes[] = { "OrderedDict", "defaultdict",
		"Counter" };

	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
		if (!ofs_pk_is(g->doc, node, "collections", classes[i]) ||
		    pk_head(g->doc, pk_at(g->doc, node))[1] != PK_EMPTY_TUPLE)
			continue;
		ofs_pkw_global(g->w, "collections", classes[i]);
		ofs_pkw_op(g->w, OFS_PKW_UNIT);
		ofs_pkw_op_put(g->w, OFS_PKW_REDUCE);
		return learn(g, node) == -1 ? -1 : push(g, node);
	}
	return push_call(g, node);
}

static int begin_container(struct graph *g, uint32_t node, enum ofs_pkw_op op)
{
	if ((pk_at(g->doc, node)->flags & PK_CLASS) != 0)
		return begin_instance(g, node);
	ofs_pkw_op_put(g->w, op);
	return learn(g, node) == -1 ? -1 : push(g, node);
}

static int begin_set(struct graph *g, uint32_t node)
{
	bool frozen = (pk_at(g->doc, node)->flags & PK_MUTABLE) == 0;

	ofs_pkw_global(g->w, "__builtin__", frozen ? "frozenset" : "set");
	ofs_pkw_op_put(g->w, OFS_PKW_LIST);
	return push(g, node);
}

static int begin_tuple(struct graph *g, uint32_t node)
{
	bool size = (pk_at(g->doc, node)->flags & PK_SIZE) != 0;
	uint32_t n = ofs_pk_len(g->doc, node);

	if (n == 0 && !size) {
		ofs_pkw_op(g->w, OFS_PKW_UNIT);
		return 0;
	}
	if (size)
		ofs_pkw_global(g->w, "torch", "Size");
	ofs_pkw_tuple_open(g->w, n);
	return push(g, node);
}

static int begin_object(struct graph *g, uint32_t node)
{
	const struct pk_node *x = pk_at(g->doc, node);

	/* The attribute that getattr gives must be allowed itself. */
	if ((x->flags & PK_GETATTR) != 0 &&
	    !is_allowed(g, &g->doc->global[x->v[2]]))
		return optimfs_fail(g->err, EPERM,
		    "OFS445 the value takes %.160s, which cannot be written "
		    "(drop=opaque leaves it out)",
		    g->doc->ginfo[x->v[2]].full);
	return push_call(g, node);
}

static int enter_container(struct graph *g, uint32_t node)
{
	switch (ofs_pk_kind(g->doc, node)) {
	case OFS_PK_LIST:
		return begin_container(g, node, OFS_PKW_LIST);
	case OFS_PK_TUPLE:
		return begin_tuple(g, node);
	case OFS_PK_DICT:
		return begin_container(g, node, OFS_PKW_DICT);
	case OFS_PK_SET:
		return begin_set(g, node);
	case OFS_PK_OBJECT:
		return begin_object(g, node);
	default:
		if (g->w->storage != NULL)
			return g->w->storage(g->w->storage_ctx, g->w, g->doc,
			    node, g->err);
		return optimfs_fail(g->err, EOPNOTSUPP,
		    "OFS448 a tensor or storage inside a value (a tuple, a "
		    "list, an object) cannot be written (drop=opaque leaves it "
		    "out)");
	}
}

static int enter(struct graph *g, uint32_t node)
{
	struct ofs_str s = ofs_pk_str(g->doc, node);
	int64_t v;

	if (ofs_pk_is_cycle(g->doc, node)) {
		if (g->w->plain)
			return unsupported(g,
			    "a container that contains itself");
		node = pk_at(g->doc, node)->v[2];
	}
	if (g->visits-- == 0)
		return optimfs_fail(g->err, E2BIG,
		    "OFS444 value expands to more than %u nodes", VISITS_MAX);
	if (get_seen(g, node))
		return 0;
	switch (ofs_pk_kind(g->doc, node)) {
	case OFS_PK_NONE:
		ofs_pkw_op(g->w, OFS_PKW_NONE);
		return 0;
	case OFS_PK_BOOL:
		ofs_pkw_op(g->w,
		    ofs_pk_bool(g->doc, node) ? OFS_PKW_TRUE : OFS_PKW_FALSE);
		return 0;
	case OFS_PK_INT:
		ofs_pk_int(g->doc, node, &v);
		ofs_pkw_int(g->w, v);
		return 0;
	case OFS_PK_BIGINT:
		ofs_pkw_long(g->w, s.p, s.len);
		return 0;
	case OFS_PK_FLOAT:
		ofs_pkw_float(g->w, ofs_pk_float(g->doc, node));
		return 0;
	case OFS_PK_STR:
		ofs_pkw_str(g->w, s.p, s.len);
		return learn(g, node);
	case OFS_PK_BYTES:
		ofs_pkw_bytes(g->w, s.p, s.len,
		    (pk_at(g->doc, node)->flags & PK_MUTABLE) != 0);
		return learn(g, node);
	case OFS_PK_GLOBAL:
		return put_global(g, node);
	default:
		return enter_container(g, node);
	}
}

static int call(struct graph *g, uint32_t node)
{
	const struct pk_node *x = pk_at(g->doc, node);
	enum ofs_pkw_op op = OFS_PKW_REDUCE;

	if ((x->flags & PK_NEWOBJ) != 0)
		op = (x->flags & PK_KWARGS) != 0 ? OFS_PKW_NEWOBJ_EX
						 : OFS_PKW_NEWOBJ;
	ofs_pkw_op_put(g->w, op);
	if (was_made(g, node)) {
		g->depth--;
		return 0;
	}
	return learn(g, node);
}

/* Write the callable, its arguments and the call. */
static int step_call(struct graph *g, struct frame *f)
{
	const struct pk_node *x = pk_at(g->doc, f->node);
	const uint32_t *of =
	    x->kind == OFS_PK_OBJECT ? x->v : pk_head(g->doc, x);
	bool keywords = (x->flags & PK_KWARGS) != 0;

	switch (f->made++) {
	case CALLABLE:
		return enter(g, of[0]);
	case ARGUMENTS:
		return enter(g, keywords ? pk_at(g->doc, of[1])->v[0] : of[1]);
	case KEYWORDS:
		return keywords ? enter(g, pk_at(g->doc, of[1])->v[1]) : 0;
	default:
		return call(g, f->node);
	}
}

/* Write the attributes, if any, which come last. */
static int step_state(struct graph *g, struct frame *f)
{
	uint32_t state = ofs_pk_state(g->doc, f->node);

	if (state != OFS_NONE && f->next != OFS_NONE) {
		f->next = OFS_NONE;
		return enter(g, state);
	}
	if (state != OFS_NONE)
		ofs_pkw_op(g->w, OFS_PKW_BUILD);
	g->depth--;
	return 0;
}

static int step_list(struct graph *g, struct frame *f)
{
	uint32_t n = ofs_pk_len(g->doc, f->node), node = f->node;

	if (f->next == OFS_NONE)
		return step_state(g, f);
	ofs_pkw_item(g->w, f->next, n, OFS_PKW_APPEND, OFS_PKW_APPENDS);
	if (f->next < n)
		return enter(g, ofs_pk_item(g->doc, node, f->next++));
	if (ofs_pk_kind(g->doc, node) == OFS_PK_LIST)
		return step_state(g, f);
	g->depth--;
	ofs_pkw_tuple_close(g->w, 1);
	ofs_pkw_op_put(g->w, OFS_PKW_REDUCE);
	return was_made(g, node) ? 0 : learn(g, node);
}

/* Write keys and values in turn, then the attributes, if any. */
static int step_dict(struct graph *g, struct frame *f)
{
	uint32_t n = ofs_pk_len(g->doc, f->node), i = f->next / 2;

	if (f->next == OFS_NONE)
		return step_state(g, f);
	if (f->next % 2 == 1) {
		f->next++;
		return enter(g, ofs_pk_val(g->doc, f->node, i));
	}
	ofs_pkw_item(g->w, i, n, OFS_PKW_SETITEM, OFS_PKW_SETITEMS);
	if (i < n) {
		f->next++;
		return enter(g, ofs_pk_key(g->doc, f->node, i));
	}
	return step_state(g, f);
}

static int step_tuple(struct graph *g, struct frame *f)
{
	uint32_t n = ofs_pk_len(g->doc, f->node), node = f->node;

	if (f->next < n)
		return enter(g, ofs_pk_item(g->doc, node, f->next++));
	ofs_pkw_tuple_close(g->w, n);
	if ((pk_at(g->doc, node)->flags & PK_SIZE) != 0) {
		ofs_pkw_tuple_close(g->w, 1);
		ofs_pkw_op_put(g->w, OFS_PKW_REDUCE);
	}
	g->depth--;
	return was_made(g, node) ? 0 : learn(g, node);
}

static int step(struct graph *g)
{
	struct frame *f = &g->frame[g->depth - 1];

	if (f->made != MADE)
		return step_call(g, f);
	switch (ofs_pk_kind(g->doc, f->node)) {
	case OFS_PK_DICT:
		return step_dict(g, f);
	case OFS_PK_TUPLE:
		return step_tuple(g, f);
	case OFS_PK_OBJECT:
		return step_state(g, f);
	default:
		return step_list(g, f);
	}
}

int ofs_pkw_node(struct ofs_pkw *w, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err)
{
	struct graph g = {
		.w = w,
		.doc = doc,
		.visits = VISITS_MAX,
		.err = err,
	};
	int ret = enter(&g, node);

	while (ret == 0 && g.depth > 0 && !w->out->bad)
		ret = step(&g);
	free(g.seen);
	ofs_map_fini(&g.map);
	return ret;
}
