/* torch.h - files of torch.save and of pickle.dump, alone or of each rank */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_TORCH_H
#define OFS_FORMAT_TORCH_TORCH_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/format.h"
#include "format/part.h"
#include "layout/render.h"

extern const struct ofs_format ofs_format_torch;
extern const struct ofs_format ofs_format_pickle;

/* Read the files of a part into cat. */
int ofs_torch_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

/* ofs_format_torch.writer */
int ofs_torch_writer(const struct ofs_dir *dir, const char *rel, int *rank,
    int *world, struct optimfs_error *err);

/* The render of ofs_format_torch. */
extern const struct ofs_files_ops ofs_torch_render;

#endif
