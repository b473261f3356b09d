/* pk4.h - a pickle of protocol 4 with memo and frames, as Python writes it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PK4_H
#define PK4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

#define PK4_NAMES 64

/* Strings and globals that are written once and then taken from the memo, by
 * address of the literal. */
struct pk4 {
	FILE *to;
	const char *path;
	struct ofs_buf frame;
	uint32_t memo; /* entries */
	struct {
		const char *module, *name; /* module NULL: a string */
		uint32_t memo;
	} known[PK4_NAMES];
	size_t nknown;
};

/* Failures end the program. */
void pk4_open(struct pk4 *p, const char *path);
void pk4_close(struct pk4 *p); /* writes STOP */

void pk4_op(struct pk4 *p, int op);
/* The same with MEMOIZE; returns the memo number. */
uint32_t pk4_op_memo(struct pk4 *p, int op);
uint32_t pk4_str(struct pk4 *p, const char *s);
void pk4_get(struct pk4 *p, uint32_t memo);
void pk4_known(struct pk4 *p, const char *s);
void pk4_global(struct pk4 *p, const char *module, const char *name);
void pk4_int(struct pk4 *p, uint64_t v);
/* A tuple of the n objects that were pushed last; call _open before them. */
void pk4_tuple_open(struct pk4 *p, size_t n);
void pk4_tuple(struct pk4 *p, size_t n);
/* cls() whose attributes follow as a dict of n pairs; then _end. */
void pk4_object(struct pk4 *p, const char *module, const char *cls);
void pk4_object_end(struct pk4 *p);

/* The items of a list or the pairs of a dict, in batches of 1000: call _next
 * before each, _end after the last. */
struct pk4_batch {
	size_t left, in;
	int close; /* opcode */
	bool mark;
};
struct pk4_batch pk4_list(struct pk4 *p, size_t n);
struct pk4_batch pk4_dict(struct pk4 *p, size_t n);
void pk4_next(struct pk4 *p, struct pk4_batch *b);
void pk4_end(struct pk4 *p, struct pk4_batch *b);

#endif
