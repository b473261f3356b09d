/* call.h - requests to other ranks that may take long */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_CALL_H
#define OFS_CLUSTER_CALL_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "cluster/group.h"

/* Work that may take longer than the limit for an answer, such as syncing
 * files, is requested by a call. The called rank runs it in a new thread and
 * sends the result as a letter (mail.h): a call has no time limit while that
 * rank is alive. */
struct ofs_call {
	int to; /* the own rank is allowed: the work runs in this thread */
	const struct ofs_buf *request;
	struct ofs_buf result; /* owned by the caller if err.code is 0 */
	struct optimfs_error err;
	bool answered; /* the result, or err, is of the work */
	uint32_t id;   /* id of the work there */
};

/* Makes n calls at once, and waits for all of them. */
void ofs_group_call(struct optimfs_group *g, struct ofs_call *call, size_t n);

/* For group.c: the work that a rank does for others. */
struct ofs_calls;
struct ofs_calls *ofs_calls_new(void);
/* Waits until all work has ended; starts no more. */
void ofs_calls_stop(struct ofs_calls *calls);
void ofs_calls_free(struct ofs_calls *calls);
ofs_handler_fn ofs_calls_begin;

#endif
