/* derived.h - elements that are computed when they are read */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_DERIVED_H
#define OFS_READ_DERIVED_H

#include <stdbool.h>

#include "plan/plan.h"
#include "read/reader.h"

/* A tensor of the catalog is stored, or derived: a small expression over other
 * tensors, of this catalog or of others. Or a part of it is: a shard. To a plan a
 * derived shard is one more place: its "extent" is the list of its elements in C
 * order, which no file has (OFS_COMPUTED), or it has a part of that of another one
 * (struct ofs_derived_part). ofs_fetch computes what such segments
 * ask for, and gives the others to the transport. So whoever reads elements,
 * for a file, a view, a statistic or a commit, does not see which tensors are
 * derived. */

static inline bool ofs_is_computed(const struct ofs_segment *seg)
{
	return seg->codec == OFS_COMPUTED;
}

/* The place of a derived shard: the rest is in *place. What its derivation
 * prepares is kept. */
int ofs_derived_place(struct ofs_reader *r, const struct ofs_tensor *t,
    const struct ofs_shard *s, struct ofs_place *place,
    struct optimfs_error *err);

/* Compute what n segments of one derivation ask for. */
int ofs_derived_fetch(struct ofs_reader *r, const struct ofs_segment *seg,
    size_t n, void *buf, struct optimfs_error *err);

#endif
