/* bulk.h - what ranks gather through their GPUs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_BULK_H
#define OFS_CLUSTER_GPU_BULK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/manifest.h"
#include "plan/plan.h"

/* Beside the world's own way, which carries what is said here. Any thread. */
struct ofs_bulk;

/* Segments whose objects are files of s. False: not this way, be it that they
 * are none for it or that it failed; buf is then undefined. */
bool ofs_bulk_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf);
/* Does a rank that is alone gather from itself? */
bool ofs_bulk_alone(const struct optimfs_group *w);

/* Answer STAGE, TURN and GIVE of rank from. s is what STAGE is about. */
int ofs_bulk_stage(struct ofs_manifest *s, int from, struct ofs_cursor *c,
    uint8_t *out, uint64_t want, struct optimfs_error *err);
int ofs_bulk_turn(struct optimfs_group *w, int from, struct ofs_cursor *c,
    uint8_t *out, uint64_t want, struct optimfs_error *err);
int ofs_bulk_give(struct optimfs_group *w, int from, struct ofs_cursor *c,
    struct optimfs_error *err);

/* When no rank can ask any more. NULL is well. */
void ofs_bulk_free(struct ofs_bulk *bulk);

/* Lines for .optimfs/stats. */
void ofs_bulk_stats(const struct optimfs_group *w, struct ofs_buf *out);

#endif
