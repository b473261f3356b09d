/* fds.h - descriptors that are kept open, as many as there may be */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_FDS_H
#define OFS_BASE_FDS_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* How many of our files may be open at once: RLIMIT_NOFILE, whose soft limit is
 * raised to the hard one, less what the rest of the process needs. */
size_t ofs_fds_limit(void);

/* Descriptors of files that have numbers. At most limit are open; then the one
 * that was unused for longest is closed for another. Any thread may call. */
struct ofs_fds;

/* Opens a file; -1: err says why. */
typedef int ofs_fds_open_fn(void *ctx, uint32_t file,
    struct optimfs_error *err);

/* Of n files, opened by open, which ctx is given to. NULL: ENOMEM. */
struct ofs_fds *ofs_fds_new(uint32_t n, size_t limit, ofs_fds_open_fn *open,
    void *ctx, struct optimfs_error *err);
/* Nobody has one of them. */
void ofs_fds_free(struct ofs_fds *fds);

/* The descriptor of a file, which is open until ofs_fds_put. Each thread has
 * one at a time: with limit of them in use, get waits. EMFILE and ENFILE are
 * answered by closing others, as long as there are. */
int ofs_fds_get(struct ofs_fds *fds, uint32_t file, struct optimfs_error *err);
void ofs_fds_put(struct ofs_fds *fds, uint32_t file);

#endif
