/* fix.h - mending bytes after they were fetched */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_FIX_H
#define OFS_PLAN_FIX_H

#include "plan/plan.h"

/* Bytes of an element that OFS_FIX_ROUND makes a shorter one of. */
#define OFS_ROUND_FROM 4

/* Apply seg's fix to the elements it brought to buf. Its runs begin and end at
 * element bounds. Not for OFS_FIX_ROUND. */
void ofs_fix_segment(const struct ofs_segment *seg, void *buf);

/* Of seg, which has OFS_FIX_ROUND, what must be fetched instead, to off and
 * following of another buffer. Returns the bytes that it takes there. */
uint64_t ofs_fix_widen(const struct ofs_segment *seg, uint64_t off,
    struct ofs_segment *wide);
/* Round what came to stored, which was off, to where seg wants it in buf. */
void ofs_fix_round(const struct ofs_segment *seg, void *stored, void *buf);

#endif
