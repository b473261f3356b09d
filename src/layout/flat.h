/* flat.h - parameters laid end to end and cut over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_FLAT_H
#define OFS_LAYOUT_FLAT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

/* One flat parameter: an FSDP unit's parameters, flattened in C order and laid
 * end to end, then cut into as many equal shards as there are ranks. All
 * numbers are elements. docs/formats/fsdp.md, "Flat parameters", has the rules
 * and where PyTorch has them (torch/distributed/fsdp/_flat_param.py). */
struct ofs_flat {
	uint32_t nparams;
	const uint64_t *numel; /* of each parameter; borrowed */
	uint64_t *start;       /* where each begins in the flat parameter */
	/* All parameters and the padding between them; with alignment also the
	 * padding that makes it a multiple of world. */
	uint64_t size;
	/* What each rank holds; the last ones' ends may lie beyond size. */
	uint64_t shard;
	uint32_t world;
};

/* How parameters are laid: packed (use_orig_params=False), or each at a
 * multiple of align elements (use_orig_params=True), where align is 16 bytes
 * over the element size of the dtype that the forward pass used. */
#define OFS_FLAT_PACKED 0

/* EINVAL: no rank, a sum that overflows. ENOMEM. */
int ofs_flat_init(struct ofs_flat *f, const uint64_t *numel, uint32_t nparams,
    uint32_t align, uint32_t world, struct optimfs_error *err);
void ofs_flat_fini(struct ofs_flat *f);
/* Let shards be so long that all of them together are a multiple of align and
 * of world: DeepSpeed's flat groups (docs/formats/deepspeed.md). EINVAL: they
 * would overflow. */
int ofs_flat_spread(struct ofs_flat *f, uint64_t align,
    struct optimfs_error *err);

/* What rank holds of a parameter: count of its elements from first on, which
 * begin at element at of the rank's shard. count is 0 where it holds none. */
struct ofs_flat_slice {
	uint64_t first, count, at;
};
struct ofs_flat_slice ofs_flat_slice(const struct ofs_flat *f, uint32_t param,
    uint32_t rank);

/* Elements of the flat parameter, padding of alignment included, that rank's
 * shard holds: shard, less at the end, 0 beyond it. */
uint64_t ofs_flat_held(const struct ofs_flat *f, uint32_t rank);

#endif
