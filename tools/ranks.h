/* ranks.h - which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RANKS_H
#define OFS_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/command.h"

/* Begins as zeros. */
struct ofs_ranks {
	int *rank; /* in ascending order */
	size_t n, cap;
};

/* The ranks that wrote the checkpoint; none where that is not known. */
int ofs_ranks_find(struct ofs_ranks *r, struct ofs_command *c,
    struct optimfs_error *err);
void ofs_ranks_fini(struct ofs_ranks *r);

/* Bytes that a rank has of the tensor at a path. */
uint64_t ofs_ranks_bytes(const struct ofs_command *c, int rank,
    const char *path);

#endif
