/* ahead.h - pass small files to the kernel on open */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_AHEAD_H
#define OFS_FUSE_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* A process that opens a small file will read it, and the cost is the request,
 * not the bytes. So the contents are stored in the kernel's cache before the
 * open is answered, and reads find them there. If reading fails, nothing is
 * stored: the read itself reports the error.
 *
 * Storing waits for pages that are locked by a read in progress, and that read
 * may wait for the thread that stores. So only the first open of a file stores,
 * and later opens of the same file wait until it has: no read of it can be in
 * progress. */
struct ofs_ahead;
struct fuse_session;

/* Larger files are not stored. */
#define OFS_AHEAD_MAX (16u << 10)

/* bytes: counter of stored bytes; borrowed. NULL: out of memory. */
struct ofs_ahead *ofs_ahead_new(atomic_uint_least64_t *bytes);
void ofs_ahead_free(struct ofs_ahead *a);
/* Sets the session; without one, nothing is stored. */
void ofs_ahead_session(struct ofs_ahead *a, struct fuse_session *se);

/* Counts an open of a file of size bytes that the kernel caches, and stores it
 * if it is the first and was not stored recently. buf has room for
 * OFS_AHEAD_MAX bytes. False: not such a file, not counted. a may be NULL. */
bool ofs_ahead_open(struct ofs_ahead *a, uint64_t node, uint64_t size,
    struct optimfs_file *file, void *buf);
/* Ends a counted open. */
void ofs_ahead_release(struct ofs_ahead *a, uint64_t node);

#endif
