/* machine.c - the stack machine: what each opcode does */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "base/str.h"
#include "pickle/opcode.h"

/* Memo indexes follow the number of puts; some writers leave gaps of up to
 * this. */
#define MEMO_GAP 1024

static int too_few(struct pk_parser *p, size_t n, size_t has)
{
	return pk_fail(p, EUCLEAN, "OFS436",
	    "%s needs %zu items of the stack, there are %zu", pk_op_name(p->op),
	    n, has);
}

static inline int need(struct pk_parser *p, size_t n)
{
	size_t has = p->nstack - pk_fence(p);

	return has >= n ? 0 : too_few(p, n, has);
}

/* Replace the top n items by node. */
static int replace(struct pk_parser *p, size_t n, uint32_t node)
{
	if (node == OFS_NONE)
		return -1;
	p->nstack -= n;
	return pk_push(p, node);
}

static int mark(struct pk_parser *p)
{
	if (p->nmarks == p->cap_marks &&
	    pk_grow(p, &p->marks, &p->cap_marks, p->nmarks + 1,
		sizeof(*p->marks)) == -1)
		return -1;
	p->marks[p->nmarks++] = (uint32_t)p->nstack;
	return 0;
}

/* Remove the latest MARK; *n = the number of items above it. */
static int unmark(struct pk_parser *p, size_t *n)
{
	if (p->nmarks == 0)
		return pk_fail(p, EUCLEAN, "OFS436", "%s without MARK",
		    pk_op_name(p->op));
	*n = p->nstack - p->marks[--p->nmarks];
	return 0;
}

/* The memo grows with the number of puts; a large index alone does not grow
 * it. */
static int remember(struct pk_parser *p, uint64_t i, uint32_t what)
{
	if (!p->sparse && i > p->nputs + MEMO_GAP)
		return pk_fail(p, EUCLEAN, "OFS411",
		    "memo index %" PRIu64 " after %zu puts", i, p->nputs);
	if (i >= p->cap_memo &&
	    pk_grow(p, &p->memo, &p->cap_memo, i + 1, sizeof(*p->memo)) == -1)
		return -1;
	for (; p->nmemo <= i; p->nmemo++)
		p->memo[p->nmemo] = OFS_NONE;
	p->nputs += p->memo[i] == OFS_NONE;
	p->memo[i] = what;
	if (p->memoed != NULL)
		p->memoed(p, i, true);
	return 0;
}

static int put(struct pk_parser *p, uint64_t i)
{
	if (p->nstack == pk_fence(p))
		return pk_fail(p, EUCLEAN, "OFS413", "%s of an empty stack",
		    pk_op_name(p->op));
	return remember(p, i, pk_top(p, 0));
}

static int get(struct pk_parser *p, uint64_t i)
{
	uint32_t x;

	if (i >= p->nmemo || p->memo[i] == OFS_NONE)
		return pk_fail(p, EUCLEAN, "OFS412",
		    "memo index %" PRIu64 " not set", i);
	if (p->memoed != NULL)
		p->memoed(p, i, false);
	if ((p->memo[i] & PK_WRAPPED) != 0) {
		x = p->memo[i] & ~PK_WRAPPED;
		p->memo[i] = pk_tuple(p, &x, 1);
	}
	return pk_push(p, p->memo[i]);
}

static int put_operand(struct pk_parser *p, size_t n)
{
	uint64_t i = 0;

	return pk_operand(p, n, &i) == -1 ? -1 : put(p, i);
}

static int get_operand(struct pk_parser *p, size_t n)
{
	uint64_t i = 0;

	return pk_operand(p, n, &i) == -1 ? -1 : get(p, i);
}

/* The decimal index of the text opcodes PUT and GET. */
static int memo_line(struct pk_parser *p)
{
	const char *line = NULL;
	struct ofs_str s;
	uint64_t i = 0;
	size_t n = 0;

	if (pk_line(p, &line, &n) == -1)
		return -1;
	s = (struct ofs_str){ line, (uint32_t)n };
	if (n > 10 || (n > 0 && (!ofs_str_take_number(&s, &i) || s.len > 0)))
		return pk_fail(p, EUCLEAN, "OFS412", "bad operand of %s",
		    pk_op_name(p->op));
	return p->op == OP_PUT ? put(p, i) : get(p, i);
}

