/* copy.h - bytes from file to file, shared where the file system can */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_COPY_H
#define OFS_BASE_COPY_H

#include <stdint.h>

#include "optimfs/error.h"

/* n bytes: by the kernel where it can, through a buffer where not. EIO when in
 * ends before them. */
int ofs_copy_range(int in, uint64_t in_off, int out, uint64_t out_off,
    uint64_t n, struct optimfs_error *err);
/* All of in, size bytes, as the whole of out, which is empty: the same blocks
 * where the file system can share them. step, which may be NULL, is told now and
 * then of n more bytes; -1 (it fills err) ends the copy. */
struct ofs_copy_step {
	int (*step)(void *ctx, uint64_t n, struct optimfs_error *err);
	void *ctx;
};
int ofs_copy_file(int in, uint64_t size, int out,
    const struct ofs_copy_step *step, struct optimfs_error *err);
/* Mode, owner and extended attributes (access lists are some). Who may not give
 * a file away keeps it, then without more rights for others than it had. */
int ofs_copy_attributes(int in, int out, struct optimfs_error *err);
/* n bytes of buf at off; the calls of sys.h. */
int ofs_write_all(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);

#endif
