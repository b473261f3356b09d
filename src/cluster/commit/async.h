/* async.h - work that takes longer than an answer to a rank may */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_ASYNC_H
#define OFS_CLUSTER_COMMIT_ASYNC_H

#include <pthread.h>
#include <stdbool.h>

#include "optimfs/error.h"

/* Who asks another rank has a deadline. What may take long, a sync of all that
 * was written, is begun by one request and asked after by others. One at a
 * time; all functions from any thread. */
struct ofs_async {
	pthread_mutex_t lock;
	pthread_t thread;
	bool begun, done; /* begun and not asked after since it was done */
	int (*run)(void *arg, struct optimfs_error *err);
	void *arg;
	int ret;
	struct optimfs_error err;
};

void ofs_async_init(struct ofs_async *e);
/* Waits for its end. */
void ofs_async_fini(struct ofs_async *e);
/* EBUSY (OFS815): another is under way. */
int ofs_async_begin(struct ofs_async *e,
    int (*run)(void *arg, struct optimfs_error *err), void *arg,
    struct optimfs_error *err);
/* *done is false while it is under way; once it is not, fails as it did. */
int ofs_async_poll(struct ofs_async *e, bool *done, struct optimfs_error *err);

#endif
