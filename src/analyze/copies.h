/* copies.h - compare the stored copies of a tensor's shards */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ANALYZE_COPIES_H
#define OFS_ANALYZE_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

struct ofs_copies {
	bool differ;
	const char *file[2]; /* the two files; owned by fs */
	uint64_t first;      /* offset in the shard */
};

/* Compares all copies of a tensor with those that are usually read, and reports
 * the first difference. Unreadable copies are skipped. */
int ofs_copies_compare(struct optimfs *fs, uint64_t node,
    struct ofs_copies *copies, struct optimfs_error *err);

#endif
