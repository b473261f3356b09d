/* pickle.c - the stack machine of pickles, which builds data and calls nothing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/pickle_impl.h"

#define DEPTH_DEFAULT 64
#define DEPTH_MAX     250
#define MEMORY_MAX    ((uint64_t)4 << 30)
/* Memo indexes are numbered as they are put; some writers leave gaps. */
#define MEMO_GAP 1024
/* Bytes of an integer that is kept. */
#define INT_MAX_BYTES 4096

#define OPCODES(X)                                                             \
 X('(', MARK)                                                                  \
 X('.', STOP)                                                                  \
 X('0', POP)                                                                   \
 X('1', POP_MARK)                                                              \
 X('2', DUP)                                                                   \
 X('F', FLOAT)                                                                 \
 X('I', INT) X('J', BININT) X('K', BININT1) X('L', LONG) X('M',                \
     BININT2) X('N', NONE) X('P', PERSID) X('Q', BINPERSID) X('R',             \
     REDUCE) X('S', STRING) X('T', BINSTRING) X('U', SHORT_BINSTRING) X('V',   \
     UNICODE) X('X', BINUNICODE) X('a', APPEND) X('b', BUILD) X('c',           \
     GLOBAL) X('d', DICT) X('}', EMPTY_DICT) X('e', APPENDS) X('g',            \
     GET) X('h', BINGET) X('i', INST) X('j', LONG_BINGET) X('l', LIST) X(']',  \
     EMPTY_LIST) X('o', OBJ) X('p', PUT) X('q', BINPUT) X('r', LONG_BINPUT)    \
     X('s', SETITEM) X('t', TUPLE) X(')', EMPTY_TUPLE) X('u', SETITEMS) X('G', \
	 BINFLOAT) X(0x80, PROTO) X(0x81, NEWOBJ) X(0x82, EXT1) X(0x83, EXT2)  \
	 X(0x84, EXT4) X(0x85, TUPLE1) X(0x86, TUPLE2) X(0x87, TUPLE3) X(0x88, \
	     NEWTRUE) X(0x89, NEWFALSE) X(0x8a, LONG1) X(0x8b, LONG4)          \
	     X('B', BINBYTES) X('C', SHORT_BINBYTES) X(0x8c, SHORT_BINUNICODE) \
		 X(0x8d, BINUNICODE8) X(0x8e, BINBYTES8) X(0x8f, EMPTY_SET)    \
		     X(0x90, ADDITEMS) X(0x91, FROZENSET) X(0x92, NEWOBJ_EX)   \
			 X(0x93, STACK_GLOBAL) X(0x94, MEMOIZE) X(0x95, FRAME) \
			     X(0x96, BYTEARRAY8) X(0x97, NEXT_BUFFER)          \
				 X(0x98, READONLY_BUFFER)

enum op {
#define X(code, name) OP_##name = (code),
	OPCODES(X)
#undef X
};

static const char *const op_names[256] = {
#define X(code, name) [code] = #name,
	OPCODES(X)
#undef X
};

/* The stack above the latest MARK: what an opcode may touch. */
static size_t fence(const struct pk_parser *p)
{
	return p->nmarks == 0 ? 0 : p->marks[p->nmarks - 1];
}

static int need(struct pk_parser *p, size_t n)
{
	size_t has = p->nstack - fence(p);

	if (has >= n)
		return 0;
	return pk_fail(p, EUCLEAN, "OFS436",
	    "%s needs %zu items of the stack, there are %zu", op_names[p->op],
	    n, has);
}

/* node may be OFS_NONE: making it failed. */
static int push(struct pk_parser *p, uint32_t node)
{
	if (node == OFS_NONE)
		return -1;
	if (p->nstack == p->cap_stack &&
	    pk_grow(p, &p->stack, &p->cap_stack, p->nstack + 1,
		sizeof(*p->stack)) == -1)
		return -1;
	p->stack[p->nstack++] = node;
	return 0;
}

/* The top n items become node. */
static int replace(struct pk_parser *p, size_t n, uint32_t node)
{
	if (node == OFS_NONE)
		return -1;
	p->nstack -= n;
	return push(p, node);
}

