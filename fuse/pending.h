/* pending.h - early replies to requests that take long */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_PENDING_H
#define OFS_FUSE_PENDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* A thread cannot always be stopped: it may be blocked in a read from a dead
 * file server. Another thread can still reply to its request: with EINTR when
 * the process was killed, or ETIMEDOUT. Between begin and end exactly one of
 * them replies, and the reply frees the request: between them, the working
 * thread takes nothing from it. */
struct ofs_watch; /* pending requests, and the thread that watches the time */

struct ofs_watch_config {
	unsigned seconds; /* time limit of a request, 0: none */
	/* Called from the watching thread: a request for node exceeded the
	 * limit; this many threads have been blocked for a while. */
	void (*late)(void *ctx, uint64_t node);
	void (*stuck)(void *ctx, unsigned threads);
	void *ctx;
};
struct ofs_watch *ofs_watch_new(const struct ofs_watch_config *config,
    struct optimfs_error *err);
/* No request may be pending. */
void ofs_watch_free(struct ofs_watch *w);

/* On the stack of the working thread; the members belong to pending.c. */
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
/* False: req was already interrupted; the caller replies and does not call
 * ofs_pending_end. */
bool ofs_pending_begin(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node);
/* For requests that are never answered early: only counts the thread as
 * blocked, so that others are started. The caller replies after
 * ofs_pending_end. */
void ofs_pending_hold(struct ofs_pending *p, struct ofs_watch *w,
    fuse_req_t req, uint64_t node);
/* True: the caller replies. False: the reply was sent, and req is invalid. */
bool ofs_pending_end(struct ofs_pending *p);
/* Was the reply sent meanwhile? Then its work can be abandoned. */
bool ofs_pending_gone(struct ofs_pending *p);

#endif
