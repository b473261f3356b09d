/* cut.h - tensors that are rows of others, as boxes of the catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_CUT_H
#define OFS_FAMILY_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A tensor seen as a matrix of any number of axes whose first one is its rows:
 * of a stack one matrix, whose two axes may be stored in the other order. */
struct ofs_family_side {
	int64_t layer;  /* the index in its first axis; -1: it is no stack */
	bool transpose; /* of two axes, the rows are the second */
};

/* Rows [row, row + n) of one are rows [to, to + n) of the other. */
struct ofs_family_cut {
	uint32_t tensor;
	uint64_t row, n, to;
	struct ofs_family_side from, into;
};

/* The axes of a tensor without that of the stack, and rows first. */
unsigned ofs_side_shape(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_family_side side,
    uint64_t shape[OFS_MAX_DIMS]);

/* Add a tensor of this shape that consists of these cuts, which must be inside
 * their tensors and in it; its elements stay where they are stored. The catalog
 * is one that was copied (ofs_catalog_copy), and the tensor is not checked yet
 * (ofs_catalog_check_added). OFS_NONE: EOPNOTSUPP (OFS895) for blocks of
 * another shape and quantized types, ENOMEM or E2BIG. */
uint32_t ofs_cut_tensor(struct ofs_catalog *cat,
    const struct ofs_family_cut *cuts, size_t n, const uint64_t *shape,
    unsigned ndim, struct optimfs_error *err);

#endif
