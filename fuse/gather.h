/* gather.h - copy a whole file into memory that the kernel can map */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_GATHER_H
#define OFS_FUSE_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* Size of the buffer for ofs_gather_file. */
#define OFS_GATHER_SCRATCH (UINT64_C(1) << 20)

struct ofs_gather {
	struct optimfs_file *file;
	uint64_t size;
	unsigned threads;             /* maximum, this thread included */
	void *scratch;                /* OFS_GATHER_SCRATCH bytes */
	bool (*cancelled)(void *ctx); /* called regularly, from any thread */
	void *ctx;
};

/* The root of a tmpfs that is not mounted anywhere: it disappears with the last
 * descriptor of it or its unlinked files. limit is in bytes. EPERM without
 * CAP_SYS_ADMIN, ENOSYS before Linux 5.2. */
int ofs_gather_dir(uint64_t limit, struct optimfs_error *err);

/* Returns a descriptor of an unlinked file in dir with the contents of g->file.
 * ECANCELED, or the error of the first failed read. */
int ofs_gather_file(int dir, const struct ofs_gather *g,
    struct optimfs_error *err);

#endif
