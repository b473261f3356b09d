/* plain.c - opcodes that push an existing node */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/opcode.h"

/* Two of three opcodes of an index push a node that exists, or store the top of
 * the stack in the memo. They run here in one loop while nothing is unusual.
 * The unusual (the end of the input, a full array, an index that was never
 * put) is left to execute(), which also reports all errors. */

static inline uint32_t known(const struct pk_parser *p, uint32_t i)
{
	/* PK_WRAPPED is a bit of OFS_NONE, too */
	if (i >= p->nmemo || (p->memo[i] & PK_WRAPPED) != 0)
		return OFS_NONE;
	return p->memo[i];
}

static inline uint32_t known_int(const struct pk_parser *p, uint32_t v)
{
	uint32_t node = p->ints[pk_int_slot(v)];

	return node != 0 && pk_word(pk_at(p->doc, node)) == v ? node : OFS_NONE;
}

/* Store the top of the stack, which has n nodes. */
static inline bool memoize(struct pk_parser *p, size_t n)
{
	if (p->nputs != p->nmemo || p->nmemo == p->cap_memo || n == pk_fence(p))
		return false;
	p->memo[p->nmemo++] = p->stack[n - 1];
	p->nputs++;
	return true;
}

static inline bool mark(struct pk_parser *p, size_t n)
{
	if (p->nmarks == p->cap_marks)
		return false;
	p->marks[p->nmarks++] = (uint32_t)n;
	return true;
}

/* Push the node of the opcode at at, or store one; *n is the height of the
 * stack. The length of the opcode; 0: it is for execute(). */
static inline size_t run_plain(struct pk_parser *p, const uint8_t *at,
    size_t *n)
{
	uint32_t node;
	size_t len = 1;

	switch (at[0]) {
	case OP_MEMOIZE:
		return memoize(p, *n);
	case OP_MARK:
		return mark(p, *n);
	case OP_NONE:
		node = PK_NONE_NODE;
		break;
	case OP_NEWTRUE:
		node = PK_TRUE_NODE;
		break;
	case OP_NEWFALSE:
		node = PK_FALSE_NODE;
		break;
	case OP_EMPTY_TUPLE:
		node = PK_EMPTY_TUPLE;
		break;
	case OP_BINGET:
		node = known(p, at[1]);
		len = 2;
		break;
	case OP_LONG_BINGET:
		node = known(p, ofs_le32(at + 1));
		len = 5;
		break;
	case OP_BININT1:
		node = known_int(p, at[1]);
		len = 2;
		break;
	case OP_BININT2:
		node = known_int(p, at[1] | (uint32_t)at[2] << 8);
		len = 3;
		break;
	default:
		return 0;
	}
	if (node == OFS_NONE)
		return 0;
	p->stack[(*n)++] = node;
	return len;
}

void pk_run_plain(struct pk_parser *p)
{
	const uint8_t *at = p->c.p;
	size_t n = p->nstack, len;

	while (p->c.end - at > 4 && n < p->cap_stack) {
		len = run_plain(p, at, &n);
		if (len == 0)
			break;
		at += len;
	}
	p->c.p = at;
	p->nstack = n;
}
