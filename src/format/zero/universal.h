/* universal.h - DeepSpeed Universal Checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_UNIVERSAL_H
#define OFS_FORMAT_ZERO_UNIVERSAL_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/format.h"

extern const struct ofs_format ofs_format_universal;

/* The format's read function. */
int ofs_universal_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

#endif
