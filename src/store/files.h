/* files.h - the checkpoint's files: kept open, known to be the mounted ones */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_FILES_H
#define OFS_STORE_FILES_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "store/gather.h"
#include "store/transport.h"

/* Descriptors of cat's objects, opened on first use and closed in LRU order
 * when half of what fds.h allows is in use, or there are no more. Any thread may
 * call. */
struct ofs_files;
struct ofs_file;

/* cat and counters must outlive it. NULL: ENOMEM. */
struct ofs_files *ofs_files_new(const struct ofs_catalog *cat,
    struct ofs_counters *counters, struct optimfs_error *err);
void ofs_files_free(struct ofs_files *files);

/* Pin an object until ofs_files_put. A thread pins one at a time: with all
 * descriptors in use, get waits for another thread's put. EIO for a file that
 * is missing (OFS140) or has gone (OFS754), ESTALE (OFS751) for one that is
 * not what was mounted, EACCES (OFS756). */
struct ofs_file *ofs_files_get(struct ofs_files *files, uint32_t object,
    struct optimfs_error *err);
void ofs_files_put(struct ofs_files *files, struct ofs_file *file);

/* A hint that these bytes are about to be read. */
void ofs_files_willneed(struct ofs_file *file, uint64_t off, uint64_t len);
/* A pinned file as a source. EIO when it ends early (OFS603) or cannot be read
 * (OFS755; the place is then known to be bad for some seconds and not tried
 * again), ESTALE when it was truncated. */
struct ofs_source ofs_files_source(struct ofs_files *files,
    struct ofs_file *file);

/* Is a pinned file still the one that was mounted? Asked after reading, so
 * that what was read is known to be its bytes. ESTALE (OFS751). */
int ofs_files_check(struct ofs_files *files, struct ofs_file *file,
    struct optimfs_error *err);

#endif
