/* packed.h - numbers stored in few bits, with scales, as float32 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_PACKED_H
#define OFS_DERIVE_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"

/* A matrix of codes of 8 or 4 bits, and a scale for each block of it, as tensors
 * of one catalog: a number is value(code) * scale. Products and sums are rounded
 * to float32 one after the other. */
struct ofs_packed {
	/* one byte: one code, or two; elements of other types are bytes */
	uint32_t codes;
	uint32_t scale; /* in C order of the blocks */
	/* one number that scales are multiplied with, or divided by;
	 * OFS_NONE */
	uint32_t factor;
	/* the values of the codes, float32; OFS_NONE: those of the type of
	 * codes, or with nibbles of E2M1 */
	uint32_t table;
	bool nibbles;
	bool high_first; /* with nibbles: the first is in the upper half */
	bool divide;
	bool exponents; /* a scale is 2^(byte - 127) */
	/* Scales that are codes, too: scale i is nested_table[scale[i]] *
	 * nested_scale[i / nested_block] + offset. nested_block 0: they are
	 * not. */
	uint32_t nested_scale, nested_table;
	uint64_t nested_block;
	float offset;
	float last; /* the product is multiplied with it; 0: it is not */
	uint64_t rows, cols;
	uint64_t block_rows, block_cols;
};

/* Makes a tensor of cat, which has rows * cols elements of float32 and is being
 * built, that matrix. */
int ofs_packed_derive(struct ofs_catalog *cat, uint32_t tensor,
    const struct ofs_packed *p, struct optimfs_error *err);

/* The same for a shard that is a torch.save archive of a packed tensor of torchao
 * (ofs_torch_packed), which is only known when it is read: makes s, of float32,
 * such a shard. */
int ofs_packed_item(struct ofs_catalog *cat, struct ofs_shard *s,
    struct optimfs_error *err);

#endif
