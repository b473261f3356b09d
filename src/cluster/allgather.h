/* allgather.h - exchange bytes among all ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_ALLGATHER_H
#define OFS_CLUSTER_ALLGATHER_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/group.h"

/* A collective call: all ranks make the same calls in the same order. Each
 * contributes its status and some bytes, and gets those of all. It lasts until
 * every rank has called, however long that takes. It fails on all living ranks
 * when one dies, falls silent or leaves.
 *
 * Ranks form a tree: the children of rank r are 2r + 1 and 2r + 2. When those
 * that open a checkpoint work on it together, the others only answer requests:
 * then the tree has the former, one machine after the other.
 * Contributions travel up as letters, each rank adding its own to those of its
 * children, and the whole comes down again. A rank waits only for its
 * neighbours in the tree; one that finds a neighbour gone sends this news up
 * and down instead of the contributions. */
struct ofs_allgather {
	const struct optimfs_error *own; /* NULL: success */
	const struct ofs_buf *mine;      /* NULL: none */
	struct ofs_tick tick;
	/* Afterwards: the bytes of each rank (p is NULL: it is not in the tree);
	 * the lowest rank that failed by itself (ECANCELED: because of others),
	 * -1: none, and its error. */
	struct ofs_cursor *of;
	int failed;
	struct optimfs_error why;
	struct ofs_buf bytes;
};

/* Call ofs_allgather_fini afterwards, also after -1, which means that a rank is
 * lost. */
int ofs_allgather(struct optimfs_group *w, struct ofs_allgather *a,
    struct optimfs_error *err);
/* Fails if a rank has failed, with its error; name_rank: names that rank. */
int ofs_allgather_verdict(const struct optimfs_group *w,
    const struct ofs_allgather *a, bool name_rank, struct optimfs_error *err);
void ofs_allgather_fini(struct ofs_allgather *a);
/* Exchanges the status of all ranks; returns the verdict. */
int ofs_group_vote(struct optimfs_group *w, const struct optimfs_error *own,
    bool name_rank, struct optimfs_error *err);

/* The number of ranks in the tree. */
int ofs_allgather_size(const struct optimfs_group *w);
/* The neighbours of this rank in the tree: parent and two children; -1:
 * none. */
void ofs_allgather_beside(const struct optimfs_group *w, int beside[3]);

#endif
