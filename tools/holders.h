/* holders.h - which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_HOLDERS_H
#define OFS_HOLDERS_H

#include <stddef.h>
#include <stdint.h>

#include "tools/command.h"

/* Begins as zeros. */
struct ofs_holders {
	int *rank; /* in ascending order */
	size_t n, cap;
};

/* The ranks that wrote the checkpoint; none where that is not known. */
int ofs_holders_find(struct ofs_holders *r, struct ofs_command *c,
    struct optimfs_error *err);
void ofs_holders_fini(struct ofs_holders *r);

/* Bytes that a rank has of the tensor at a path. */
uint64_t ofs_holders_bytes(const struct ofs_command *c, int rank,
    const char *path);

#endif