static uint32_t top(const struct pk_parser *p, size_t i)
{
	return p->stack[p->nstack - 1 - i];
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

/* Take the latest MARK off; *n items stand above where it was. */
static int unmark(struct pk_parser *p, size_t *n)
{
	if (p->nmarks == 0)
		return pk_fail(p, EUCLEAN, "OFS436", "%s without MARK",
		    op_names[p->op]);
	*n = p->nstack - p->marks[--p->nmarks];
	return 0;
}

static int truncated(struct pk_parser *p)
{
	return pk_fail(p, EUCLEAN, "OFS404", "truncated operand of %s",
	    op_names[p->op]);
}

/* An unsigned operand of n bytes. */
static int operand(struct pk_parser *p, size_t n, uint64_t *v)
{
	const uint8_t *at = ofs_cursor_take(&p->c, n);

	if (at == NULL)
		return truncated(p);
	*v = 0;
	for (size_t i = n; i-- > 0;)
		*v = *v << 8 | at[i];
	return 0;
}

/* A length of nlen bytes, then so many bytes: *at, *n. */
static int counted(struct pk_parser *p, size_t nlen, const uint8_t **at,
    uint64_t *n)
{
	if (operand(p, nlen, n) == -1)
		return -1;
	*at = ofs_cursor_take(&p->c, *n);
	if (*at != NULL)
		return 0;
	if (nlen == 1)
		return truncated(p);
	return pk_fail(p, EUCLEAN, "OFS414",
	    "length %" PRIu64 " exceeds the %" PRIu64 " bytes left", *n,
	    ofs_cursor_left(&p->c));
}

static int blob(struct pk_parser *p, enum ofs_pk_kind kind, size_t nlen)
{
	const uint8_t *at = NULL;
	uint64_t n = 0;

	if (counted(p, nlen, &at, &n) == -1)
		return -1;
	if (n > UINT32_MAX)
		return pk_fail(p, E2BIG, "OFS438",
		    "%" PRIu64 " bytes in one value", n);
	if (push(p, pk_blob(p, kind, at, (uint32_t)n)) == -1)
		return -1;
	if (p->op == OP_BYTEARRAY8)
		pk_at(p->doc, top(p, 0))->flags |= PK_MUTABLE;
	return 0;
}

/* A text operand: up to the end of the line, which is not part of it. */
static int line(struct pk_parser *p, const char **s, size_t *n)
{
	uint64_t left = ofs_cursor_left(&p->c);
	const uint8_t *at = p->c.p, *end = NULL;

	if (left > 0)
		end = memchr(at, '\n', left);
	if (end == NULL)
		return truncated(p);
	*s = (const char *)at;
	*n = (size_t)(end - at);
	ofs_cursor_take(&p->c, *n + 1);
	return 0;
}

static int integer(struct pk_parser *p, size_t n, int sign_bits)
{
	uint64_t v = 0;

	if (operand(p, n, &v) == -1)
		return -1;
	if (sign_bits == 32)
		v = (uint64_t)(int64_t)(int32_t)(uint32_t)v;
	return push(p, pk_int(p, (int64_t)v));
}

/* n bytes of two's complement, an INT where it fits one. */
static int long_integer(struct pk_parser *p, size_t nlen)
{
	const uint8_t *at = NULL;
	uint64_t n = 0, v = 0;

	if (nlen == 4 && ofs_cursor_left(&p->c) >= 4 && p->c.p[3] >= 0x80)
		return pk_fail(p, EUCLEAN, "OFS415", "negative length");
	if (counted(p, nlen, &at, &n) == -1)
		return -1;
	if (n > INT_MAX_BYTES)
		return pk_fail(p, E2BIG, "OFS438",
		    "an integer of %" PRIu64 " bytes", n);
	while (n > 8 && at[n - 1] == (at[n - 2] >= 0x80 ? 0xff : 0))
		n--;
	if (n > 8)
		return push(p, pk_blob(p, OFS_PK_BIGINT, at, (uint32_t)n));
	if (n > 0 && at[n - 1] >= 0x80)
		v = UINT64_MAX;
	for (uint64_t i = n; i-- > 0;)
		v = v << 8 | at[i];
	return push(p, pk_int(p, (int64_t)v));
}

static int binfloat(struct pk_parser *p)
{
	struct pk_node x = { .kind = OFS_PK_FLOAT };
	const uint8_t *at = ofs_cursor_take(&p->c, 8);
	uint64_t bits = 0;

	if (at == NULL)
		return truncated(p);
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | at[i];
	memcpy(&x.v[1], &bits, sizeof(bits));
	return push(p, pk_node(p, x));
}

/* The memo grows with what is put, never to an index alone. */
static int remember(struct pk_parser *p, uint64_t i, uint32_t what)
{
	if (i > p->nputs + MEMO_GAP)
		return pk_fail(p, EUCLEAN, "OFS411",
		    "memo index %" PRIu64 " after %zu puts", i, p->nputs);
	if (i >= p->cap_memo &&
	    pk_grow(p, &p->memo, &p->cap_memo, i + 1, sizeof(*p->memo)) == -1)
		return -1;
	for (; p->nmemo <= i; p->nmemo++)
		p->memo[p->nmemo] = OFS_NONE;
	p->nputs += p->memo[i] == OFS_NONE;
	p->memo[i] = what;
	return 0;
}

static int put(struct pk_parser *p, uint64_t i)
{
	if (p->nstack == fence(p))
		return pk_fail(p, EUCLEAN, "OFS413", "%s of an empty stack",
		    op_names[p->op]);
	return remember(p, i, top(p, 0));
}

static int get(struct pk_parser *p, uint64_t i)
{
	uint32_t x;

	if (i >= p->nmemo || p->memo[i] == OFS_NONE)
		return pk_fail(p, EUCLEAN, "OFS412",
		    "memo index %" PRIu64 " not set", i);
	if ((p->memo[i] & PK_WRAPPED) != 0) {
		x = p->memo[i] & ~PK_WRAPPED;
		p->memo[i] = pk_tuple(p, &x, 1);
	}
	return push(p, p->memo[i]);
}

static int put_operand(struct pk_parser *p, size_t n)
{
	uint64_t i = 0;

	return operand(p, n, &i) == -1 ? -1 : put(p, i);
}

static int get_operand(struct pk_parser *p, size_t n)
{
	uint64_t i = 0;

	return operand(p, n, &i) == -1 ? -1 : get(p, i);
}

/* The decimal index of the text opcodes PUT and GET. */
static int memo_line(struct pk_parser *p)
{
	const char *s = NULL;
	uint64_t i = 0;
	size_t n = 0;

	if (line(p, &s, &n) == -1)
		return -1;
	for (size_t k = 0; k < n; k++) {
		if (s[k] < '0' || s[k] > '9' || n > 10)
			return pk_fail(p, EUCLEAN, "OFS412",
			    "bad operand of %s", op_names[p->op]);
		i = i * 10 + (uint64_t)(s[k] - '0');
	}
	return p->op == OP_PUT ? put(p, i) : get(p, i);
}

static int tuple(struct pk_parser *p, size_t n)
{
	if (need(p, n) == -1)
		return -1;
	return replace(p, n, pk_tuple(p, p->stack + p->nstack - n, n));
}

/* TUPLE1, a put, REDUCE, with torch.Size and a tuple on the stack: half of the
 * nodes of an index of chunks would be such tuples of one, which nobody ever
 * gets from the memo. So none is made, and the memo only notes what it would
 * hold. Returns 1 when it was so. */
static int torch_size(struct pk_parser *p)
{
	struct ofs_cursor ahead = p->c;
	uint64_t i = p->nputs;
	uint32_t made;
	uint8_t op;

	if (p->nstack - fence(p) < 2 || !pk_makes_size(p, top(p, 1), top(p, 0)))
		return 0;
	op = ofs_cursor_u8(&ahead);
	if (op == OP_BINPUT)
		i = ofs_cursor_u8(&ahead);
	else if (op == OP_LONG_BINPUT)
		i = ofs_cursor_le32(&ahead);
	else if (op != OP_MEMOIZE)
		return 0;
	if (ofs_cursor_u8(&ahead) != OP_REDUCE || ahead.bad)
		return 0;
	if (remember(p, i, top(p, 0) | PK_WRAPPED) == -1)
		return -1;
	p->c = ahead;
	made = pk_size_of(p, top(p, 1), top(p, 0));
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

/* Keys are every second of the top n items, from the first on. */
static int hashable(struct pk_parser *p, size_t n, size_t step)
{
	const uint32_t *v = p->stack + p->nstack - n;

	if (n % step != 0)
		return pk_fail(p, EUCLEAN, "OFS426",
		    "%s with a key and no value", op_names[p->op]);
	for (size_t i = 0; i < n; i += step)
		if ((pk_at(p->doc, v[i])->flags & PK_MUTABLE) != 0)
			return pk_fail(p, EUCLEAN, "OFS427",
			    "%s as a key or item of a set",
			    ofs_pk_kind_name(p->doc, v[i]));
	return 0;
}

/* May items of this kind of container be added to node? An instance of a
 * class of its own becomes one when the first come. */
static int accept(struct pk_parser *p, uint32_t node, enum ofs_pk_kind kind)
{
	struct pk_node *x = pk_at(p->doc, node);

	if (x->kind == kind && (x->flags & PK_MUTABLE) != 0)
		return 0;
	if (x->kind == OFS_PK_OBJECT && kind != OFS_PK_SET &&
	    (x->flags & PK_GETATTR) == 0 && node != PK_CYCLE_NODE)
		return pk_become(p, node, kind);
	return pk_fail(p, EUCLEAN, "OFS425", "%s of %s", op_names[p->op],
	    ofs_pk_kind_name(p->doc, node));
}

/* Add the top n items to the container below them. */
static int add(struct pk_parser *p, enum ofs_pk_kind kind, size_t n)
{
	uint32_t to;

	if (need(p, n + 1) == -1)
		return -1;
	to = top(p, n);
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

	return unmark(p, &n) == -1 ? -1 : add(p, kind, n);
}

/* LIST, DICT and FROZENSET: a container of all above the MARK. */
static int collect(struct pk_parser *p, enum ofs_pk_kind kind)
{
	uint32_t node;
	size_t n = 0;

	if (unmark(p, &n) == -1)
		return -1;
	if (kind != OFS_PK_LIST &&
	    hashable(p, n, kind == OFS_PK_DICT ? 2 : 1) == -1)
		return -1;
	node = pk_container(p, kind, OFS_NONE);
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

	if (line(p, &module, &nmodule) == -1 || line(p, &name, &nname) == -1)
		return -1;
	return push(p, pk_global(p, module, nmodule, name, nname));
}

static int stack_global(struct pk_parser *p)
{
	struct ofs_str module, name;

	if (need(p, 2) == -1)
		return -1;
	if (ofs_pk_kind(p->doc, top(p, 1)) != OFS_PK_STR ||
	    ofs_pk_kind(p->doc, top(p, 0)) != OFS_PK_STR)
		return pk_fail(p, EUCLEAN, "OFS422",
		    "STACK_GLOBAL of %s and %s",
		    ofs_pk_kind_name(p->doc, top(p, 1)),
		    ofs_pk_kind_name(p->doc, top(p, 0)));
	module = ofs_pk_str(p->doc, top(p, 1));
	name = ofs_pk_str(p->doc, top(p, 0));
	return replace(p, 2,
	    pk_global(p, module.p, module.len, name.p, name.len));
}

static int call(struct pk_parser *p, size_t n)
{
	uint32_t made = OFS_NONE;
	int rc;

	if (need(p, n) == -1)
		return -1;
	if (n == 3 && ofs_pk_kind(p->doc, top(p, 0)) != OFS_PK_DICT)
		return pk_fail(p, EUCLEAN, "OFS423", "keyword arguments are %s",
		    ofs_pk_kind_name(p->doc, top(p, 0)));
	if (p->op == OP_REDUCE)
		rc = pk_reduce(p, top(p, 1), top(p, 0), &made);
	else
		rc = pk_newobj(p, top(p, n - 1), top(p, n - 2), &made);
	return rc == -1 ? -1 : replace(p, n, made);
}

static int build(struct pk_parser *p)
{
	if (need(p, 2) == -1 || pk_build(p, top(p, 1), top(p, 0)) == -1)
		return -1;
	p->nstack--;
	return 0;
}

static int persid(struct pk_parser *p)
{
	uint32_t made = OFS_NONE;

	if (need(p, 1) == -1 || pk_persid(p, top(p, 0), &made) == -1)
		return -1;
	return replace(p, 1, made);
}

static int protocol(struct pk_parser *p)
{
	uint64_t v = 0;

	if (p->at != 0)
		return pk_fail(p, EUCLEAN, "OFS407", "PROTO in the middle");
	if (operand(p, 1, &v) == -1)
		return -1;
	if (v > 5)
		return pk_fail(p, EOPNOTSUPP, "OFS406",
		    "pickle protocol %" PRIu64, v);
	p->proto = (uint8_t)v;
	return 0;
}

/* Frames are a hint for buffering: only one that cannot be is refused. */
static int frame(struct pk_parser *p)
{
	uint64_t n = 0;

	if (operand(p, 8, &n) == -1)
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
		    op_names[p->op]);
	case OP_NEXT_BUFFER:
	case OP_READONLY_BUFFER:
		return pk_fail(p, EOPNOTSUPP, "OFS432",
		    "%s: out-of-band buffers", op_names[p->op]);
	default:
		break;
	}
	if (op_names[p->op] != NULL)
		return pk_fail(p, EOPNOTSUPP, "OFS431",
		    "protocol-0 opcode '%c'", p->op);
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
		return need(p, 1) == -1 ? -1 : push(p, top(p, 0));
	case OP_NONE:
		return push(p, PK_NONE_NODE);
	case OP_NEWTRUE:
		return push(p, PK_TRUE_NODE);
	case OP_NEWFALSE:
		return push(p, PK_FALSE_NODE);
	case OP_BININT:
		return integer(p, 4, 32);
	case OP_BININT1:
		return integer(p, 1, 0);
	case OP_BININT2:
		return integer(p, 2, 0);
	case OP_LONG1:
		return long_integer(p, 1);
	case OP_LONG4:
		return long_integer(p, 4);
	case OP_BINFLOAT:
		return binfloat(p);
	case OP_SHORT_BINUNICODE:
	case OP_SHORT_BINSTRING:
		return blob(p, OFS_PK_STR, 1);
	case OP_BINUNICODE:
	case OP_BINSTRING:
		return blob(p, OFS_PK_STR, 4);
	case OP_BINUNICODE8:
		return blob(p, OFS_PK_STR, 8);
	case OP_SHORT_BINBYTES:
		return blob(p, OFS_PK_BYTES, 1);
	case OP_BINBYTES:
		return blob(p, OFS_PK_BYTES, 4);
	case OP_BINBYTES8:
	case OP_BYTEARRAY8:
		return blob(p, OFS_PK_BYTES, 8);
	case OP_EMPTY_TUPLE:
		return push(p, PK_EMPTY_TUPLE);
	case OP_TUPLE1:
		return tuple1(p);
	case OP_TUPLE2:
		return tuple(p, 2);
	case OP_TUPLE3:
		return tuple(p, 3);
	case OP_TUPLE:
		return mark_tuple(p);
	case OP_EMPTY_LIST:
		return push(p, pk_container(p, OFS_PK_LIST, OFS_NONE));
	case OP_EMPTY_DICT:
		return push(p, pk_container(p, OFS_PK_DICT, OFS_NONE));
	case OP_EMPTY_SET:
		return push(p, pk_container(p, OFS_PK_SET, OFS_NONE));
	case OP_LIST:
		return collect(p, OFS_PK_LIST);
	case OP_DICT:
		return collect(p, OFS_PK_DICT);
	case OP_FROZENSET:
		return collect(p, OFS_PK_SET);
	case OP_APPEND:
		return add(p, OFS_PK_LIST, 1);
	case OP_APPENDS:
		return add_marked(p, OFS_PK_LIST);
	case OP_SETITEM:
		return add(p, OFS_PK_DICT, 2);
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

static int run(struct pk_parser *p)
{
	for (;;) {
		p->at = (uint64_t)(p->c.p - p->start);
		if (p->c.p == p->c.end)
			return optimfs_fail(p->err, EUCLEAN,
			    "OFS402 pickle ends at offset %" PRIu64
			    " without STOP",
			    p->at);
		p->op = *p->c.p++;
		if (p->op == OP_STOP)
			break;
		if (execute(p) == -1)
			return -1;
	}
	if (p->nstack != 1 || p->nmarks != 0)
		return pk_fail(p, EUCLEAN, "OFS403",
		    "stack depth %zu at STOP, %zu marks", p->nstack, p->nmarks);
	p->doc->root = p->stack[0];
	return pk_check_graph(p);
}

static int shared_nodes(struct pk_parser *p)
{
	static const struct pk_node shared[PK_NSHARED] = {
		[PK_NONE_NODE] = { .kind = OFS_PK_NONE },
		[PK_TRUE_NODE] = { .kind = OFS_PK_BOOL },
		[PK_FALSE_NODE] = { .kind = OFS_PK_BOOL, .flags = PK_FALSE },
		[PK_EMPTY_TUPLE] = { .kind = OFS_PK_TUPLE, .flags = PK_INLINE },
		[PK_EMPTY_SIZE] = { .kind = OFS_PK_TUPLE,
		    .flags = PK_INLINE | PK_SIZE },
		[PK_CYCLE_NODE] = { .kind = OFS_PK_OBJECT,
		    .v = { OFS_NONE, PK_EMPTY_TUPLE, OFS_NONE } },
	};

	for (int i = 0; i < PK_NSHARED; i++)
		if (pk_node(p, shared[i]) == OFS_NONE)
			return -1;
	/* so that a run of no items has a place, too */
	if (pk_grow(p, &p->doc->item, &p->doc->cap_items, 1,
		sizeof(*p->doc->item)) == -1)
		return -1;
	return pk_grow(p, &p->stack, &p->cap_stack, 1, sizeof(*p->stack));
}

static uint64_t default_memory(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	uint64_t quarter = MEMORY_MAX;

	if (pages > 0 && size > 0)
		quarter = (uint64_t)pages / 4 * (uint64_t)size;
	return quarter < MEMORY_MAX ? quarter : MEMORY_MAX;
}

/* Give back what an array has beyond its n elements. */
static void trim(struct ofs_pickle *doc, void *array, size_t *cap, size_t n,
    size_t size)
{
	void *old, *new;

	memcpy(&old, array, sizeof(old));
	if (n == 0 || n == *cap)
		return;
	new = realloc(old, n * size);
	if (new == NULL)
		return;
	memcpy(array, &new, sizeof(new));
	doc->charged -= (*cap - n) * (uint64_t)size;
	*cap = n;
}

static void finish(struct pk_parser *p)
{
	struct ofs_pickle *doc = p->doc;

	free(p->stack);
	free(p->marks);
	free(p->memo);
	doc->charged -=
	    (p->cap_stack + p->cap_marks + p->cap_memo) * sizeof(uint32_t);
	free(doc->gtable);
	doc->charged -= doc->ntable * sizeof(*doc->gtable);
	doc->gtable = NULL;
	trim(doc, &doc->node, &doc->cap_nodes, doc->nnodes, sizeof(*doc->node));
	trim(doc, &doc->item, &doc->cap_items, doc->nitems, sizeof(*doc->item));
}

static int check_end(const struct pk_parser *p, uint64_t *used)
{
	uint64_t left = ofs_cursor_left(&p->c);

	if (used != NULL)
		*used = (uint64_t)(p->c.p - p->start);
	else if (left != 0)
		return optimfs_fail(p->err, EUCLEAN,
		    "OFS405 pickle: %" PRIu64 " bytes after STOP", left);
	return 0;
}

struct ofs_pickle *ofs_pickle_parse(const uint8_t *bytes, uint64_t n, bool own,
    const struct ofs_pickle_limits *limits, uint64_t *used,
    struct optimfs_error *err)
{
	struct pk_parser p = { .start = bytes, .err = err };
	uint64_t memory = limits == NULL ? 0 : limits->memory;
	uint32_t depth = limits == NULL ? 0 : limits->depth;
	int ret = -1;

	p.c = ofs_cursor_of(bytes, n);
	p.depth = depth == 0 ? DEPTH_DEFAULT : depth;
	if (p.depth > DEPTH_MAX)
		p.depth = DEPTH_MAX;
	p.doc = calloc(1, sizeof(*p.doc));
	if (p.doc == NULL) {
		pk_no_memory(&p);
		if (own)
			free((void *)(uintptr_t)bytes);
		return NULL;
	}
	p.doc->bytes = bytes;
	p.doc->own = own;
	p.doc->limit = memory == 0 ? default_memory() : memory;
	if (n == 0)
		optimfs_fail(err, EUCLEAN, "OFS401 empty pickle");
	else if (shared_nodes(&p) == 0 && run(&p) == 0)
		ret = check_end(&p, used);
	finish(&p);
	if (ret == 0)
		return p.doc;
	ofs_pickle_free(p.doc);
	return NULL;
}

void ofs_pickle_free(struct ofs_pickle *doc)
{
	if (doc == NULL)
		return;
	free(doc->node);
	free(doc->item);
	free(doc->global);
	free(doc->ginfo);
	free(doc->gtable);
	ofs_arena_fini(&doc->arena);
	if (doc->own)
		free((void *)(uintptr_t)doc->bytes);
	free(doc);
}
