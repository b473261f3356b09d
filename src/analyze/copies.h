/* copies.h - do all stored copies of a tensor's shards agree? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_COPIES_H
#define OFS_ANALYZE_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

struct ofs_copies {
	bool differ;
	const char *file[2]; /* the two that do; fs's */
	uint64_t first;      /* byte of the shard */
};

/* Compare all copies of a tensor with those that are read; the first that
 * differs is told. What cannot be read is passed over. */
int ofs_copies_compare(struct optimfs *fs, uint64_t node,
    struct ofs_copies *copies, struct optimfs_error *err);

#endif
