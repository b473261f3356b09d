/* scatter.h - elements of a tensor, written to their stored positions */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_SCATTER_H
#define OFS_READ_SCATTER_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* A write reverses the segments of the plan for a read. */

/* The file to which a segment is written. delta is added to a source offset of
 * the segment to get an offset in the file; the source is the object, or with a
 * codec the decoded extent. */
struct ofs_target {
	int (*at)(void *ctx, const struct ofs_segment *seg, int *fd,
	    int64_t *delta, struct optimfs_error *err);
	/* If not NULL: called when a segment was written from buf, which has
	 * the stored form. */
	void (*written)(void *ctx, const struct ofs_segment *seg,
	    const uint8_t *buf);
	void *ctx;
};

/* Write elements [first, first + count) of t, in C order of its shape, from buf
 * to its shards and to all replicas. Several threads may write different
 * elements of one file at the same time. */
int ofs_scatter(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, const void *buf,
    const struct ofs_target *target, struct optimfs_error *err);

/* The segments that ofs_scatter would write, replicas included. */
int ofs_scatter_plan(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct ofs_plan *plan,
    struct optimfs_error *err);

#endif
