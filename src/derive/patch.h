/* patch.h - tensors of which a state before and changes are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_PATCH_H
#define OFS_DERIVE_PATCH_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "catalog/delta.h"
#include "read/reader.h"

/* One change: name tells people whose it is ("version 3"). */
struct ofs_patch_step {
	struct ofs_reader *reader;
	const char *name;
	const struct ofs_delta_part *change;
};

/* Makes a tensor of cat, which is being built, tensor of of base, which has its
 * type and shape, with the changes v[0..n), the oldest first. base, readers,
 * names and changes must live as long as cat. A change that does not fit gives
 * the tensor an error (OFS883).
 *
 * Before the first read, positions are read once: they must be ascending and in
 * the tensor (OFS883). If the last change has a checksum, the whole tensor is
 * computed once, and compared with it (OFS884). */
int ofs_patch_derive(struct ofs_catalog *cat, uint32_t tensor,
    struct ofs_reader *base, uint32_t of, const struct ofs_patch_step *v,
    uint32_t n, struct optimfs_error *err);

#endif
