/* archive.h - torch.save archives of one object, made on demand */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_ARCHIVE_H
#define OFS_LAYOUT_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "plan/composition.h"

/* The archive of one tensor or value; DCP stores one for each item. */
struct ofs_torch_item {
	const uint8_t *pickle;
	uint64_t npickle;
	bool tensor;    /* there is a record of elements */
	uint64_t bytes; /* size of the elements */
};

uint64_t ofs_torch_item_size(const struct ofs_torch_item *item);
/* Append it to c, the composition of a file in which it begins at byte at. The
 * elements are those of tensor from first on. crc: compute the checksum of the
 * elements; else it is 0. */
int ofs_torch_item_make(const struct ofs_torch_item *item,
    const struct ofs_catalog *cat, uint32_t tensor, uint64_t first, uint64_t at,
    bool crc, struct ofs_composition *c, struct optimfs_error *err);

/* A number that identifies the content of a pickle: .data/serialization_id. */
uint64_t ofs_torch_id(const uint8_t *pickle, uint64_t n);

#endif
