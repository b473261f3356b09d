/* opcode.h - opcodes of pickles, and the stack they work on */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_OPCODE_H
#define OFS_PICKLE_OPCODE_H

#include "pickle/pickle_impl.h"

#define OPCODES(X)                                                             \
 X('(', MARK)                                                                  \
 X('.', STOP)                                                                  \
 X('0', POP)                                                                   \
 X('1', POP_MARK)                                                              \
 X('2', DUP)                                                                   \
 X('F', FLOAT)                                                                 \
 X('I', INT)                                                                   \
 X('J', BININT)                                                                \
 X('K', BININT1)                                                               \
 X('L', LONG)                                                                  \
 X('M', BININT2)                                                               \
 X('N', NONE)                                                                  \
 X('P', PERSID) X('Q', BINPERSID) X('R', REDUCE) X('S', STRING) X('T',         \
     BINSTRING) X('U', SHORT_BINSTRING) X('V', UNICODE) X('X', BINUNICODE)     \
     X('a', APPEND) X('b', BUILD) X('c', GLOBAL) X('d', DICT) X('}',           \
	 EMPTY_DICT) X('e', APPENDS) X('g', GET) X('h', BINGET) X('i',         \
	 INST) X('j', LONG_BINGET) X('l', LIST) X(']', EMPTY_LIST) X('o',      \
	 OBJ) X('p', PUT) X('q', BINPUT) X('r', LONG_BINPUT) X('s',            \
	 SETITEM) X('t', TUPLE) X(')', EMPTY_TUPLE) X('u', SETITEMS) X('G',    \
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

/* "BININT"; NULL for what is no opcode. */
const char *pk_op_name(uint8_t op);

/* The stack above the latest MARK: what an opcode may touch. */
static inline size_t pk_fence(const struct pk_parser *p)
{
	return p->nmarks == 0 ? 0 : p->marks[p->nmarks - 1];
}

/* node may be OFS_NONE: making it failed. */
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

/* pickle.c: a parser of n bytes, which are borrowed, with limits that nobody
 * gave; and all that it holds let go. */
int pk_begin(struct pk_parser *p, const uint8_t *bytes, uint64_t n,
    struct optimfs_error *err);
void pk_end(struct pk_parser *p);

/* machine.c: run to STOP; one object is on the stack then. */
int pk_machine(struct pk_parser *p);
/* Execute one opcode: 1 when it was STOP. */
int pk_step(struct pk_parser *p);

/* value.c: opcodes that push a value they carry with them. */

/* A string of kind, behind a length of nlen bytes. */
int pk_push_blob(struct pk_parser *p, enum ofs_pk_kind kind, size_t nlen);
/* An unsigned integer of n bytes, or with sign_bits 32 a signed one of 4. */
int pk_push_int(struct pk_parser *p, size_t n, int sign_bits);
/* Two's complement of any length, behind a length of nlen bytes. */
int pk_push_long(struct pk_parser *p, size_t nlen);
int pk_push_float(struct pk_parser *p);
/* An unsigned operand of n bytes. */
int pk_operand(struct pk_parser *p, size_t n, uint64_t *v);
/* A text operand: up to the end of the line, which is not part of it. */
int pk_line(struct pk_parser *p, const char **s, size_t *n);

#endif
