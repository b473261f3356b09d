/* api.h - opening checkpoints of every format */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_API_API_H
#define OFS_API_API_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "cluster/group.h"
#include "fs/fs.h"

struct ofs_manifest;
struct ofs_coordinator;

/* stage.c: an ofs_stage_open_fn. */
struct ofs_stage *ofs_stage_for_writing(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *s,
    bool *template, struct ofs_coordinator **coordinator,
    struct optimfs_error *err);

/* open.c */
/* The second half of optimfs_open, after reading the catalog. Takes over cat,
 * on failure too. */
struct optimfs *ofs_open_catalog(struct ofs_catalog *cat, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err);

/* run.c */
/* Opens a checkpoint that is computed from those of a run, RUN:avg/last5. It
 * keeps what it needs of the run. */
struct optimfs *ofs_open_named(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);

/* The services of every group that optimfs_group_join makes; ends with NULL. */
extern const struct ofs_group_service *const ofs_group_services[];

#endif
