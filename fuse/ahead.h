/* ahead.h - small files, handed to the kernel as they are opened */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_AHEAD_H
#define OFS_FUSE_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* Who opens a file of a few pages reads it, and what that costs is the request,
 * not the bytes. So the answer to the open comes with the content: it is stored
 * in the kernel's cache first, and the reads find it there. What cannot be read
 * is left to them, who fail with words.
 *
 * Storing waits for pages that a read in flight has locked, and that read may
 * be waiting for the thread that stores. So only the first open of a file
 * stores, and others of the same file wait until it has: no read of it can be
 * in flight. */
struct ofs_ahead;
struct fuse_session;

/* Files of more bytes are not stored. */
#define OFS_AHEAD_MAX (16u << 10)

/* bytes: counts what is stored; borrowed. NULL: out of memory. */
struct ofs_ahead *ofs_ahead_new(atomic_uint_least64_t *bytes);
void ofs_ahead_free(struct ofs_ahead *a);
/* Once there is one; without, nothing is stored. */
void ofs_ahead_session(struct ofs_ahead *a, struct fuse_session *se);

/* Count an open of a file of size bytes, which the kernel caches, and store it
 * when it is the first and was not stored lately. buf has room for
 * OFS_AHEAD_MAX bytes. False: it is none of these, and is not counted. a may be
 * NULL. */
bool ofs_ahead_open(struct ofs_ahead *a, uint64_t node, uint64_t size,
    struct optimfs_file *file, void *buf);
/* Of an open that was counted. */
void ofs_ahead_release(struct ofs_ahead *a, uint64_t node);

#endif
