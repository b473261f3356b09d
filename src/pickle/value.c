/* value.c - values that opcodes carry: numbers, strings, lines */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "pickle/opcode.h"

/* The longest integer that is accepted. */
#define INT_MAX_BYTES 4096

static const char *const op_names[256] = {
#define X(code, name) [code] = #name,
	OPCODES(X)
#undef X
};

const char *pk_op_name(uint8_t op)
{
	return op_names[op];
}

static int truncated(struct pk_parser *p)
{
	return pk_fail(p, EUCLEAN, "OFS404", "truncated operand of %s",
	    pk_op_name(p->op));
}

int pk_operand(struct pk_parser *p, size_t n, uint64_t *v)
{
	const uint8_t *at = ofs_cursor_take(&p->c, n);

	if (at == NULL)
		return truncated(p);
	*v = ofs_get_le(at, n);
	return 0;
}

/* *n = a length of nlen bytes; *at = that many bytes after it. */
static int counted(struct pk_parser *p, size_t nlen, const uint8_t **at,
    uint64_t *n)
{
	if (pk_operand(p, nlen, n) == -1)
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

int pk_push_blob(struct pk_parser *p, enum ofs_pk_kind kind, size_t nlen)
{
	const uint8_t *at = NULL;
	uint64_t n = 0;

	if (counted(p, nlen, &at, &n) == -1)
		return -1;
	if (n > INT32_MAX) /* printf takes lengths as int */
		return pk_fail(p, E2BIG, "OFS438",
		    "%" PRIu64 " bytes in one value", n);
	if (pk_push(p, pk_input(p, kind, at, (uint32_t)n)) == -1)
		return -1;
	if (p->op == OP_BYTEARRAY8)
		pk_at(p->doc, pk_top(p, 0))->flags |= PK_MUTABLE;
	return 0;
}

int pk_line(struct pk_parser *p, const char **s, size_t *n)
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

int pk_push_int(struct pk_parser *p, size_t n, int sign_bits)
{
	uint64_t v = 0;

	if (pk_operand(p, n, &v) == -1)
		return -1;
	if (sign_bits == 32)
		v = (uint64_t)(int64_t)(int32_t)(uint32_t)v;
	return pk_push(p, pk_int(p, (int64_t)v));
}

/* The node is an INT where the value fits, else a BIGINT. */
int pk_push_long(struct pk_parser *p, size_t nlen)
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
		return pk_push(p, pk_input(p, OFS_PK_BIGINT, at, (uint32_t)n));
	if (n > 0 && at[n - 1] >= 0x80)
		v = UINT64_MAX;
	for (uint64_t i = n; i-- > 0;)
		v = v << 8 | at[i];
	return pk_push(p, pk_int(p, (int64_t)v));
}

/* Protocol 1 has no other opcodes for bools and for integers of more than 32
 * bits. */
int pk_push_decimal(struct pk_parser *p)
{
	const char *s = NULL;
	char text[24], *end;
	int64_t v;
	size_t n;

	if (pk_line(p, &s, &n) == -1)
		return -1;
	if (p->op == OP_INT && n == 2 && s[0] == '0' && (s[1] | 1) == '1')
		return pk_push(p, s[1] == '1' ? PK_TRUE_NODE : PK_FALSE_NODE);
	if (p->op == OP_LONG && n > 0 && s[n - 1] == 'L')
		n--;
	if (n >= sizeof(text))
		return pk_fail(p, E2BIG, "OFS438",
		    "an integer of %zu decimal digits", n);
	memcpy(text, s, n);
	text[n] = '\0';
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno != 0 || n == 0 || end != text + n)
		return pk_fail(p, EUCLEAN, "OFS438",
		    "'%s' is not an integer of 64 bits", text);
	return pk_push(p, pk_int(p, v));
}

int pk_push_float(struct pk_parser *p)
{
	struct pk_node x = { .kind = OFS_PK_FLOAT };
	const uint8_t *at = ofs_cursor_take(&p->c, 8);
	uint64_t bits = 0;

	if (at == NULL)
		return truncated(p);
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | at[i];
	memcpy(&x.v[1], &bits, sizeof(bits));
	return pk_push(p, pk_node(p, x));
}
