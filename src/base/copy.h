/* copy.h - copies of file ranges, shared where the file system can */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_COPY_H
#define OFS_BASE_COPY_H

#include <stdint.h>

#include "optimfs/error.h"

/* Copy n bytes, in the kernel where it can, else through a buffer. EIO when in
 * ends before them. */
int ofs_copy_range(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err);
/* As above, where out has n zeros: holes stay holes. Several threads may copy
 * from one descriptor. ESTALE (OFS751): in became shorter. */
int ofs_copy_sparse(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err);
/* Copy all of in, size bytes, to out, which is empty. The blocks are shared
 * where the file system can. step, which may be NULL, is called now and then
 * with the n bytes copied since the last call; when it returns -1, with err
 * filled, the copy ends. */
struct ofs_copy_step {
	int (*step)(void *ctx, uint64_t n, struct optimfs_error *err);
	void *ctx;
};
int ofs_copy_file(int in, uint64_t size, int out,
    const struct ofs_copy_step *step, struct optimfs_error *err);
/* Copy mode, owner and extended attributes, which include access lists. Without
 * the right to change the owner, out keeps its own, and others get no more
 * rights than they had. */
int ofs_copy_attributes(int in, int out, struct optimfs_error *err);
/* Write n bytes of buf at off, with the calls of sys.h. */
int ofs_write_all(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);

#endif
