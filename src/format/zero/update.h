/* update.h - files of DeepSpeed's that are made anew in a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_UPDATE_H
#define OFS_FORMAT_ZERO_UPDATE_H

#include "format/part.h"
#include "rewrite/rewrite_impl.h"
#include "rewrite/update.h"

/* All files of a DeepSpeed checkpoint, or of a universal one. */
extern const struct ofs_update_ops ofs_zero_update, ofs_universal_update;

/* update_universal.c: files of states that are added or removed; the names of
 * the part's tree begin behind nprefix components. EINVAL (OFS826): not all
 * parameters of a group would have the same. */
struct ofs_zero_shapes;
int ofs_commit_universal(struct ofs_commit *c, const struct ofs_part *part,
    uint32_t nprefix, const struct ofs_zero_shapes *shapes,
    struct optimfs_error *err);

#endif
