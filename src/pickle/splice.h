/* splice.h - a pickle with changed items of its containers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_SPLICE_H
#define OFS_PICKLE_SPLICE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* All that is not changed keeps its bytes: objects of unknown classes, shared
 * values, any opcodes that a program wrote. Nodes are those of ofs_pickle_parse
 * for the same bytes. */
struct ofs_pk_splice {
	uint32_t node; /* a LIST, DICT or TUPLE */
	uint32_t item; /* its index, or that of a pair */
	enum ofs_pk_splice_op {
		OFS_PK_REPLACE, /* the item, or the value of the pair */
		OFS_PK_RENAME,  /* the key of the pair */
		OFS_PK_DROP,    /* of a LIST or DICT */
		OFS_PK_ADD,     /* append; item orders additions */
	} op;
	/* Opcodes that push the new item, or for an added pair key and value.
	 * They must not use the memo (struct ofs_pkw, plain). */
	const uint8_t *bytes;
	size_t n;
};

/* Append the n bytes at p, with all edits applied, to out. Sorts edits. EUCLEAN
 * (OFS825): the place of an edit is not found. EINVAL (OFS828): two edits of
 * one place differ. */
int ofs_pickle_splice(const uint8_t *p, uint64_t n, struct ofs_pk_splice *edits,
    size_t nedits, struct ofs_buf *out, struct optimfs_error *err);

#endif
