/* update.h - commits to pickles */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_UPDATE_H
#define OFS_FORMAT_TORCH_UPDATE_H

#include "rewrite/archive.h"
#include "rewrite/rewrite_impl.h"

/* As in struct ofs_format: all files of a part. */
int ofs_torch_update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err);

/* Apply changes of values, and additions and removals of tensors, to the pickle
 * in an archive, a legacy stream or a bare pickle: bytes [off, off + len) of
 * fd. The paths of its leaves begin with prefix, or path gives that of each
 * task. Tasks whose place is in this pickle are marked as done. If there are
 * any, the new bytes are appended to the composition from open, and *size is
 * their number; else *size is 0. */
typedef struct ofs_composition *ofs_torch_commit_open_fn(void *ctx,
    struct optimfs_error *err);
int ofs_torch_commit_pickle(struct ofs_commit *c,
    const struct ofs_commit_source *s, ofs_torch_commit_open_fn *open,
    void *ctx, uint64_t *size, struct optimfs_error *err);
/* Update a file; s gives the part of each path inside it. A file that the
 * checkpoint does not have is skipped. */
int ofs_torch_commit_file(struct ofs_commit *c, const char *rel,
    const struct ofs_commit_source *s, struct optimfs_error *err);

#endif
