/* workers.h - threads that decode extents ahead of their use */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_WORKERS_H
#define OFS_STORE_WORKERS_H

#include <stdbool.h>

#include "catalog/catalog.h"

/* Threads, one for each processor, that are started with the first work. An
 * extent is queued only once. */
struct ofs_workers;
#define OFS_WORKERS_MOST 16u

/* Decode an extent; stop becomes true when the result is no longer needed. */
typedef void ofs_workers_fn(void *ctx, const struct ofs_extent *at,
    const _Atomic bool *stop);

/* NULL with ENOMEM. */
struct ofs_workers *ofs_workers_new(ofs_workers_fn *run, void *ctx,
    struct optimfs_error *err);
/* Stops the workers and waits for them. */
void ofs_workers_free(struct ofs_workers *w);

/* The most extents at a time: one a thread. */
unsigned ofs_workers_most(const struct ofs_workers *w);
/* Does not wait: when all workers are busy it does nothing. */
void ofs_workers_add(struct ofs_workers *w, const struct ofs_extent *at);

#endif
