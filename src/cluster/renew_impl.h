/* renew_impl.h - what the parts of renew share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_RENEW_IMPL_H
#define OFS_CLUSTER_RENEW_IMPL_H

#include <pthread.h>

#include "cluster/commit/async.h"
#include "cluster/manifest.h"
#include "cluster/renew.h"
#include "cluster/wire.h"

struct ofs_renewal {
	struct optimfs_group *world;
	/* What is shown; what was before, about which others may still ask. */
	struct ofs_manifest *share, *before;
	struct ofs_manifest *read; /* what is opened: share, or the next */
	uint32_t number;           /* the last that was tried; under lock */
	struct optimfs_error why;  /* it was not shown; code 0. Under lock */

	/* Of a rank that does not write. fs, now and read: under shown, which
	 * is held as long as something is done with them. */
	pthread_mutex_t shown;
	struct optimfs *fs; /* NULL: no mount here */
	struct optimfs *now;
	bool alerted; /* fs' gate is held */

	struct ofs_async errand;
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	struct ofs_manifest *next;
	uint32_t gone; /* the last number that was dropped */
	bool dropped, ready, stopped;
	struct optimfs_error failed; /* the errand has; code 0 */
	/* Of a round what is said here, and what was heard from all. */
	uint8_t round;
	const void *mine;
	uint64_t nmine;
	uint8_t *heard;
	uint64_t nheard, total;
	bool speaking;
};

/* renew_meet.c */
/* EPROTO (OFS913); ECANCELED, of what comes late: always. */
int ofs_renewal_malformed(struct optimfs_error *err);
int ofs_renewal_late(struct optimfs_error *err);
/* A tenth of a second, or until something changes; with lock. */
void ofs_renewal_wait(struct ofs_renewal *r);
/* That of a struct ofs_meeting, on a rank that does not write; ctx is r. */
int ofs_renewal_exchange(void *ctx, const void *mine, uint64_t n,
    struct ofs_said *all, struct optimfs_error *err);
/* Answer HEAR, HEAR_AT and TELL. */
int ofs_renewal_meet(struct ofs_renewal *r, enum ofs_renew_op op,
    uint32_t number, struct ofs_cursor *c, uint8_t *out, uint64_t want,
    struct optimfs_error *err);

/* renew_follow.c */
/* next is shown: what was is kept for others. */
void ofs_renewal_succeed(struct ofs_renewal *r, struct ofs_manifest *next);

#endif
