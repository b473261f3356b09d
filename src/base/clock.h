/* clock.h - monotonic and wall-clock time */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CLOCK_H
#define OFS_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#include "base/checked.h"

/* Inline, because loadable modules use it too. */

static inline int64_t ofs_clock_read(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return ofs_time_ns(&t);
}

/* The monotonic clock, for measurements and deadlines. */
static inline int64_t ofs_clock_ns(void)
{
	return ofs_clock_read(CLOCK_MONOTONIC);
}

static inline int64_t ofs_clock_ms(void)
{
	return ofs_clock_ns() / 1000000;
}

/* Wall-clock time since 1970, for the times of files. */
static inline int64_t ofs_now_ns(void)
{
	return ofs_clock_read(CLOCK_REALTIME);
}

/* The time ns from now, by the monotonic clock. */
static inline struct timespec ofs_clock_after(int64_t ns)
{
	ns += ofs_clock_ns();
	return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

/* Waits for at most ns, also if the date is changed meanwhile. 0 if cond was
 * signalled, otherwise ETIMEDOUT. */
static inline int ofs_clock_wait(pthread_cond_t *cond, pthread_mutex_t *lock,
    int64_t ns)
{
	struct timespec until = ofs_clock_after(ns);

	return pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
}

#endif
