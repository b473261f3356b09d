/* sharded.h - pickled ShardedTensors, DTensors and CheckpointableTensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_SHARDED_H
#define OFS_FORMAT_TORCH_FILE_SHARDED_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* A box of the whole tensor, and where it lies in a local tensor. */
struct ofs_torch_piece {
	uint32_t node; /* the local tensor */
	uint64_t offset[OFS_MAX_DIMS], size[OFS_MAX_DIMS];
	uint64_t at[OFS_MAX_DIMS]; /* of its first element in the local one */
	uint64_t local[OFS_MAX_DIMS]; /* the shape that one must have */
};

/* What one rank's pickle says of a tensor that several ranks hold. */
struct ofs_torch_sharded {
	uint8_t dtype; /* enum ofs_dtype; NONE: it does not say */
	uint8_t ndim;
	uint64_t shape[OFS_MAX_DIMS]; /* of all ranks together */
	int world;                    /* of the job; 0 when it does not say */
	bool part; /* world counts up to the last rank of a part of the job */
	int rank;  /* that wrote it; -1 when it does not say */
	struct ofs_torch_piece *piece; /* none on a rank without elements */
	uint32_t npieces, piece_cap;
};

/* Is node a ShardedTensor or a DTensor, as far as its class goes, or a
 * CheckpointableTensor, as far as its attributes go? */
bool ofs_torch_is_sharded(const struct ofs_pickle *doc, uint32_t node);
/* What node, which ofs_torch_is_sharded, says: 0, or -1 when it is damaged
 * (EUCLEAN, OFS691) or of a kind not supported (EOPNOTSUPP, OFS692: partial
 * sums, several shards within a shard); dtype, ndim and shape of *s are then
 * set when they could be told (dtype NONE: they could not). On success *s is
 * the caller's to free with ofs_torch_sharded_fini. */
int ofs_torch_sharded(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_sharded *s, struct optimfs_error *err);
void ofs_torch_sharded_fini(struct ofs_torch_sharded *s);

#endif
