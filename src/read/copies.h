/* copies.h - where all copies of elements are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_COPIES_H
#define OFS_READ_COPIES_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* The segments of elements [first, first + count) of t, in C order of its shape,
 * in its shards and in all their replicas. EIO (OFS607): no shard has some of
 * them. */
int ofs_plan_copies(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct ofs_plan *plan,
    struct optimfs_error *err);

#endif