/* Read ahead: is a put next? *i gets its memo index. */
static bool take_put(const struct pk_parser *p, struct ofs_cursor *c,
    uint64_t *i)
{
	uint8_t op = ofs_cursor_u8(c);

	*i = p->nputs;
	if (op == OP_BINPUT)
		*i = ofs_cursor_u8(c);
	else if (op == OP_LONG_BINPUT)
		*i = ofs_cursor_le32(c);
	else if (op != OP_MEMOIZE)
		return false;
	return true;
}

/* Will the tuple of the top n items be put, and then be the only argument of
 * torch.Size? */
static bool becomes_size(const struct pk_parser *p, size_t n)
{
	struct ofs_cursor ahead = p->c;
	uint64_t i;

	return p->nstack - pk_fence(p) > n && pk_is_size(p, pk_top(p, n)) &&
	    take_put(p, &ahead, &i) && ofs_cursor_u8(&ahead) == OP_TUPLE1 &&
	    take_put(p, &ahead, &i) && ofs_cursor_u8(&ahead) == OP_REDUCE &&
	    !ahead.bad;
}

static int tuple(struct pk_parser *p, size_t n)
{
	const uint32_t *v;

	if (need(p, n) == -1)
		return -1;
	v = p->stack + p->nstack - n;
	return replace(p, n,
	    becomes_size(p, n) ? pk_size(p, v, n) : pk_tuple(p, v, n));
}

/* TUPLE1, a put and REDUCE, with torch.Size and a tuple on the stack. Half of
 * the nodes of an index of chunks would be such tuples of one, and no pickle
 * gets them from the memo. So the tuple is not created; the memo only notes it.
 * 1 when the opcodes are these. */
static int torch_size(struct pk_parser *p)
{
	struct ofs_cursor ahead = p->c;
	uint32_t made;
	uint64_t i;

	if (p->nstack - pk_fence(p) < 2 ||
	    !pk_makes_size(p, pk_top(p, 1), pk_top(p, 0)) ||
	    !take_put(p, &ahead, &i) || ofs_cursor_u8(&ahead) != OP_REDUCE ||
	    ahead.bad)
		return 0;
	p->at++; /* of the put */
	if (remember(p, i, pk_top(p, 0) | PK_WRAPPED) == -1)
		return -1;
	p->c = ahead;
	made = pk_size_of(p, pk_top(p, 1), pk_top(p, 0));
	return replace(p, 2, made) == -1 ? -1 : 1;
}

static int tuple1(struct pk_parser *p)
{
	int rc = torch_size(p);

	return rc == 0 ? tuple(p, 1) : rc == 1 ? 0 : -1;
}

static int mark_tuple(struct pk_parser *p)
{
	size_t n = 0;

	return unmark(p, &n) == -1 ? -1 : tuple(p, n);
}

/* May the keys be keys? In the top n items each step-th is one, from the first
 * on; a set has step 1. */
static int hashable(struct pk_parser *p, size_t n, size_t step)
{
	const uint32_t *v = p->stack + p->nstack - n;

	if (n % step != 0)
		return pk_fail(p, EUCLEAN, "OFS426",
		    "%s with a key and no value", pk_op_name(p->op));
	for (size_t i = 0; i < n; i += step)
		if ((pk_at(p->doc, v[i])->flags & PK_MUTABLE) != 0)
			return pk_fail(p, EUCLEAN, "OFS427",
			    "%s as a key or item of a set",
			    ofs_pk_kind_name(p->doc, v[i]));
	return 0;
}

/* May items be added to node as to a container of this kind? An instance of a
 * class becomes one with its first items. */
