/* sums.h - checksums of boxes of a file whose parts are read by several */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_SUMS_H
#define OFS_PLAN_SUMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* The CRC-32 of len bytes at from, which are in the box that begins at box. */
struct ofs_sum {
	uint64_t box, from, len;
	uint32_t crc;
};

/* What is known of a file's boxes: neighbours of one box become one, so that a
 * box that was read whole is one sum, in whatever order its parts came. Any
 * thread may call. */
struct ofs_sums {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct ofs_sum *v; /* sorted, apart */
	size_t n, cap;
	/* What somebody is about to read. */
	struct ofs_promise {
		uint64_t from, end;
	} * promise;
	size_t npromises, promise_cap;
	bool cancelled;
	bool lost; /* some, for lack of memory: waiting would be for ever */
	/* Told of each sum that is added, under the lock; NULL. */
	void (*added)(void *ctx, const struct ofs_sum *sum);
	void *ctx;
};

void ofs_sums_init(struct ofs_sums *s);
void ofs_sums_fini(struct ofs_sums *s);

/* These bytes went by. What neither begins a box, nor goes on where something
 * that is known ends, nor was promised, is not kept: it may never be of use.
 * Out of memory costs another read of the same bytes, no more. */
void ofs_sums_add(struct ofs_sums *s, const struct ofs_sum *sum);
/* The sum of all n bytes of the box at from: waits while a byte of it that is
 * not known yet is promised. 1; 0: nobody will tell; -1: ECANCELED. */
int ofs_sums_get(struct ofs_sums *s, uint64_t from, uint64_t n, uint32_t *crc,
    struct optimfs_error *err);
/* The caller is about to read [from, end) in order and adds what it sees,
 * before it asks for a sum of anything in it. ENOMEM. */
int ofs_sums_promise(struct ofs_sums *s, uint64_t from, uint64_t end,
    struct optimfs_error *err);
/* It has, or never will. */
void ofs_sums_release(struct ofs_sums *s, uint64_t from);
/* What is not known now fails, for those who wait too. */
void ofs_sums_cancel(struct ofs_sums *s);

#endif
