/* mail.h - bytes of any length from one rank to another */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MAIL_H
#define OFS_CLUSTER_MAIL_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "cluster/group.h"

/* A question is answered at once, or its rank counts as lost (timeout=). What
 * may take longer, because a rank works or is not there yet, comes as a letter:
 * whoever has it sends it, and whoever wants it waits for as long as the other
 * shows life. A letter is known by who sent it and its tag. call.h and
 * allgather.h are made of letters; one kind of tag belongs to each. */
enum ofs_mail_kind { OFS_MAIL_RESULT, OFS_MAIL_UP, OFS_MAIL_DOWN };
static inline uint64_t ofs_mail_tag(enum ofs_mail_kind kind, uint32_t id)
{
	return (uint64_t)kind << 32 | id;
}

/* Sent once, as far as b is good; -1: it may not have come. */
int ofs_mail_send(struct optimfs_group *w, int to, uint64_t tag,
    const struct ofs_buf *b, struct optimfs_error *err);
/* Wait for a letter of rank from: in b, the caller's. EHOSTDOWN (OFS911),
 * ETIMEDOUT (OFS912): it is lost; EPROTO (OFS913): it has left. tick, which may
 * be NULL, is called now and then meanwhile. */
int ofs_mail_receive(struct optimfs_group *w, int from, uint64_t tag,
    const struct ofs_tick *tick, struct ofs_buf *b, struct optimfs_error *err);
/* Is that rank there? asked is when (ms) it was asked last, which it is once a
 * second. */
int ofs_mail_alive(struct optimfs_group *w, int rank, int64_t *asked,
    struct optimfs_error *err);

/* For group.c. */
struct ofs_mail *ofs_mail_new(void);
void ofs_mail_free(struct ofs_mail *mail);
ofs_handler_fn ofs_mail_letter, ofs_mail_ping;

#endif
