/* pieces.h - a tensor put together from slices that ranks hold of it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_RANKS_PIECES_H
#define OFS_FORMAT_RANKS_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "format/ranks/ranks.h"
#include "layout/flat.h"

/* A parameter, or a state of one, of which ranks hold runs of elements within
 * tensors of one dimension. What is wrong with it becomes the tensor's error:
 * why is set, and what is added after that is passed over. */
struct ofs_pieces {
	struct ofs_ranks *set;
	struct ofs_tensor t;
	const uint64_t *shape; /* of the parameter; borrowed */
	uint32_t ndim;
	uint64_t numel;
	bool cut;                 /* boxes are in one dimension */
	uint8_t round;            /* dtype to show slices of float32 in, or 0 */
	struct optimfs_error why; /* code 0: nothing */
};

int ofs_pieces_begin(struct ofs_pieces *x, struct ofs_ranks *set,
    const uint64_t *shape, uint32_t ndim, uint64_t numel,
    struct optimfs_error *err);
/* Elements s->at and following of the one-dimensional tensor node of leaf's
 * file are s->count elements of the parameter from s->first on. have is how
 * many there must be in all. */
int ofs_pieces_add(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, uint64_t have, const struct ofs_flat_slice *s,
    struct optimfs_error *err);
/* The same of t, which lies in its storage at: ofs_ranks_tensor gave both, and
 * whoever calls has looked at its length. */
int ofs_pieces_slice(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct ofs_torch_tensor *t, const struct ofs_extent *at,
    const struct ofs_flat_slice *s, struct optimfs_error *err);
/* A tensor of the parameter's own shape. */
int ofs_pieces_whole(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    struct optimfs_error *err);
/* Add it at path. *ref gets the tensor. */
int ofs_pieces_end(struct ofs_pieces *x, uint32_t path, uint32_t *ref,
    struct optimfs_error *err);

/* The tensor node of leaf's file, if it is one and of the dtype that the
 * others have. -1: no; then x->why says so. */
int ofs_pieces_get(struct ofs_pieces *x, const struct ofs_ranks_leaf *leaf,
    uint32_t node, struct ofs_torch_tensor *t, struct ofs_extent *at);

#endif
