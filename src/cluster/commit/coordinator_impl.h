/* coordinator_impl.h - declarations shared by the parts of the coordinator */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_COORDINATOR_IMPL_H
#define OFS_CLUSTER_COMMIT_COORDINATOR_IMPL_H

#include "cluster/commit/coordinator.h"
#include "cluster/commit/participant.h"
#include "cluster/manifest.h"
#include "journal/lock.h"
#include "journal/publish_impl.h"

/* The directory in the stage for the new files of a commit to several
 * directories. */
#define OFS_PUBLISH_BUILT "built"

struct ofs_participant_ref {
	int rank, lowest; /* of those that see it */
	char id[OFS_LOCK_ID];
	char *name; /* "host:/path", for the decision and for messages */
};

struct ofs_coordinator {
	struct ofs_manifest *manifest;
	struct optimfs_group *group;
	int stage; /* of the writer; borrowed */
	struct ofs_participant_ref *participant;
	uint32_t n;
	int *of_rank;     /* participant of each rank; -1: none */
	uint32_t attempt; /* number of the latest attempt to commit */
};

/* coordinator.c */
/* Sends each participant its request, all at once; same: the same one to all. One
 * without bytes is left out. The writer's own is called directly. A request begins
 * with ofs_coordinator_request. -1: the first failure. */
int ofs_coordinator_ask(const struct ofs_coordinator *s,
    const struct ofs_buf *request, bool same, struct optimfs_error *err);
void ofs_coordinator_request(const struct ofs_coordinator *s,
    enum ofs_participant_op op, struct ofs_buf *b);
/* Makes a call (call.h) to the participants in mask (NULL: all) at once. id may
 * be NULL. -1: the first failure. */
int ofs_coordinator_call(const struct ofs_coordinator *s,
    enum ofs_participant_op op, const char *id, const bool *mask,
    struct optimfs_error *err);
static inline bool ofs_coordinator_is_own(const struct ofs_coordinator *s,
    uint32_t to)
{
	return s->participant[to].rank == s->group->rank;
}

#endif
