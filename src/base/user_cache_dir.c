/* user_cache_dir.c - the user's directory for such files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/user_cache.h"

static char *cache_path(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *path;
	int ret;

	if (cache != NULL && cache[0] == '/')
		ret = asprintf(&path, "%s/optimfs", cache);
	else if (home != NULL && home[0] == '/')
		ret = asprintf(&path, "%s/.cache/optimfs", home);
	else
		return NULL;
	return ret == -1 ? NULL : path;
}

bool ofs_user_cache_own(int fd, mode_t kind)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind &&
	    st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

int ofs_user_cache_open(void)
{
	char *path = cache_path();
	int fd = path == NULL
	    ? -1
	    : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	free(path);
	if (fd == -1 || ofs_user_cache_own(fd, S_IFDIR))
		return fd;
	close(fd);
	return -1;
}

/* A new user, as in a container, has no ~/.cache. A directory that was named is
 * not made: it may have been named to switch the cache off. */
static void make_home_cache(void)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	char *path;

	if ((cache != NULL && cache[0] == '/') || home == NULL ||
	    home[0] != '/' || asprintf(&path, "%s/.cache", home) == -1)
		return;
	(void)mkdir(path, 0700);
	free(path);
}

char *ofs_user_cache_make(void)
{
	char *path = cache_path();
	int fd;

	if (path == NULL)
		return NULL;
	make_home_cache();
	(void)mkdir(path, 0700);
	fd = ofs_user_cache_open();
	if (fd == -1) {
		free(path);
		return NULL;
	}
	close(fd);
	return path;
}
