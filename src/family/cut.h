/* cut.h - tensors that are rows of others, as boxes of the catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_CUT_H
#define OFS_FAMILY_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A tensor seen as a matrix of any number of axes whose first one is its rows:
 * of a stack one matrix, or all of them, and then the axis of the stack is the
 * last one. */
struct ofs_family_side {
	/* the index in its first axis, which is that of a stack; or one of: */
	int64_t layer;
	bool transpose; /* of two axes, the rows are the second */
	/* row i of each half is stored as row 2 * i, or 2 * i + 1 */
	bool alternate;
};
#define OFS_SIDE_PLAIN (-1) /* it is no stack */
#define OFS_SIDE_ALL   (-2) /* all matrices of a stack */

/* Rows [row, row + n) of one are rows [to, to + n) of the other. Where rows
 * alternate, they must be in one half. */
struct ofs_family_cut {
	uint32_t tensor;
	uint64_t row, n, to;
	struct ofs_family_side from, into;
};

/* The axes of a tensor without that of the stack, and rows first. */
unsigned ofs_side_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_family_side side,
    uint64_t shape[OFS_MAX_DIMS]);
/* The other way: the n axes in the order of the tensor, whose axis of a stack,
 * if side has one matrix of it, is left as it is. */
void ofs_side_place(struct ofs_family_side side, const uint64_t *shape,
    unsigned n, uint64_t *placed);

/* Add a tensor of this shape that consists of these cuts (the first one must be
 * there, also without rows, and all into the same side but for its layer), which
 * must be inside their tensors and in it; its elements stay where they are
 * stored. The catalog is one that was copied (ofs_catalog_copy), and the tensor
 * is not checked yet (ofs_catalog_check_added). OFS_NONE: EOPNOTSUPP (OFS895) for
 * blocks of another shape and quantized types, ENOMEM or E2BIG. */
uint32_t ofs_cut_tensor(struct ofs_catalog *cat,
    const struct ofs_family_cut *cuts, size_t n, const uint64_t *shape,
    unsigned ndim, struct optimfs_error *err);

#endif
