/* torch_sharded.h - pickled ShardedTensors and DTensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TORCH_SHARDED_H
#define OFS_TORCH_SHARDED_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog.h"
#include "format/pickle.h"

/* A box of the global tensor, and where it lies in a local tensor. */
struct ofs_torch_piece {
	uint32_t node; /* the local tensor */
	uint64_t offset[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint64_t at[OFS_MAX_DIMS]; /* of its first element in the local one */
	/* what the local tensor must have */
	uint64_t local[OFS_MAX_DIMS];
};

/* What one rank's pickle says of a tensor that several ranks hold. */
struct ofs_torch_sharded {
	bool dtensor;  /* or a ShardedTensor */
	uint8_t dtype; /* enum ofs_dtype */
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS]; /* of all ranks together */
	int world; /* ranks of the job; 0 when it does not say */
	int rank;  /* that wrote it; -1 when it does not say */
	struct ofs_torch_piece *piece; /* none on a rank without elements */
	uint32_t npieces;
};

/* Is node a ShardedTensor or a DTensor, as far as its class goes? */
bool ofs_torch_is_sharded(const struct ofs_pickle *doc, uint32_t node);
/* 1: *s describes it (ofs_torch_sharded_fini); 0: it is something else; -1: it
 * is one that is damaged (EUCLEAN, OFS69x) or of a kind not supported
 * (EOPNOTSUPP: partial sums, shards within several shards); dtype, ndim and
 * shape of *s are set when they could be told. */
int ofs_torch_sharded(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err);
void ofs_torch_sharded_fini(struct ofs_torch_sharded *s);

/* How a DTensor's mesh cuts a dimension. */
struct ofs_placement {
	enum { OFS_REPLICATE, OFS_SHARD } kind;
	uint32_t dim;
	uint32_t split; /* 1; the factor of a _StridedShard */
};

/* The runs of indexes of one dimension of n elements that the rank at these
 * coordinates of a mesh holds, in the order in which it holds them; runs that
 * touch are one. Placements of other dimensions are passed over. *run is
 * malloc'ed. E2BIG: more than 65,536 runs. */
struct ofs_run {
	uint64_t first, count;
};
int ofs_placement_runs(const struct ofs_placement *p, const uint64_t *mesh,
    const uint64_t *coordinate, uint32_t nmesh, uint32_t dim, uint64_t n,
    struct ofs_run **run, uint32_t *nruns, struct optimfs_error *err);

#endif
