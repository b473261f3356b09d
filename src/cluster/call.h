/* call.h - requests to other ranks that may take long */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_CALL_H
#define OFS_CLUSTER_CALL_H

#include "optimfs/error.h"

#include "base/buf.h"
#include "cluster/group.h"

/* Work that may take longer than an answer may, such as the sync of all that
 * was written, is requested by a call. The rank that is called starts it on a
 * thread of its own and sends the result as a letter (mail.h): a call lasts as
 * long as the rank that works shows life. */
struct ofs_call {
	int to; /* may be the caller's own rank: it works on this thread */
	const struct ofs_buf *request;
	struct ofs_buf result; /* the caller's, when err.code is 0 */
	struct optimfs_error err;
	uint32_t id; /* of the work there */
};

/* Make n calls at once, and wait until all have ended. */
void ofs_group_call(struct optimfs_group *g, struct ofs_call *call, size_t n);

/* For group.c: the work that a rank does for others. */
struct ofs_calls;
struct ofs_calls *ofs_calls_new(void);
/* Wait until all of it has ended; none is begun any more. */
void ofs_calls_stop(struct ofs_calls *calls);
void ofs_calls_free(struct ofs_calls *calls);
ofs_handler_fn ofs_calls_begin;

#endif
