/* placement.h - how a mesh of ranks cuts one dimension of a DTensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PLACEMENT_H
#define OFS_FORMAT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* What one dimension of the mesh does with the tensor;
 * docs/formats/ranks.md. */
struct ofs_placement {
	enum { OFS_REPLICATE, OFS_SHARD } kind;
	uint32_t dim;
	uint64_t split; /* 1, or the factor of a _StridedShard */
};

/* Indexes first .. first + count - 1. */
struct ofs_run {
	uint64_t first, count;
};

#define OFS_MAX_MESH 16
#define OFS_MAX_RUNS 65536

/* The runs of indexes of dimension dim, of size n, that the rank at these mesh
 * coordinates holds, in the order in which it stores them. No run is empty, and
 * adjacent runs are merged. Placements of other dimensions are ignored.
 *
 * A _StridedShard whose factor says that other mesh dimensions cut first is
 * read that way: FSDP over tensor parallelism means this, and the sizes differ
 * where a division leaves a remainder. With literal set, or with any other
 * factor, the dimension is cut into split chunks, and each chunk over the mesh.
 * *run is malloc'ed. E2BIG (OFS694): more than OFS_MAX_RUNS. */
int ofs_placement_runs(const struct ofs_placement *p, const uint64_t *mesh,
    const uint64_t *coordinate, uint32_t nmesh, uint32_t dim, uint64_t n,
    bool literal, struct ofs_run **run, uint32_t *nruns,
    struct optimfs_error *err);

#endif
