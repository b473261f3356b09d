/* archive.h - torch.save archives of one object, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_ARCHIVE_H
#define OFS_LAYOUT_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "plan/composition.h"

/* The archive of a tensor or a value, as DCP stores one for each item. */
struct ofs_torch_item {
	const uint8_t *pickle;
	uint64_t npickle;
	bool tensor;    /* with a record for its elements */
	uint64_t bytes; /* of those */
};

uint64_t ofs_torch_item_size(const struct ofs_torch_item *item);
/* Append it to c, in a file of which it begins at byte at: the elements are
 * those of a tensor from first on. crc: the checksum of the elements is right, not 0. */
int ofs_torch_item_make(const struct ofs_torch_item *item,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first, uint64_t at,
    bool crc, struct ofs_composition *c, struct optimfs_error *err);

/* A number that tells one pickle from another: .data/serialization_id. */
uint64_t ofs_torch_id(const uint8_t *pickle, uint64_t n);

#endif
