/* coordinator_impl.h - what the parts of sites share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_COMMIT_COORDINATOR_IMPL_H
#define OFS_CLUSTER_COMMIT_COORDINATOR_IMPL_H

#include "cluster/commit/coordinator.h"
#include "cluster/commit/participant.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "journal/lock.h"
#include "journal/publish_impl.h"

/* Of the stage: the new files of a commit to several sites. */
#define OFS_PUBLISH_BUILT "built"

/* As a set of sites, one bit each. */
#define OFS_MAX_SITES 4096

struct ofs_site {
	int rank; /* of the participant */
	char id[OFS_LOCK_ID];
	char *name; /* "host:/path", for the decision and for messages */
};

struct ofs_coordinator {
	struct ofs_manifest *share;
	struct optimfs_group *group;
	int stage; /* the writer's; borrowed */
	struct ofs_site *site;
	uint32_t n;
	int *of_rank; /* the site of each rank; -1: it has none */
};

/* coordinator.c */
/* Ask a participant; the writer's own is called. request begins with
 * ofs_coordinator_request. */
int ofs_coordinator_ask(const struct ofs_coordinator *s, uint32_t site,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err);
void ofs_coordinator_request(const struct ofs_coordinator *s,
    enum ofs_site_op op, struct ofs_buf *b);
/* A call (call.h) to the participants that mask names (NULL: all), at once. id
 * may be NULL. -1: the first that failed; *nbad gets how many. */
int ofs_coordinator_call(const struct ofs_coordinator *s, enum ofs_site_op op,
    const char *id, const bool *mask, uint32_t *nbad,
    struct optimfs_error *err);
static inline bool ofs_site_is_own(const struct ofs_coordinator *s,
    uint32_t site)
{
	return s->site[site].rank == s->group->rank;
}

#endif
