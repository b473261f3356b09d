/* loop.h - threads that take requests, more while some are stuck */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_LOOP_H
#define OFS_FUSE_LOOP_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* In place of libfuse's own loop: the kernel wakes idle threads in turn, so
 * there should not be more of them than processors; but threads may sit in a
 * source that does not answer, and then the mount must go on with others. */
struct ofs_loop;

/* threads serve normally; as many more as are stuck, up to max. Each calls
 * begin first; one that fails ends the session. */
struct ofs_loop_config {
	unsigned threads, max;
	int (*begin)(void *ctx, struct optimfs_error *err);
	void *ctx;
};
struct ofs_loop *ofs_loop_new(struct fuse_session *se,
    const struct ofs_loop_config *config, struct optimfs_error *err);
void ofs_loop_free(struct ofs_loop *l);
/* Returns when the session has ended and no thread is left. */
int ofs_loop_run(struct ofs_loop *l, struct optimfs_error *err);
/* From any thread: n threads are stuck at the moment. */
void ofs_loop_stuck(struct ofs_loop *l, unsigned n);
/* End the session. Called until ofs_loop_run returns: a thread may miss it
 * once. */
void ofs_loop_stop(struct ofs_loop *l);

#endif
