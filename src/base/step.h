/* step.h - how far the opening of a checkpoint is */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_STEP_H
#define OFS_BASE_STEP_H

#include <stdint.h>

#include "optimfs/optimfs.h"

/* Reports done of total bytes or tensors; total 0: unknown. w may be NULL. */
static inline void ofs_step(const struct optimfs_watch *w, const char *step,
    uint64_t done, uint64_t total)
{
	if (w != NULL)
		w->progress(w->ctx, done, total, step);
}

/* Of a loop over tensors, one in so many reports. */
#define OFS_STEP_EVERY 4096

#endif
