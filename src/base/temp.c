/* temp.c - files without a name, deleted when they are closed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

/* Attempts to find a name that is not in use. */
#define TRIES 100

static int open_named(int at, const char *path)
{
	char name[PATH_MAX];
	uint64_t random;
	int fd = -1;

	for (int i = 0; i < TRIES && fd == -1; i++) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -1;
		if (snprintf(name, sizeof(name), "%s/.optimfs.%016" PRIx64,
			path, random) >= (int)sizeof(name)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = openat(at, name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd == -1 && errno != EEXIST)
			return -1;
	}
	if (fd != -1)
		(void)unlinkat(at, name, 0);
	return fd;
}

int ofs_temp_open(int at, const char *path)
{
	int fd = openat(at, path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	/* reported by kernels and file systems that do not know the flag */
	if (fd != -1 ||
	    (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	return open_named(at, path);
}
