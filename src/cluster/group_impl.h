/* group_impl.h - declarations shared by the files of a group */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GROUP_IMPL_H
#define OFS_CLUSTER_GROUP_IMPL_H

#include "cluster/group.h"

/* group.c */
void ofs_group_free(struct optimfs_group *w);
/* As ofs_group_post; to: a rank; -1: all. */
void ofs_group_post_to(struct optimfs_group *w, int to, const uint8_t *text,
    size_t len);
/* Waits for the answers of posts; from now on nothing is sent. lost: a rank is. Then
 * whoever has answered the last one, that all is over, leaves without the others. */
void ofs_group_end_posts(struct optimfs_group *w, bool lost);

/* group_lost.c */
/* The lock is held. */
bool ofs_group_is_gone(const struct optimfs_group *w, int rank);
/* Addresses a request to all that are not lost, and at the end to these, too:
 * they may come back. Returns their number. */
size_t ofs_group_address(struct optimfs_group *w, struct ofs_ask *ask,
    const void *request, size_t len);
/* Asks ranks; those that do not answer are lost. */
void ofs_group_ask_any(struct optimfs_group *w, struct ofs_ask *ask, size_t n);
ofs_handler_fn ofs_group_answer_lost;

/* group_leave.c */
ofs_handler_fn ofs_group_answer_over;

#endif
