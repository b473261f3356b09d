/* opcode.h - opcodes of pickles, and the stack they work on */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_OPCODE_H
#define OFS_PICKLE_OPCODE_H

#include "pickle/pickle_impl.h"

/* clang-format off */
#define OPCODES(X) \
 X('(', MARK) X('.', STOP) X('0', POP) X('1', POP_MARK) X('2', DUP) \
 X('F', FLOAT) X('I', INT) X('J', BININT) X('K', BININT1) X('L', LONG) \
 X('M', BININT2) X('N', NONE) X('P', PERSID) X('Q', BINPERSID) \
 X('R', REDUCE) X('S', STRING) X('T', BINSTRING) X('U', SHORT_BINSTRING) \
 X('V', UNICODE) X('X', BINUNICODE) X('a', APPEND) X('b', BUILD) \
 X('c', GLOBAL) X('d', DICT) X('}', EMPTY_DICT) X('e', APPENDS) X('g', GET) \
 X('h', BINGET) X('i', INST) X('j', LONG_BINGET) X('l', LIST) \
 X(']', EMPTY_LIST) X('o', OBJ) X('p', PUT) X('q', BINPUT) \
 X('r', LONG_BINPUT) X('s', SETITEM) X('t', TUPLE) X(')', EMPTY_TUPLE) \
 X('u', SETITEMS) X('G', BINFLOAT) X(0x80, PROTO) X(0x81, NEWOBJ) \
 X(0x82, EXT1) X(0x83, EXT2) X(0x84, EXT4) X(0x85, TUPLE1) X(0x86, TUPLE2) \
 X(0x87, TUPLE3) X(0x88, NEWTRUE) X(0x89, NEWFALSE) X(0x8a, LONG1) \
 X(0x8b, LONG4) X('B', BINBYTES) X('C', SHORT_BINBYTES) \
 X(0x8c, SHORT_BINUNICODE) X(0x8d, BINUNICODE8) X(0x8e, BINBYTES8) \
 X(0x8f, EMPTY_SET) X(0x90, ADDITEMS) X(0x91, FROZENSET) X(0x92, NEWOBJ_EX) \
 X(0x93, STACK_GLOBAL) X(0x94, MEMOIZE) X(0x95, FRAME) X(0x96, BYTEARRAY8) \
 X(0x97, NEXT_BUFFER) X(0x98, READONLY_BUFFER)
/* clang-format on */

enum op {
#define X(code, name) OP_##name = (code),
	OPCODES(X)
#undef X
};

/* The height of the stack at the latest MARK, below which opcodes must not
 * reach. */
static inline size_t pk_fence(const struct pk_parser *p)
{
	return p->nmarks == 0 ? 0 : p->marks[p->nmarks - 1];
}

/* node may be OFS_NONE, when making it failed; then -1. */
static inline int pk_push(struct pk_parser *p, uint32_t node)
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

static inline uint32_t pk_top(const struct pk_parser *p, size_t i)
{
	return p->stack[p->nstack - 1 - i];
}

#endif
