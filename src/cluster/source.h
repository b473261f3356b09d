/* source.h - a checkpoint by its path, on one rank or several */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_SOURCE_H
#define OFS_CLUSTER_SOURCE_H

#include "detect/read.h"

/* As detect/read.h, for a path on this machine, or one offered by the ranks of
 * opt->group. opt may be NULL. */
struct ofs_catalog *ofs_read_checkpoint(const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err);
struct ofs_catalog *ofs_read_over(const char *path, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err);
int ofs_find_parts(const char *path, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err);

#endif
