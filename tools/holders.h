/* holders.h - which rank holds how much of each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_HOLDERS_H
#define OFS_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/analyze.h"

#include "base/json_write.h"
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

/* What a rank has of a tensor; the place of the rank in r. */
typedef int ofs_holder_fn(void *ctx, size_t i, const struct optimfs_holding *h);

/* Call each for the ranks that have some of the tensor at a path, in ascending
 * order; for none where nothing is known. */
void ofs_holders_each(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, ofs_holder_fn *each, void *ctx);

/* The same as a member parts of a JSON object, with ranks that follow each other and have as much as one
 * element: [the place of the first, ranks, bytes of each, 1 if bad]. */
void ofs_holders_put(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, bool (*bad)(void *ctx, const struct optimfs_holding *h),
    void *ctx, struct ofs_json_writer *w);

#endif
