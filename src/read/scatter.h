/* scatter.h - elements of a tensor written to where they are stored */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_SCATTER_H
#define OFS_READ_SCATTER_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* The other direction of a read: the same plan, its segments reversed. */

/* Where the bytes of a segment are to be written: the file, and what must be
 * added to an offset of the segment's source to get one of the file (the
 * source is the object itself, or with a codec what the extent decodes to). */
struct ofs_target {
	int (*at)(void *ctx, const struct ofs_segment *seg, int *fd,
	    int64_t *delta, struct optimfs_error *err);
	/* It has been written from buf, which has what is stored; NULL. */
	void (*written)(void *ctx, const struct ofs_segment *seg,
	    const uint8_t *buf);
	void *ctx;
};

/* Write elements [first, first + count) of t, in C order of its shape, from
 * buf: to its shards and every replica of them. Several threads may write one
 * file at once, each other elements. */
int ofs_scatter(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, const void *buf,
    const struct ofs_target *target, struct optimfs_error *err);

/* The segments that ofs_scatter would write, replicas included. */
int ofs_scatter_plan(struct ofs_reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct ofs_plan *plan,
    struct optimfs_error *err);

/* Write one segment from buf, where its dst counts from. */
int ofs_scatter_segment(int fd, int64_t delta, const struct ofs_segment *seg,
    const void *buf, struct optimfs_error *err);

#endif
