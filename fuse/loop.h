/* loop.h - the threads that take requests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_LOOP_H
#define OFS_FUSE_LOOP_H

#include <stdbool.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* Replaces the loop of libfuse. The kernel wakes idle threads in turn, so there
 * should be no more of them than processors. But threads may be blocked by a
 * source that does not answer; then others must serve the mount. */
struct ofs_loop;

/* Normally threads serve; one more for each blocked thread, up to max. Each
 * calls begin first; if it fails, the session ends. */
struct ofs_loop_config {
	unsigned threads, max;
	bool devices; /* threads may open their own devices */
	int (*begin)(void *ctx, struct optimfs_error *err);
	/* Called, maybe several times, when the session has ended. */
	void (*ended)(void *ctx);
	void *ctx;
};
struct ofs_loop *ofs_loop_new(struct fuse_session *se,
    const struct ofs_loop_config *config, struct optimfs_error *err);
void ofs_loop_free(struct ofs_loop *l);
/* Returns when the session has ended and no thread is left. */
int ofs_loop_run(struct ofs_loop *l, struct optimfs_error *err);
/* Tells the loop, from any thread, that n threads are blocked. */
void ofs_loop_stuck(struct ofs_loop *l, unsigned n);
/* Ends the session. To be repeated until ofs_loop_run returns: a thread may
 * miss it once. */
void ofs_loop_stop(struct ofs_loop *l);

#endif
