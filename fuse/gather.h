/* gather.h - a whole file of the tree, copied into memory the kernel can map */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_GATHER_H
#define OFS_FUSE_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* Bytes of buffer that ofs_gather_file wants. */
#define OFS_GATHER_SCRATCH (UINT64_C(1) << 20)

struct ofs_gather {
	struct optimfs_file *file;
	uint64_t size;
	unsigned threads;             /* at most so many, this one included */
	void *scratch;                /* of OFS_GATHER_SCRATCH bytes */
	bool (*cancelled)(void *ctx); /* asked now and then, on any thread */
	void *ctx;
};

/* The root of a tmpfs that is mounted nowhere: it and its unlinked files go
 * when the last descriptor does. limit is in bytes. EPERM without
 * CAP_SYS_ADMIN, ENOSYS before Linux 5.2. */
int ofs_gather_dir(uint64_t limit, struct optimfs_error *err);

/* A descriptor of an unlinked file in dir that holds all of g->file. ECANCELED
 * when it was; what the first read that failed said. */
int ofs_gather_file(int dir, const struct ofs_gather *g,
    struct optimfs_error *err);

#endif
