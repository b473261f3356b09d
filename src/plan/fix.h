/* fix.h - corrections to fetched elements */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_FIX_H
#define OFS_PLAN_FIX_H

#include "plan/plan.h"

/* Stored bytes of an element with OFS_FIX_ROUND. */
#define OFS_ROUND_FROM 4

/* Apply the fix of seg to its elements in buf. Its runs must be whole elements.
 * Not for OFS_FIX_ROUND. */
void ofs_fix_segment(const struct ofs_segment *seg, void *buf);

/* For seg, which has OFS_FIX_ROUND: wide is the segment to fetch in its place,
 * to offset off of another buffer. Returns its length there. */
uint64_t ofs_fix_widen(const struct ofs_segment *seg, uint64_t off,
    struct ofs_segment *wide);
/* Round the elements that were fetched so, at stored, to their places in
 * buf. */
void ofs_fix_round(const struct ofs_segment *seg, void *stored, void *buf);

#endif
