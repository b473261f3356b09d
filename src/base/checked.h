/* checked.h - sums and products of sizes that may come from a file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CHECKED_H
#define OFS_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* *out = a op b. On overflow it returns false, and *out is undefined. */
static inline bool ofs_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_add_overflow(a, b, out);
}

static inline bool ofs_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
	return !__builtin_mul_overflow(a, b, out);
}

/* Adds n to a sum that stays at UINT64_MAX once it is too large. */
static inline void ofs_sum_u64(uint64_t *sum, uint64_t n)
{
	if (!ofs_add_u64(*sum, n, sum))
		*sum = UINT64_MAX;
}

/* *out = product of n dimensions (1 when n is 0); false on overflow. A zero
 * among them gives 0 whatever the others are. */
static inline bool ofs_numel(const uint64_t *dims, size_t n, uint64_t *out)
{
	uint64_t total = 1;

	for (size_t i = 0; i < n; i++)
		if (dims[i] == 0) {
			*out = 0;
			return true;
		}
	for (size_t i = 0; i < n; i++)
		if (!ofs_mul_u64(total, dims[i], &total))
			return false;
	*out = total;
	return true;
}

/* Nanoseconds since 1970. Times before 1677 or after 2262, which a file may
 * have, are clamped. */
static inline int64_t ofs_time_ns(const struct timespec *t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t->tv_sec, 1000000000, &ns) ||
	    __builtin_add_overflow(ns, t->tv_nsec, &ns))
		return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

#endif
