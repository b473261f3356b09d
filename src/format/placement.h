/* placement.h - how a mesh of ranks cuts one dimension of a DTensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_PLACEMENT_H
#define OFS_FORMAT_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* What one dimension of the mesh does; docs/formats/ranks.md. */
struct ofs_placement {
	enum { OFS_REPLICATE, OFS_SHARD } kind;
	uint32_t dim;
	uint64_t split; /* 1; the factor of a _StridedShard */
};

/* Indexes first .. first + count - 1. */
struct ofs_run {
	uint64_t first, count;
};

#define OFS_MAX_MESH 16
#define OFS_MAX_RUNS 65536

/* The runs of indexes of dimension dim, n long, that the rank at these
 * coordinates of the mesh holds, in the order in which it holds them. No run is
 * empty and runs that touch are one. Placements of other dimensions are passed
 * over. A _StridedShard whose factor says that other dimensions of the mesh cut
 * first is read so (it is what FSDP over tensor parallelism means by it, and
 * differs in sizes that do not divide evenly) unless literal is set: then, and
 * for any other factor, the dimension is cut into split chunks and each of them
 * over the mesh. *run is malloc'ed. E2BIG (OFS694): more than OFS_MAX_RUNS. */
int ofs_placement_runs(const struct ofs_placement *p, const uint64_t *mesh,
    const uint64_t *coordinate, uint32_t nmesh, uint32_t dim, uint64_t n,
    bool literal, struct ofs_run **run, uint32_t *nruns,
    struct optimfs_error *err);

#endif
