/* pieces.h - a tensor joined from the slices that ranks hold */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_RANKS_PIECES_H
#define OFS_FORMAT_RANKS_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "format/ranks/copies.h"
#include "format/ranks/ranks.h"
#include "layout/flat.h"

/* A parameter, or a state of it, whose elements ranks hold as runs in
 * one-dimensional tensors. The first fault becomes the tensor's error: why is
 * set, and later additions are ignored. */
struct ofs_pieces {
	struct ofs_ranks *set;
	struct ofs_tensor t;
	const uint64_t *shape; /* of the parameter; borrowed */
	uint32_t ndim;
	uint64_t numel;
	bool cut; /* boxes have one dimension */
	/* dtype to which float32 slices are rounded, or 0 */
	uint8_t round;
	struct ofs_ranks_copies copies;
	struct optimfs_error why; /* code 0: no fault */
};

int ofs_pieces_begin(struct ofs_pieces *x, struct ofs_ranks *set,
    const uint64_t *shape, uint32_t ndim, uint64_t numel,
    struct optimfs_error *err);
/* Add a slice: elements from s->at on of the one-dimensional tensor node in
 * leaf's file are s->count elements of the parameter from s->first on. The
 * tensor must have have elements. */
int ofs_pieces_add(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, uint64_t have, const struct ofs_flat_slice *s,
    struct optimfs_error *err);
/* As above, for t in the storage at, both from ofs_ranks_tensor; the caller has
 * checked the length. */
int ofs_pieces_slice(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at,
    const struct ofs_flat_slice *s, struct optimfs_error *err);
/* Add a tensor with the shape of the parameter. */
int ofs_pieces_whole(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err);
/* Add the entry at path, as in ofs_catalog_add; *ref gets the tensor. */
int ofs_pieces_end(struct ofs_pieces *x, uint32_t path, uint32_t *ref,
    struct optimfs_error *err);

/* Get the tensor node of leaf's file. -1 with x->why: it is not a tensor, or
 * its dtype differs from that of the others. */
int ofs_pieces_get(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at);

#endif
