/* fds.h - a cache of open descriptors, limited by what the process may have */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_FDS_H
#define OFS_BASE_FDS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

/* The number of files of the checkpoint that may be open at once:
 * RLIMIT_NOFILE, whose soft limit is raised to the hard one, less what the rest
 * of the process needs. */
size_t ofs_fds_limit(void);

/* A cache of descriptors of numbered files. At most limit are open; beyond
 * that, the least recently used one is closed. Thread-safe. */
struct ofs_fds;

/* Open a file and return its descriptor; -1 with err. */
typedef int ofs_fds_open_fn(void *ctx, uint32_t file,
    struct optimfs_error *err);

/* A cache for files 0 to n - 1, which open opens; ctx is its first argument.
 * NULL with ENOMEM. */
struct ofs_fds *ofs_fds_new(uint32_t n, size_t limit, ofs_fds_open_fn *open,
    void *ctx, struct optimfs_error *err);
/* No descriptor may be in use. */
void ofs_fds_free(struct ofs_fds *fds);

/* The descriptor of a file, which stays open until ofs_fds_put. A thread may
 * have one at a time: when limit of them are in use, get waits. On EMFILE and
 * ENFILE unused descriptors are closed and the file is opened again; when there
 * are none, it is tried again for half a minute. */
int ofs_fds_get(struct ofs_fds *fds, uint32_t file, struct optimfs_error *err);
void ofs_fds_put(struct ofs_fds *fds, uint32_t file);

/* As openat(2), but waits, for half a minute, for a descriptor to be closed where
 * they have run out (EMFILE, ENFILE). For who has no descriptors that it could
 * close itself, as struct ofs_fds has. */
int ofs_fds_openat(int dir, const char *path, int flags, mode_t mode);

#endif
