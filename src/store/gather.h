/* gather.h - runs of a source into a buffer, with few and large reads */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_GATHER_H
#define OFS_STORE_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "optimfs/error.h"

#include "plan/plan.h"

/* Scratch that ofs_gather needs: fits a second-level cache. */
#define OFS_SCRATCH ((size_t)1 << 20)

/* Bytes that can be read: a file, or what an extent decoded to. */
struct ofs_source {
	/* Fill n iovecs, which it may change, from off on, or fail. */
	int (*readv)(const struct ofs_source *s, struct iovec *iov, int n,
	    uint64_t off, struct optimfs_error *err);
	void *ctx, *item;
	uint64_t size;
};

/* Does seg lie inside size bytes? No arithmetic on it overflows then. */
bool ofs_segment_inside(const struct ofs_segment *seg, uint64_t size);

/* Copy what n segments of one source say to dst; each was found to be inside
 * it. scratch is OFS_SCRATCH bytes of the caller's. Bytes between the runs may
 * be read too, where that is cheaper than leaving them out; that they cannot
 * be read is no failure. err is not NULL. */
int ofs_gather(const struct ofs_source *s, const struct ofs_segment *seg,
    size_t n, uint8_t *dst, uint8_t *scratch, struct optimfs_error *err);

#endif
