/* npz.h - NumPy's .npz archives and .npy files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_NPZ_H
#define OFS_FORMAT_NPZ_H

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "catalog/catalog.h"
#include "format/format.h"

/* docs/formats/npz.md */

extern const struct ofs_format ofs_format_npz;

/* read.c: the member of the format. */
int ofs_npz_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err);

#endif
