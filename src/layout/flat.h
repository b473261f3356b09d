/* flat.h - parameters laid end to end and cut over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_FLAT_H
#define OFS_LAYOUT_FLAT_H

#include <stdint.h>

#include "optimfs/error.h"

/* A flat parameter: the parameters of an FSDP unit, flattened in C order, laid
 * end to end, and cut into an equal shard for each rank. All numbers count
 * elements. docs/formats/fsdp.md, "Flat parameters", has the rules and their
 * source in PyTorch (torch/distributed/fsdp/_flat_param.py). */
struct ofs_flat {
	uint32_t nparams;
	const uint64_t *numel; /* of each parameter; borrowed */
	uint64_t *start;       /* start of each in the flat parameter */
	/* All parameters and the padding between them; with alignment also the
	 * padding to a multiple of world. */
	uint64_t size;
	/* The length of a shard; the last ones may extend beyond size. */
	uint64_t shard;
	uint32_t world;
};

/* Parameters are packed (use_orig_params=False), or each begins at a multiple
 * of align elements (use_orig_params=True); align is 16 bytes divided by the
 * element size of the dtype of the forward pass. */
#define OFS_FLAT_PACKED 0

/* EINVAL: world is 0, or a sum overflows. ENOMEM. */
int ofs_flat_init(struct ofs_flat *f, const uint64_t *numel, uint32_t nparams,
    uint32_t align, uint32_t world, struct optimfs_error *err);
void ofs_flat_fini(struct ofs_flat *f);
/* Lengthen the shards so that their sum is a multiple of align and of world, as
 * in DeepSpeed's flat groups (docs/formats/deepspeed.md). EINVAL on
 * overflow. */
int ofs_flat_spread(struct ofs_flat *f, uint64_t align,
    struct optimfs_error *err);

/* The part of a parameter in a rank's shard: count elements from first on, at
 * element at of the shard. count is 0 when there is none. */
struct ofs_flat_slice {
	uint64_t first, count, at;
};
struct ofs_flat_slice ofs_flat_slice(const struct ofs_flat *f, uint32_t param,
    uint32_t rank);
/* The same for elements [lo, lo + n) of the flat parameter. */
struct ofs_flat_slice ofs_flat_overlap(const struct ofs_flat *f, uint32_t param,
    uint64_t lo, uint64_t n);

/* The number of elements in rank's shard that are inside the flat parameter,
 * with its alignment padding: shard, less in the last one, 0 beyond it. */
uint64_t ofs_flat_held(const struct ofs_flat *f, uint32_t rank);

#endif
