/* gather.h - runs of a source into a buffer, with few and large reads */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_GATHER_H
#define OFS_STORE_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "optimfs/error.h"

#include "plan/plan.h"

/* Size of the scratch buffer for ofs_gather; it fits in a second-level
 * cache. */
#define OFS_SCRATCH ((size_t)1 << 20)

/* Readable bytes: a file, or a decoded extent. */
struct ofs_source {
	/* Fill n iovecs, which it may change, from off on; 0 or -1. */
	int (*readv)(const struct ofs_source *s, struct iovec *iov, int n,
	    uint64_t off, struct optimfs_error *err);
	void *ctx, *item;
	uint64_t size;
};

/* Is seg inside size bytes? Then arithmetic on it cannot overflow. */
bool ofs_segment_inside(const struct ofs_segment *seg, uint64_t size);

/* Copy n segments of one source, all inside it, to dst. scratch is a buffer of
 * OFS_SCRATCH bytes. Bytes between the runs are read too where that is cheaper;
 * a failure to read them is not an error. err must not be NULL. */
int ofs_gather(const struct ofs_source *s, const struct ofs_segment *seg,
    size_t n, uint8_t *dst, uint8_t *scratch, struct optimfs_error *err);

#endif
