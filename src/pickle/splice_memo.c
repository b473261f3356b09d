/* splice_memo.c - memo numbers of a pickle without gaps */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "pickle/opcode.h"
#include "pickle/splice.h"

/* A use of a memo number, at offset at. */
struct number {
	uint64_t at;
	uint32_t index;
};

struct numbers {
	struct pk_parser p;
	struct number *v; /* of the opcodes that put or get, by offset */
	size_t n, cap;
	uint32_t *put; /* the numbers that are put, sorted */
	size_t nputs;
	bool no_memory;
};

static void numbered(struct pk_parser *p, uint64_t i, bool put)
{
	struct numbers *c = (struct numbers *)p; /* p is its first member */

	if (ofs_grow(c->v, c->n, c->cap, NULL) == -1) {
		c->no_memory = true;
		return;
	}
	c->v[c->n++] = (struct number){ p->at, (uint32_t)i };
	c->nputs += put;
}

static bool is_get(uint8_t op)
{
	return op == OP_BINGET || op == OP_LONG_BINGET || op == OP_GET;
}

/* Collect the numbers that are put, sorted and without duplicates. Their ranks
 * are the new numbers. */
static int rank_puts(struct numbers *c, const uint8_t *pickle)
{
	size_t n = 0;

	c->put = reallocarray(NULL, c->nputs + 1, sizeof(*c->put));
	if (c->put == NULL)
		return -1;
	for (size_t i = 0; i < c->n; i++)
		if (!is_get(pickle[c->v[i].at]))
			c->put[n++] = c->v[i].index;
	if (n > 0)
		qsort(c->put, n, sizeof(*c->put), ofs_compare_u32);
	c->nputs = 0;
	for (size_t i = 0; i < n; i++)
		if (i == 0 || c->put[i] != c->put[c->nputs - 1])
			c->put[c->nputs++] = c->put[i];
	return 0;
}

static void renumber(const struct numbers *c, uint8_t *pickle)
{
	for (size_t i = 0; i < c->n; i++) {
		uint8_t *p = pickle + c->v[i].at;
		const uint32_t *put = ofs_search(&c->v[i].index, c->put,
		    c->nputs, sizeof(*c->put), ofs_compare_u32);
		uint32_t rank = (uint32_t)(put - c->put);

		if (*p == OP_BINPUT || *p == OP_BINGET)
			p[1] = (uint8_t)rank;
		else if (*p == OP_LONG_BINPUT || *p == OP_LONG_BINGET)
			ofs_put_le(p + 1, rank, 4);
	}
}

int ofs_pk_close_gaps(uint8_t *pickle, uint64_t n, struct optimfs_error *err)
{
	struct numbers c = { 0 };
	bool text = false;
	int ret = -1;

	if (pk_begin(&c.p, pickle, n, err) == 0) {
		c.p.memoed = numbered;
		c.p.sparse = true;
		do {
			c.p.at = (uint64_t)(c.p.c.p - c.p.start);
			ret = pk_step(&c.p);
		} while (ret == 0);
	}
	pk_end(&c.p);
	for (size_t i = 0; i < c.n && !text; i++)
		text =
		    pickle[c.v[i].at] == OP_PUT || pickle[c.v[i].at] == OP_GET;
	if (ret == 1 && (c.no_memory || rank_puts(&c, pickle) == -1))
		ret = ofs_no_memory(err);
	if (ret == 1 && !text)
		renumber(&c, pickle);
	free(c.v);
	free(c.put);
	return ret == -1 ? -1 : 0;
}
