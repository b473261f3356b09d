/* holders.h - how much of each tensor each rank holds */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_HOLDERS_H
#define OFS_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/analyze.h"

#include "base/json_write.h"
#include "tools/command.h"

/* Starts as zeros. */
struct ofs_holders {
	int *rank; /* sorted */
	size_t n, cap;
};

/* The ranks that wrote the checkpoint; none if unknown. */
int ofs_holders_find(struct ofs_holders *r, struct ofs_command *c,
    struct optimfs_error *err);
void ofs_holders_fini(struct ofs_holders *r);

/* The part of a tensor that a rank has; i is the index of the rank in r. */
typedef int ofs_holder_fn(void *ctx, size_t i, const struct optimfs_holding *h);

/* Calls each for the ranks that hold part of the tensor at a path, in ascending
 * order; for none if unknown. */
void ofs_holders_each(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, ofs_holder_fn *each, void *ctx);

/* Writes the same as the member "parts" of a JSON object. Adjacent ranks with
 * equal parts form one element: [index of the first, number of ranks, bytes of
 * each, 1 if missing or, with damage, damaged]. */
void ofs_holders_put(const struct ofs_holders *r, const struct ofs_command *c,
    const char *path, bool damage, struct ofs_json_writer *w);

#endif
