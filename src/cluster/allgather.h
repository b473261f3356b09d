/* allgather.h - what every rank says, for all */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_ALLGATHER_H
#define OFS_CLUSTER_ALLGATHER_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/group.h"

/* All ranks come to it, in one order, and each says how it fares and some
 * bytes. It lasts until all are here, however long that takes, and fails when
 * one of them dies, falls silent or leaves, with that error on all that live.
 *
 * Ranks are a tree, in which those below rank r are 2r + 1 and 2r + 2. What is
 * said goes up as letters, each rank adding its own to what it gets from below,
 * and all of it comes down again. Each waits only for those beside it in the
 * tree; who finds one of them gone hands that on, up and down, in the place of
 * what was said. */
struct ofs_said {
	struct optimfs_error err; /* code 0: it fares well */
	struct ofs_cursor c;      /* its bytes */
};

struct ofs_allgather {
	const struct optimfs_error *own; /* NULL: well */
	const struct ofs_buf *mine;      /* NULL: none */
	struct ofs_tick tick;
	struct ofs_said *said; /* of each rank, afterwards */
	struct ofs_buf bytes;
};

/* Follow it with ofs_allgather_fini, also after -1: some rank is lost. */
int ofs_allgather(struct optimfs_group *w, struct ofs_allgather *a,
    struct optimfs_error *err);
/* Fails when some rank does not fare well: with what the lowest says that failed
 * by itself (ECANCELED: because of others), and who that is when blame. */
int ofs_allgather_verdict(const struct optimfs_group *w,
    const struct ofs_allgather *a, bool blame, struct optimfs_error *err);
void ofs_allgather_fini(struct ofs_allgather *a);
/* Each rank says how it fares, and hears the verdict. */
int ofs_group_vote(struct optimfs_group *w, const struct optimfs_error *own,
    bool blame, struct optimfs_error *err);

/* Those beside rank in the tree, -1 for none: the one above, two below. */
void ofs_allgather_beside(const struct optimfs_group *w, int beside[3]);

#endif
