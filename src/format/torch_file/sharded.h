/* sharded.h - pickled ShardedTensors, DTensors and CheckpointableTensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_SHARDED_H
#define OFS_FORMAT_TORCH_FILE_SHARDED_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "format/placement.h"
#include "pickle/pickle.h"

/* A box of the whole tensor, and its place in a local tensor. */
struct ofs_torch_piece {
	uint32_t node; /* the local tensor */
	uint64_t offset[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint64_t at[OFS_MAX_DIMS]; /* first element in the local tensor */
	/* the shape that the local tensor must have */
	uint64_t local[OFS_MAX_DIMS];
};

/* A tensor of several ranks, as one rank's pickle describes it. */
struct ofs_torch_sharded {
	uint8_t dtype; /* enum ofs_dtype; OFS_DTYPE_NONE: unknown */
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS]; /* of the whole tensor */
	int world;                    /* number of ranks; 0: unknown */
	/* world includes only ranks up to the last of a part of the job */
	bool part;
	int rank;                      /* that wrote it; -1: unknown */
	struct ofs_torch_piece *piece; /* empty on a rank without elements */
	uint32_t npieces, piece_cap;
};

/* How a mesh of ranks divides a DTensor, as one of them sees it. */
struct ofs_torch_mesh {
	uint64_t shape[OFS_MAX_MESH], coordinate[OFS_MAX_MESH];
	struct ofs_placement placement[OFS_MAX_MESH];
	uint32_t ndim;
	bool outside; /* the rank is not in the mesh */
};
/* Adds to s, whose shape is set, the pieces of the rank at the coordinates of m.
 * local is the shape of its local tensor, node: of s->ndim dimensions; NULL: it
 * is unknown. Pieces have the shape that it should have. */
int ofs_torch_cut(const struct ofs_torch_mesh *m, const uint64_t *local,
    uint32_t node, struct ofs_torch_sharded *s, struct optimfs_error *err);

/* Is node a ShardedTensor or a DTensor by its class, or a CheckpointableTensor
 * by its attributes? */
bool ofs_torch_is_sharded(const struct ofs_pickle *doc, uint32_t node);
/* Read node, for which ofs_torch_is_sharded is true. 0: *s is to be freed with
 * ofs_torch_sharded_fini. -1: it is damaged (EUCLEAN, OFS691) or not supported
 * (EOPNOTSUPP, OFS692: partial sums, several shards in a shard); then dtype,
 * ndim and shape of *s are set if known, else dtype is OFS_DTYPE_NONE. */
int ofs_torch_sharded(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err);
void ofs_torch_sharded_fini(struct ofs_torch_sharded *s);

#endif
