/* window.h - the elements of a shard that are stored in a window */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_WINDOW_H
#define OFS_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

/* A shard of a tensor, stored at place: ndim offsets, then ndim sizes, in the
 * grid of the tensor; elements of item bytes. */
struct ofs_stored_box {
	const struct ofs_place *place;
	unsigned ndim;
	const uint64_t *box;
	uint64_t item;
};

/* The bytes from the first to the last element: [*off, *end) of the object, or
 * of the decoded extent. The box is not empty. */
void ofs_stored_hull(const struct ofs_stored_box *s, uint64_t *off,
    uint64_t *end);
/* Is each byte of the hull one of an element, and are these in C order? */
bool ofs_stored_dense(const struct ofs_stored_box *s);
/* The inverse of a plan: part gets a box inside that of the shard, with every
 * element of which a byte lies in [off, off + len), and few others. False: there
 * is no such element. */
bool ofs_plan_window(const struct ofs_stored_box *s, uint64_t off, uint64_t len,
    uint64_t *part);

#endif
