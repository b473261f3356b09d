/* read.h - a checkpoint read into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DETECT_READ_H
#define OFS_DETECT_READ_H

#include <stddef.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/part.h"

/* Open path (a directory or a file), detect, read, name the leaves
 * (src/naming/naming.h) and finish. The catalog is the caller's. */
struct ofs_catalog *ofs_read_checkpoint(const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* The same, as it would be with the files of the directory upper, which is
 * open, in their places, and without the n files gone; -1: none. */
struct ofs_catalog *ofs_read_over(const char *path, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err);
/* The parts of the checkpoint at path. */
int ofs_find_parts(const char *path, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err);

#endif
