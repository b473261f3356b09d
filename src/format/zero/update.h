/* update.h - commits to DeepSpeed's files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_UPDATE_H
#define OFS_FORMAT_ZERO_UPDATE_H

#include "format/part.h"
#include "rewrite/rewrite_impl.h"

/* As in struct ofs_format: for a DeepSpeed checkpoint, and a universal one. */
int ofs_zero_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err);
int ofs_universal_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err);

/* The file of a state, of a parameter of a universal checkpoint; malloc'ed. */
char *ofs_zero_state_file(const struct ofs_part *part, struct ofs_str param,
    struct ofs_str state, struct optimfs_error *err);
/* update_universal.c: adds and removes state files. EINVAL (OFS826): the parameters of
 * a group would have different states. */
struct ofs_zero_shapes;
int ofs_zero_commit_universal(struct ofs_commit *c, const struct ofs_part *part,
    const struct ofs_zero_shapes *shapes, struct optimfs_error *err);

#endif
