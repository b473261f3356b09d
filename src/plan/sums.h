/* sums.h - checksums of a file's boxes, whose parts several threads read */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PLAN_SUMS_H
#define OFS_PLAN_SUMS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* The CRC-32 of len bytes at from, which are in the box that begins at offset
 * box. */
struct ofs_sum {
	uint64_t box, from, len;
	uint32_t crc;
};

/* The known checksums of a file's boxes. Adjacent ones of one box are combined,
 * so that a box which was read completely has one sum, in whatever order its
 * parts were read. Thread-safe. */
struct ofs_sums {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct ofs_sum *v; /* sorted, disjoint */
	size_t n, cap;
	/* Ranges that other threads are about to read. */
	struct ofs_promise {
		uint64_t from, end;
	} * promise;
	size_t npromises, promise_cap;
	bool cancelled;
	/* a sum could not be stored, so that waiting might never end */
	bool lost;
	/* Not 0: any sum is kept that is not short, and at most this many. */
	size_t most;
	/* If not NULL: called for each sum that is added, with the lock
	 * held. */
	void (*added)(void *ctx, const struct ofs_sum *sum);
	void *ctx;
};

void ofs_sums_init(struct ofs_sums *s);
void ofs_sums_fini(struct ofs_sums *s);

/* Add the sum of bytes that were read. It is dropped unless it begins a box,
 * joins a known sum, or was promised: others may never be of use. Out of
 * memory only costs reading these bytes again. */
void ofs_sums_add(struct ofs_sums *s, const struct ofs_sum *sum);
/* The sum of all n bytes of the box at from. Waits while a missing byte is
 * promised. 1 with *crc; 0: it will not become known; -1: ECANCELED. */
int ofs_sums_get(struct ofs_sums *s, uint64_t from, uint64_t n, uint32_t *crc,
    struct optimfs_error *err);
/* Promise to read [from, end) in order and to add its sums before asking for a
 * sum in that range. ENOMEM. */
int ofs_sums_promise(struct ofs_sums *s, uint64_t from, uint64_t end,
    struct optimfs_error *err);
/* End a promise, kept or not. */
void ofs_sums_release(struct ofs_sums *s, uint64_t from);
/* From now on ofs_sums_get fails for all that is not known, in waiting threads
 * too. */
void ofs_sums_cancel(struct ofs_sums *s);

#endif
