/* step.h - how far the opening of a checkpoint is */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_STEP_H
#define OFS_BASE_STEP_H

#include <errno.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* Reports done of total bytes or tensors; total 0: unknown. w may be NULL. -1
 * (ECANCELED): stop here. */
static inline int ofs_step(const struct optimfs_watch *w, const char *step,
    uint64_t done, uint64_t total, struct optimfs_error *err)
{
	if (w == NULL)
		return 0;
	w->progress(w->ctx, done, total, step);
	if (w->stop != NULL && w->stop(w->ctx))
		return optimfs_fail(err, ECANCELED, "interrupted");
	return 0;
}

/* Of a loop over tensors, one in so many reports. */
#define OFS_STEP_EVERY 4096

#endif
