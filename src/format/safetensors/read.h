/* read.h - one safetensors file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_READ_H
#define OFS_FORMAT_SAFETENSORS_READ_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "archive/safetensors.h"
#include "base/io.h"
#include "catalog/catalog.h"
#include "format/format.h"

/* struct ofs_format's read. */
int ofs_safetensors_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);
/* Read the header of the file rel, of at most max bytes. */
int ofs_safetensors_open_file(const struct ofs_dir *dir, const char *rel,
    uint64_t max, struct ofs_safetensors *st, struct optimfs_error *err);

#endif