static int accept(struct pk_parser *p, uint32_t node, enum ofs_pk_kind kind)
{
	struct pk_node *x = pk_at(p->doc, node);

	if (x->kind == kind && (x->flags & PK_MUTABLE) != 0)
		return 0;
	if (x->kind == OFS_PK_OBJECT && kind != OFS_PK_SET &&
	    (x->flags & PK_GETATTR) == 0)
		return pk_become(p, node, kind);
	return pk_fail(p, EUCLEAN, "OFS425", "%s of %s", pk_op_name(p->op),
	    ofs_pk_kind_name(p->doc, node));
}

/* Add the top n items to the container below them. */
static int add_items(struct pk_parser *p, enum ofs_pk_kind kind, size_t n)
{
	uint32_t to;

	if (need(p, n + 1) == -1)
		return -1;
	to = pk_top(p, n);
	if (kind != OFS_PK_LIST &&
	    hashable(p, n, kind == OFS_PK_DICT ? 2 : 1) == -1)
		return -1;
	if (accept(p, to, kind) == -1 ||
	    pk_extend(p, to, p->stack + p->nstack - n, n) == -1)
		return -1;
	p->nstack -= n;
	return 0;
}

static int add_marked(struct pk_parser *p, enum ofs_pk_kind kind)
{
	size_t n = 0;

	return unmark(p, &n) == -1 ? -1 : add_items(p, kind, n);
}

/* LIST, DICT and FROZENSET: make a container of all above the MARK. */
static int collect(struct pk_parser *p, enum ofs_pk_kind kind)
{
	uint32_t node;
	size_t n = 0;

	if (unmark(p, &n) == -1)
		return -1;
	if (kind != OFS_PK_LIST &&
	    hashable(p, n, kind == OFS_PK_DICT ? 2 : 1) == -1)
		return -1;
	node = pk_container(p, kind, OFS_NONE, OFS_NONE);
	if (node == OFS_NONE ||
	    pk_extend(p, node, p->stack + p->nstack - n, n) == -1)
		return -1;
	if (p->op == OP_FROZENSET)
		pk_at(p->doc, node)->flags &= (uint8_t)~PK_MUTABLE;
	return replace(p, n, node);
}

static int drop(struct pk_parser *p, size_t n)
{
	if (need(p, n) == -1)
		return -1;
	p->nstack -= n;
	return 0;
}

static int drop_marked(struct pk_parser *p)
{
	size_t n = 0;

	return unmark(p, &n) == -1 ? -1 : drop(p, n);
}

static int global_lines(struct pk_parser *p)
{
	const char *module = NULL, *name = NULL;
	size_t nmodule = 0, nname = 0;

	if (pk_line(p, &module, &nmodule) == -1 ||
	    pk_line(p, &name, &nname) == -1)
		return -1;
	return pk_push(p, pk_global(p, module, nmodule, name, nname));
}

static int stack_global(struct pk_parser *p)
{
	struct ofs_str module, name;

	if (need(p, 2) == -1)
		return -1;
	if (ofs_pk_kind(p->doc, pk_top(p, 1)) != OFS_PK_STR ||
	    ofs_pk_kind(p->doc, pk_top(p, 0)) != OFS_PK_STR)
		return pk_fail(p, EUCLEAN, "OFS422",
		    "STACK_GLOBAL of %s and %s",
		    ofs_pk_kind_name(p->doc, pk_top(p, 1)),
		    ofs_pk_kind_name(p->doc, pk_top(p, 0)));
	module = ofs_pk_str(p->doc, pk_top(p, 1));
	name = ofs_pk_str(p->doc, pk_top(p, 0));
	return replace(p, 2,
	    pk_global(p, module.p, module.len, name.p, name.len));
}

static int call(struct pk_parser *p, size_t n)
{
	uint32_t made = OFS_NONE, kwargs = OFS_NONE;
	int rc;

	if (need(p, n) == -1)
		return -1;
	if (n == 3 && ofs_pk_kind(p->doc, pk_top(p, 0)) != OFS_PK_DICT)
		return pk_fail(p, EUCLEAN, "OFS423", "keyword arguments are %s",
		    ofs_pk_kind_name(p->doc, pk_top(p, 0)));
	if (n == 3 && ofs_pk_len(p->doc, pk_top(p, 0)) > 0)
		kwargs = pk_top(p, 0);
	if (p->op == OP_REDUCE)
		rc = pk_reduce(p, pk_top(p, 1), pk_top(p, 0), &made);
	else
		rc = pk_newobj(p, pk_top(p, n - 1), pk_top(p, n - 2), kwargs,
		    &made);
	return rc == -1 ? -1 : replace(p, n, made);
}

