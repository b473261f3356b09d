/* plain.c - opcodes that need no more than one new node */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/opcode.h"

/* Most opcodes of an index push a node that exists, store the top of the stack in
 * the memo, or make an empty container or object. They run here in one loop
 * while nothing is unusual. The unusual (the end of the input, a full array, an
 * index that was never put) is left to execute(), which also reports all
 * errors. */

/* A copy of what the loop uses. It stays in registers, where no store into the
 * stack can change it. */
struct run {
	const uint8_t *at;
	uint32_t *stack, *memo;
	size_t n, fence;     /* the height of the stack, and of its last MARK */
	size_t nmemo, dense; /* MEMOIZE may store below dense */
};

static inline uint32_t known(const struct run *r, uint32_t i)
{
	return i < r->nmemo ? r->memo[i] : OFS_NONE;
}

static inline uint32_t known_int(const struct pk_parser *p, uint32_t v)
{
	uint32_t node = p->ints[pk_int_slot(v)];

	return node != 0 && pk_word(pk_at(p->doc, node)) == v ? node : OFS_NONE;
}

static inline bool push(struct run *r, uint32_t node, size_t len)
{
	if ((node & PK_WRAPPED) != 0) /* a bit of OFS_NONE, too */
		return false;
	r->stack[r->n++] = node;
	r->at += len;
	return true;
}

static inline bool memoize(struct run *r)
{
	if (r->nmemo >= r->dense || r->n == r->fence)
		return false;
	r->memo[r->nmemo++] = r->stack[r->n - 1];
	r->at++;
	return true;
}

static inline bool mark(struct pk_parser *p, struct run *r)
{
	if (p->nmarks == p->cap_marks)
		return false;
	p->marks[p->nmarks++] = (uint32_t)r->n;
	r->fence = r->n;
	r->at++;
	return true;
}

/* Push a new node of one kind, which has no items yet. */
static inline bool push_new(struct pk_parser *p, struct run *r,
    struct pk_node x)
{
	struct ofs_pickle *doc = p->doc;

	if (doc->nnodes == doc->cap_nodes)
		return false;
	doc->node[doc->nnodes] = x;
	return push(r, (uint32_t)doc->nnodes++, 1);
}

/* Most objects are made by a class without arguments, and get their attributes
 * by BUILD. */
static inline bool newobj(struct pk_parser *p, struct run *r)
{
	struct pk_node made = {
		.kind = OFS_PK_OBJECT,
		.flags = PK_NEWOBJ,
		.height = 1,
		.v = { 0, PK_EMPTY_TUPLE, OFS_NONE },
	};
	const struct pk_node *class;

	if (r->n - r->fence < 2 || r->stack[r->n - 1] != PK_EMPTY_TUPLE)
		return false;
	made.v[0] = r->stack[r->n - 2];
	class = pk_at(p->doc, made.v[0]);
	if (class->kind != OFS_PK_GLOBAL ||
	    p->doc->nnodes == p->doc->cap_nodes)
		return false;
	p->doc->global[class->v[0]].called = true;
	r->n -= 2;
	return push_new(p, r, made);
}

static inline bool build(struct pk_parser *p, struct run *r)
{
	uint32_t node, state;
	struct pk_node *x;

	if (r->n - r->fence < 2)
		return false;
	node = r->stack[r->n - 2];
	state = r->stack[r->n - 1];
	x = pk_at(p->doc, node);
	if (x->kind != OFS_PK_OBJECT || x->v[2] != OFS_NONE ||
	    pk_at(p->doc, state)->height >= p->depth)
		return false;
	x->v[2] = state;
	pk_place(p, node, state); /* which is not too deep */
	r->n--;
	r->at++;
	return true;
}

/* Run one opcode; false: it is for execute(). */
static inline bool run_plain(struct pk_parser *p, struct run *r)
{
	const uint8_t *at = r->at;

	if (at[0] == OP_MEMOIZE) /* a quarter of all */
		return memoize(r);
	switch (at[0]) {
	case OP_MARK:
		return mark(p, r);
	case OP_NONE:
		return push(r, PK_NONE_NODE, 1);
	case OP_NEWTRUE:
		return push(r, PK_TRUE_NODE, 1);
	case OP_NEWFALSE:
		return push(r, PK_FALSE_NODE, 1);
	case OP_EMPTY_TUPLE:
		return push(r, PK_EMPTY_TUPLE, 1);
	case OP_EMPTY_LIST:
		return push_new(p, r,
		    (struct pk_node){ .kind = OFS_PK_LIST,
			.flags = PK_MUTABLE,
			.height = 1 });
	case OP_EMPTY_DICT:
		return push_new(p, r,
		    (struct pk_node){ .kind = OFS_PK_DICT,
			.flags = PK_MUTABLE,
			.height = 1 });
	case OP_NEWOBJ:
		return newobj(p, r);
	case OP_BUILD:
		return build(p, r);
	case OP_BINGET:
		return push(r, known(r, at[1]), 2);
	case OP_LONG_BINGET:
		return push(r, known(r, ofs_le32(at + 1)), 5);
	case OP_BININT1:
		return push(r, known_int(p, at[1]), 2);
	case OP_BININT2:
		return push(r, known_int(p, at[1] | (uint32_t)at[2] << 8), 3);
	default:
		return false;
	}
}

void pk_run_plain(struct pk_parser *p)
{
	struct run r = {
		.at = p->c.p,
		.stack = p->stack,
		.memo = p->memo,
		.n = p->nstack,
		.fence = pk_fence(p),
		.nmemo = p->nmemo,
		.dense = p->nputs == p->nmemo ? p->cap_memo : 0,
	};
	/* the longest opcode has five bytes */
	const uint8_t *last = p->c.end - (p->c.end - r.at > 4 ? 4 : 0);
	size_t full = p->cap_stack;

	if (last == p->c.end)
		return;
	while (r.at < last && r.n < full && run_plain(p, &r))
		;
	p->c.p = r.at;
	p->nstack = r.n;
	p->nputs += r.nmemo - p->nmemo;
	p->nmemo = r.nmemo;
}
