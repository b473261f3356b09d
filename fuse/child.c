/* child.c - waiting for a program that was started */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/child.h"

#include <errno.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"

enum {
	WAIT_MS = 30000,
	TICK_MAX_MS = 20,
};

int ofs_child_wait(pid_t pid, const char *name, int *status,
    struct optimfs_error *err)
{
	int64_t end = ofs_clock_ms() + WAIT_MS;
	struct timespec tick = { .tv_nsec = 500000 };
	pid_t ended;

	/* most programs end at once */
	while ((ended = waitpid(pid, status, WNOHANG)) != pid) {
		if (ended == -1 && errno != EINTR)
			return optimfs_fail(err, errno, "%s: %m", name);
		if (ofs_clock_ms() >= end)
			return optimfs_fail(err, ETIMEDOUT,
			    "%s (pid %ld) has not ended after %d s", name,
			    (long)pid, WAIT_MS / 1000);
		nanosleep(&tick, NULL);
		if (tick.tv_nsec < TICK_MAX_MS * 1000000L)
			tick.tv_nsec *= 2;
	}
	return 0;
}