static int build(struct pk_parser *p)
{
	if (need(p, 2) == -1 || pk_build(p, pk_top(p, 1), pk_top(p, 0)) == -1)
		return -1;
	p->nstack--;
	return 0;
}

static int persid(struct pk_parser *p)
{
	uint32_t made = OFS_NONE;

	if (need(p, 1) == -1 || pk_persid(p, pk_top(p, 0), &made) == -1)
		return -1;
	return replace(p, 1, made);
}

static int protocol(struct pk_parser *p)
{
	uint64_t v = 0;

	if (p->at != 0)
		return pk_fail(p, EUCLEAN, "OFS407", "PROTO in the middle");
	if (pk_operand(p, 1, &v) == -1)
		return -1;
	if (v > 5)
		return pk_fail(p, EOPNOTSUPP, "OFS406",
		    "pickle protocol %" PRIu64, v);
	p->proto = (uint8_t)v;
	return 0;
}

/* Frames are buffering hints; only one longer than the input is refused. */
static int frame(struct pk_parser *p)
{
	uint64_t n = 0;

	if (pk_operand(p, 8, &n) == -1)
		return -1;
	if (n > ofs_cursor_left(&p->c))
		return pk_fail(p, EUCLEAN, "OFS419",
		    "frame of %" PRIu64 " bytes, %" PRIu64 " are left", n,
		    ofs_cursor_left(&p->c));
	return 0;
}

static int refuse(struct pk_parser *p)
{
	switch (p->op) {
	case OP_EXT1:
	case OP_EXT2:
	case OP_EXT4:
		return pk_fail(p, EPERM, "OFS430", "%s: the extension registry",
		    pk_op_name(p->op));
	case OP_NEXT_BUFFER:
	case OP_READONLY_BUFFER:
		return pk_fail(p, EOPNOTSUPP, "OFS432",
		    "%s: out-of-band buffers", pk_op_name(p->op));
	default:
		break;
	}
	if (pk_op_name(p->op) != NULL)
		return pk_fail(p, EOPNOTSUPP, "OFS431",
		    "opcode '%c' of pickle protocol 0: load it in Python and "
		    "save it again, torch.save(torch.load(FILE), FILE)",
		    p->op);
	return pk_fail(p, EUCLEAN, "OFS437", "unknown opcode 0x%02x", p->op);
}

