/* mail.h - messages of any length between ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MAIL_H
#define OFS_CLUSTER_MAIL_H

#include <stdbool.h>
#include <stddef.h>
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
/* A letter that is awaited, as the caller says, and then what became of it. */
struct ofs_awaited {
	int from;
	uint64_t tag;
	bool came;
	struct ofs_buf letter; /* if it came: owned by the caller */
	/* EHOSTDOWN (OFS911), ETIMEDOUT (OFS912): the rank is lost; EPROTO
	 * (OFS913): it has left (except for the result of a call, for which it
	 * stays). Else code is 0. */
	struct optimfs_error err;
};
/* Waits for n letters at once, until each has come or cannot come. With all, no rank
 * can be done without: it ends when one is lost, even if its letter has come. Letters
 * of one rank stand together. tick (may be NULL) is called regularly meanwhile. */
void ofs_mail_await(struct optimfs_group *w, struct ofs_awaited *a, size_t n,
    bool all, const struct ofs_tick *tick);
/* Are the ranks there? Asks all at once; errors are set as above. */
void ofs_mail_alive(struct optimfs_group *w, struct ofs_awaited *a, size_t n);

/* For group.c. */
struct ofs_mail *ofs_mail_new(void);
void ofs_mail_free(struct ofs_mail *mail);
ofs_handler_fn ofs_mail_letter;

#endif
