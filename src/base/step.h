/* step.h - the progress of long work, and its cancellation */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_STEP_H
#define OFS_BASE_STEP_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

/* -1 (ECANCELED): the user has interrupted it. stop may be NULL. */
static inline int ofs_go_on(bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err)
{
	if (stop == NULL || !stop(ctx))
		return 0;
	return optimfs_fail(err, ECANCELED, "interrupted");
}

/* Reports done of total bytes or tensors; total 0: unknown. w may be NULL. -1
 * (ECANCELED): stop here. */
static inline int ofs_step(const struct optimfs_watch *w, const char *step,
    uint64_t done, uint64_t total, struct optimfs_error *err)
{
	if (w == NULL)
		return 0;
	if (w->progress != NULL)
		w->progress(w->ctx, done, total, step);
	return ofs_go_on(w->stop, w->ctx, err);
}

/* Is it no fault of the file that was read, which could be left out, but out of
 * memory or an interrupt (ENOMEM, ECANCELED)? */
static inline bool ofs_must_stop(const struct optimfs_error *why)
{
	return why->code == ENOMEM || why->code == ECANCELED;
}

/* Is it no fault of an item that is read at mount, but one of those, or a lost
 * rank? Other ranks may read the item, and all must show the same tree. */
static inline bool ofs_must_fail(const struct optimfs_error *why)
{
	return ofs_must_stop(why) || why->code == EHOSTDOWN ||
	    why->code == ETIMEDOUT;
}

/* Of a loop over tensors, one in so many reports. */
#define OFS_STEP_EVERY 4096

#endif