static int execute(struct pk_parser *p)
{
	switch (p->op) {
	case OP_PROTO:
		return protocol(p);
	case OP_FRAME:
		return frame(p);
	case OP_MARK:
		return mark(p);
	case OP_POP:
		return drop(p, 1);
	case OP_POP_MARK:
		return drop_marked(p);
	case OP_DUP:
		return need(p, 1) == -1 ? -1 : pk_push(p, pk_top(p, 0));
	case OP_NONE:
		return pk_push(p, PK_NONE_NODE);
	case OP_NEWTRUE:
		return pk_push(p, PK_TRUE_NODE);
	case OP_NEWFALSE:
		return pk_push(p, PK_FALSE_NODE);
	case OP_BININT:
		return pk_push_int(p, 4, 32);
	case OP_BININT1:
		return pk_push_int(p, 1, 0);
	case OP_BININT2:
		return pk_push_int(p, 2, 0);
	case OP_INT:
	case OP_LONG:
		return pk_push_decimal(p);
	case OP_LONG1:
		return pk_push_long(p, 1);
	case OP_LONG4:
		return pk_push_long(p, 4);
	case OP_BINFLOAT:
		return pk_push_float(p);
	case OP_SHORT_BINUNICODE:
	case OP_SHORT_BINSTRING:
		return pk_push_blob(p, OFS_PK_STR, 1);
	case OP_BINUNICODE:
	case OP_BINSTRING:
		return pk_push_blob(p, OFS_PK_STR, 4);
	case OP_BINUNICODE8:
		return pk_push_blob(p, OFS_PK_STR, 8);
	case OP_SHORT_BINBYTES:
		return pk_push_blob(p, OFS_PK_BYTES, 1);
	case OP_BINBYTES:
		return pk_push_blob(p, OFS_PK_BYTES, 4);
	case OP_BINBYTES8:
	case OP_BYTEARRAY8:
		return pk_push_blob(p, OFS_PK_BYTES, 8);
	case OP_EMPTY_TUPLE:
		return pk_push(p, PK_EMPTY_TUPLE);
	case OP_TUPLE1:
		return tuple1(p);
	case OP_TUPLE2:
		return tuple(p, 2);
	case OP_TUPLE3:
		return tuple(p, 3);
	case OP_TUPLE:
		return mark_tuple(p);
	case OP_EMPTY_LIST:
		return pk_push(p,
		    pk_container(p, OFS_PK_LIST, OFS_NONE, OFS_NONE));
	case OP_EMPTY_DICT:
		return pk_push(p,
		    pk_container(p, OFS_PK_DICT, OFS_NONE, OFS_NONE));
	case OP_EMPTY_SET:
		return pk_push(p,
		    pk_container(p, OFS_PK_SET, OFS_NONE, OFS_NONE));
	case OP_LIST:
		return collect(p, OFS_PK_LIST);
	case OP_DICT:
		return collect(p, OFS_PK_DICT);
	case OP_FROZENSET:
		return collect(p, OFS_PK_SET);
	case OP_APPEND:
		return add_items(p, OFS_PK_LIST, 1);
	case OP_APPENDS:
		return add_marked(p, OFS_PK_LIST);
	case OP_SETITEM:
		return add_items(p, OFS_PK_DICT, 2);
	case OP_SETITEMS:
		return add_marked(p, OFS_PK_DICT);
	case OP_ADDITEMS:
		return add_marked(p, OFS_PK_SET);
	case OP_BINPUT:
		return put_operand(p, 1);
	case OP_LONG_BINPUT:
		return put_operand(p, 4);
	case OP_MEMOIZE:
		return put(p, p->nputs);
	case OP_BINGET:
		return get_operand(p, 1);
	case OP_LONG_BINGET:
		return get_operand(p, 4);
	case OP_PUT:
	case OP_GET:
		return memo_line(p);
	case OP_GLOBAL:
		return global_lines(p);
	case OP_STACK_GLOBAL:
		return stack_global(p);
	case OP_REDUCE:
	case OP_NEWOBJ:
		return call(p, 2);
	case OP_NEWOBJ_EX:
		return call(p, 3);
	case OP_BUILD:
		return build(p);
	case OP_BINPERSID:
		return persid(p);
	default:
		return refuse(p);
	}
}

static inline int run_one(struct pk_parser *p)
{
	p->at = (uint64_t)(p->c.p - p->start);
	if (p->c.p == p->c.end)
		return optimfs_fail(p->err, EUCLEAN,
		    "OFS402 pickle ends at offset %" PRIu64 " without STOP",
		    p->at);
	if (p->shed_at != NULL && p->c.p >= p->shed_at && pk_shed(p) == -1)
		return -1;
	p->op = *p->c.p++;
	return p->op == OP_STOP ? 1 : execute(p);
}

int pk_step(struct pk_parser *p)
{
	return run_one(p);
}

int pk_machine(struct pk_parser *p)
{
	int ret;

	do {
		pk_run_plain(p);
		ret = run_one(p);
	} while (ret == 0);
	if (ret == -1)
		return -1;
	if (p->nstack != 1 || p->nmarks != 0)
		return pk_fail(p, EUCLEAN, "OFS403",
		    "stack depth %zu at STOP, %zu marks", p->nstack, p->nmarks);
	p->doc->root = p->stack[0];
	return pk_check_graph(p);
}
