/* pending.h - requests that may take long: answered early when they must */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_PENDING_H
#define OFS_FUSE_PENDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* A thread that works on a request cannot always be stopped: it may sit in a
 * read of a dead file server. The request can still be answered, by another
 * thread, with EINTR when its process was killed or ETIMEDOUT when it took
 * too long. Between begin and end exactly one of them answers. */
struct ofs_watch; /* all that is pending, and the thread with the clock */

struct ofs_watch_config {
	unsigned seconds; /* the limit of a request, 0 for none */
	/* Called from the watching thread: a request for node exceeded it; so
	 * many threads have been at one request for a while. */
	void (*late)(void *ctx, uint64_t node);
	void (*stuck)(void *ctx, unsigned threads);
	void *ctx;
};
struct ofs_watch *ofs_watch_new(const struct ofs_watch_config *config,
    struct optimfs_error *err);
/* No request may be pending. */
void ofs_watch_free(struct ofs_watch *w);

/* On the stack of the thread that works; the members are pending.c's. */
struct ofs_pending {
	struct ofs_watch *watch;
	struct ofs_pending *next, **back;
	fuse_req_t req;
	uint64_t node;
	int64_t began, deadline; /* ms */
	int device;
	pthread_t owner;
	bool answered, beginning, early, patient;
};
/* False: req was interrupted already; the caller answers, and there is
 * nothing to end. */
bool ofs_pending_begin(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node);
/* For what is not answered early: it only counts, so that other threads come
 * while this one waits. The caller answers, after ofs_pending_end. */
void ofs_pending_hold(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node);
/* True: the caller answers. False: it was answered, and req is gone. */
bool ofs_pending_end(struct ofs_pending *p);
/* Was it answered meanwhile? Work for it alone can be given up. */
bool ofs_pending_gone(struct ofs_pending *p);

#endif
