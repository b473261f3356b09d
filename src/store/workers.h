/* workers.h - extents that are decoded before somebody waits for them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_WORKERS_H
#define OFS_STORE_WORKERS_H

#include <stdbool.h>

#include "catalog/catalog.h"

/* Threads, as many as processors, that are started when there is work for the
 * first time. An extent is with them once, however often it is asked for. */
struct ofs_workers;
#define OFS_WORKERS_MOST 16u

/* Has an extent decoded; stop is true when nobody will want it any more. */
typedef void ofs_workers_fn(void *ctx, const struct ofs_extent *at,
    const _Atomic bool *stop);

/* NULL: ENOMEM. */
struct ofs_workers *ofs_workers_new(ofs_workers_fn *run, void *ctx,
    struct optimfs_error *err);
/* Waits for those that are at work, which are told to stop. */
void ofs_workers_free(struct ofs_workers *w);

/* How many extents there may be at a time: one a thread. */
unsigned ofs_workers_most(const struct ofs_workers *w);
/* Never waits: when all are at work nothing happens. */
void ofs_workers_add(struct ofs_workers *w, const struct ofs_extent *at);

#endif
