/* fetch.h - the bytes that a plan asks for */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_FETCH_H
#define OFS_READ_FETCH_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* Read the segments of plan into buf and apply their fixes (plan/fix.h). */
int ofs_fetch(struct ofs_reader *r, const struct ofs_plan *plan, void *buf,
    struct optimfs_error *err);
/* Read elements [first, first + count) of t, in C order of its shape. */
int ofs_fetch_elements(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, void *buf, struct optimfs_error *err);

#endif
