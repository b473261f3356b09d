/* splice.h - a pickle with some items of its containers changed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_SPLICE_H
#define OFS_PICKLE_SPLICE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* What nobody has changed stays byte for byte: objects of unknown classes,
 * shared values, whatever a program pickled. Nodes are those that
 * ofs_pickle_parse gives for the same bytes. */
struct ofs_pk_splice {
	uint32_t node; /* a LIST, DICT or TUPLE */
	uint32_t item; /* or pair */
	enum ofs_pk_splice_op {
		OFS_PK_REPLACE, /* the item, or the value of the pair */
		OFS_PK_RENAME,  /* the key of the pair */
		OFS_PK_DROP,    /* of a LIST or DICT */
		OFS_PK_ADD,     /* behind the last one; item only orders them */
	} op;
	/* Opcodes that push the item, or of a pair that is added key and value,
	 * and touch no memo (struct ofs_pkw, plain). */
	const uint8_t *bytes;
	size_t n;
};

/* The n bytes at p with all edits, which are put in order, appended to out. An
 * edit whose place is not found is EUCLEAN (OFS825), two that differ in one
 * place EINVAL (OFS828). */
int ofs_pickle_splice(const uint8_t *p, uint64_t n, struct ofs_pk_splice *edits,
    size_t nedits, struct ofs_buf *out, struct optimfs_error *err);

#endif
