/* files.h - the checkpoint's open files, checked to be the mounted ones */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_FILES_H
#define OFS_STORE_FILES_H

#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "store/gather.h"
#include "store/transport.h"

/* Descriptors of the objects of cat, opened on first use. The least recently
 * used one is closed when half of the limit of fds.h is in use or the system
 * has no more. Thread-safe. */
struct ofs_open_files;
struct ofs_file;

/* cat and counters must outlive it. NULL with ENOMEM. */
struct ofs_open_files *ofs_open_files_new(const struct ofs_catalog *cat,
    struct ofs_counters *counters, struct optimfs_error *err);
void ofs_open_files_free(struct ofs_open_files *files);

/* Pin an object until ofs_open_files_put. A thread may pin one at a time: when all
 * descriptors are in use, get waits for another thread's put. EIO: the file is
 * missing (OFS140) or was removed (OFS754); ESTALE (OFS751): it is not the
 * mounted file; EACCES (OFS756). */
struct ofs_file *ofs_open_files_get(struct ofs_open_files *files,
    uint32_t object, struct optimfs_error *err);
void ofs_open_files_put(struct ofs_open_files *files, struct ofs_file *file);

/* A hint that these bytes will be read soon. */
void ofs_open_files_willneed(struct ofs_file *file, uint64_t off, uint64_t len);
/* Are len bytes from off on, inside a pinned file, in a hole of it? false: it
 * is not known. */
bool ofs_open_files_hole(struct ofs_open_files *files, struct ofs_file *file,
    uint64_t off, uint64_t len);
/* A pinned file as a source. EIO when it ends early (OFS603) or cannot be read
 * (OFS755; that page is then not read again for some seconds), ESTALE when it
 * was truncated. */
struct ofs_source ofs_open_files_source(struct ofs_open_files *files,
    struct ofs_file *file);

/* Is a pinned file still the mounted one? Called after a read, to confirm that
 * the bytes belong to it. ESTALE (OFS751). */
int ofs_open_files_check(struct ofs_open_files *files, struct ofs_file *file,
    struct optimfs_error *err);

#endif
