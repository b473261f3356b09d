/* update.h - pickles that are made anew in a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_UPDATE_H
#define OFS_FORMAT_TORCH_UPDATE_H

#include "rewrite/archive.h"
#include "rewrite/rewrite_impl.h"
#include "rewrite/update.h"

/* All files of a part. */
extern const struct ofs_update_ops ofs_torch_update;

/* Changes of values, and of which tensors there are, in an archive, a legacy
 * stream or a bare pickle: bytes [off, off + len) of fd, of an object, whose
 * pickle's leaves have prefix before their paths; or path says where each task
 * is. They get done where they have a place in it. If there are any, the new
 * one is written to where open says, and *size is its length; else *size is
 * 0. */
typedef int ofs_commit_open_fn(void *ctx, int *fd, uint64_t *off,
    struct optimfs_error *err);
int ofs_commit_pickle(struct ofs_commit *c, const struct ofs_commit_source *s,
    ofs_commit_open_fn *open, void *ctx, uint64_t *size,
    struct optimfs_error *err);
/* The object that is a file; OFS_NONE. */
uint32_t ofs_commit_object(const struct ofs_commit *c, const char *rel);
/* A file; s says which part of each path is inside. One that the checkpoint
 * does not have is passed over. */
int ofs_commit_file(struct ofs_commit *c, const char *rel,
    const struct ofs_commit_source *s, struct optimfs_error *err);

#endif
