/* copies.h - what is known about copies of elements without reading them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_RANKS_COPIES_H
#define OFS_FORMAT_RANKS_COPIES_H

#include "format/ranks/ranks.h"

/* The shards of one tensor that ranks hold. */
struct ofs_ranks_copies {
	struct ofs_ranks_copy {
		uint32_t box; /* in the dims of the catalog; OFS_NONE: all */
		int rank;
		uint32_t whole; /* ofs_ranks_checksum */
		uint64_t print;
	} * v;
	size_t n, cap;
};

/* Add t, as it is given to ofs_ranks_shard; whole is its ofs_ranks_checksum,
 * before it was cut. */
int ofs_ranks_copies_add(struct ofs_ranks_copies *c, struct ofs_ranks *set,
    const struct ofs_ranks_leaf *leaf, struct ofs_torch_tensor *t,
    uint32_t whole, uint32_t box, struct optimfs_error *err);
/* Are those in one box copies? Frees c. */
enum ofs_ranks_agree {
	OFS_RANKS_AGREE,
	OFS_RANKS_DOUBT,  /* they have to be read: OFS_TENSOR_DOUBT */
	OFS_RANKS_DIFFER, /* rank[0] and rank[1] do */
} ofs_ranks_copies_end(struct ofs_ranks_copies *c, int rank[2]);

#endif
