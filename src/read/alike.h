/* alike.h - elements that are known to be equal without being read */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_ALIKE_H
#define OFS_READ_ALIKE_H

#include <stdint.h>

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "read/reader.h"

/* Elements of a tensor, as for ofs_plan_box. */
struct ofs_alike {
	const struct ofs_tensor *t;
	const uint64_t *box;
	ofs_place_fn *place;
	void *ctx;
};

/* How many of at most max elements from first on are all the same one: at least
 * least, or 0, if it is not known. They lie in holes of files, have no shard and
 * are zeros (OFS_TENSOR_ZERO), or are a view that shows one stored element again
 * and again. More may follow. Nothing but places is read. */
uint64_t ofs_alike(struct ofs_reader *r, const struct ofs_alike *a,
    uint64_t first, uint64_t least, uint64_t max);
#endif
