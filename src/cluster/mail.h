/* mail.h - messages of any length between ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MAIL_H
#define OFS_CLUSTER_MAIL_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "cluster/group.h"

/* A request must be answered at once, or its rank counts as lost (timeout=).
 * Messages that may take longer, because a rank works or has not arrived, are
 * letters: the sender sends one when it is ready, and the receiver waits as
 * long as the sender shows life. A letter is identified by sender and tag.
 * call.h and allgather.h are built on letters; each has its kinds of tags. */
enum ofs_mail_kind { OFS_MAIL_RESULT, OFS_MAIL_UP, OFS_MAIL_DOWN };
static inline uint64_t ofs_mail_tag(enum ofs_mail_kind kind, uint32_t id)
{
	return (uint64_t)kind << 32 | id;
}

/* Sends a letter; -1: it may not have arrived, or b is bad. */
int ofs_mail_send(struct optimfs_group *w, int to, uint64_t tag,
    const struct ofs_buf *b, struct optimfs_error *err);
/* Waits for a letter from a rank; b is owned by the caller. EHOSTDOWN (OFS911),
 * ETIMEDOUT (OFS912): the rank is lost; EPROTO (OFS913): it has left (except for
 * the result of a call, for which it stays). tick (may be NULL) is called
 * regularly meanwhile. */
int ofs_mail_receive(struct optimfs_group *w, int from, uint64_t tag,
    const struct ofs_tick *tick, struct ofs_buf *b, struct optimfs_error *err);
/* Is the rank alive? *asked is the time (ms) of the last check; a rank is
 * checked once a second. */
int ofs_mail_alive(struct optimfs_group *w, int rank, int64_t *asked,
    struct optimfs_error *err);

/* For group.c. */
struct ofs_mail *ofs_mail_new(void);
void ofs_mail_free(struct ofs_mail *mail);
ofs_handler_fn ofs_mail_letter;

#endif
