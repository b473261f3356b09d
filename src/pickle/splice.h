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
	struct ofs_buf bytes;
};

/* Starts as zeros. */
struct ofs_pk_edits {
	struct ofs_pk_splice *v;
	size_t n, cap;
};

/* A new edit, without bytes, until the next is added; NULL with ENOMEM. */
struct ofs_pk_splice *ofs_pk_edits_add(struct ofs_pk_edits *edits,
    uint32_t node, uint32_t item, enum ofs_pk_splice_op op,
    struct optimfs_error *err);
void ofs_pk_edits_fini(struct ofs_pk_edits *edits);

/* Append the n bytes at p, with all edits applied, to out. Sorts edits. EUCLEAN
 * (OFS825): the place of an edit is not found. EINVAL (OFS828): two edits of
 * one place differ. ENOMEM, also where the bytes of an edit are bad. */
int ofs_pickle_splice(const uint8_t *p, uint64_t n, struct ofs_pk_edits *edits,
    struct ofs_buf *out, struct optimfs_error *err);

/* splice_memo.c: of the n bytes of a pickle, replace the memo numbers by their
 * ranks, which never need more bytes. What was cut out leaves gaps in them, and
 * readers that size the memo by the length of the pickle, ours among them, refuse
 * large gaps. */
int ofs_pk_close_gaps(uint8_t *pickle, uint64_t n, struct optimfs_error *err);

#endif
