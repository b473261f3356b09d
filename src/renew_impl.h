/* renew_impl.h - what the parts of renew share; only renew*.c include it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RENEW_IMPL_H
#define OFS_RENEW_IMPL_H

#include <pthread.h>

#include "errand.h"
#include "renew.h"
#include "share.h"
#include "wire.h"

struct ofs_renewal {
	struct optimfs_world *world;
	/* What is shown; what was before, about which others may still ask. */
	struct ofs_share *share, *before;
	struct ofs_share *read;   /* what is opened: share, or the next */
	uint32_t number;          /* the last that was tried */
	struct optimfs_error why; /* it was not shown; code 0. Under lock */

	/* Of a rank that does not write. fs, now and read: under shown, which
	 * is held as long as something is done with them. */
	pthread_mutex_t shown;
	struct optimfs *fs; /* NULL: no mount here */
	struct optimfs *now;
	bool alerted; /* fs' gate is held */

	struct ofs_errand errand;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	struct ofs_share *next;
	bool dropped, ready, stopped;
	/* Of a round what is said here, and what was heard from all. */
	uint8_t round;
	const void *mine;
	uint64_t nmine;
	uint8_t *heard;
	uint64_t nheard, total;
	bool speaking;
};

/* What all have said, as TELL has it. */
int ofs_renewal_take(const struct ofs_renewal *r, const uint8_t *p, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err);
/* next is shown: what was is kept for others. */
void ofs_renewal_succeed(struct ofs_renewal *r, struct ofs_share *next);

#endif
