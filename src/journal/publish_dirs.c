/* publish_dirs.c - make, sync and remove the directories of a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

int ofs_publish_dir(int at, const char *name, struct optimfs_error *err)
{
	int fd;

	if (ofs_sys_mkdir(at, name) == -1 && errno != EEXIST)
		return optimfs_fail(err, errno, "OFS821 %.200s/: %m", name);
	fd = openat(at, name, DIR_FLAGS);
	if (fd == -1)
		return optimfs_fail(err, errno, "OFS821 %.200s/: %m", name);
	return fd;
}

/* Removes one entry. For a directory that is not empty, path is extended and
 * the caller tries again: no recursion at any depth. */
static bool remove_one(int at, char *path, size_t size)
{
	struct dirent *d;
	size_t n = strlen(path);
	bool deeper = false;
	DIR *dir;
	int fd;

	if (unlinkat(at, path, 0) == 0 || errno == ENOENT ||
	    unlinkat(at, path, AT_REMOVEDIR) == 0)
		return true;
	fd = openat(at, path, DIR_FLAGS);
	dir = fd == -1 ? NULL : fdopendir(fd);
	if (dir == NULL) {
		if (fd != -1)
			close(fd);
		return false;
	}
	while (!deeper && (d = readdir(dir)) != NULL) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		if (n + 1 + strlen(d->d_name) >= size)
			break;
		if (unlinkat(fd, d->d_name, 0) == 0)
			continue;
		path[n] = '/';
		strcpy(path + n + 1, d->d_name);
		deeper = true;
	}
	closedir(dir);
	return deeper || unlinkat(at, path, AT_REMOVEDIR) == 0;
}

void ofs_publish_clear(int at, const char *name)
{
	char path[8192];
	struct stat st;

	while (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		snprintf(path, sizeof(path), "%s", name);
		/* descend to something that can be removed */
		for (size_t n = 0; strlen(path) != n;) {
			n = strlen(path);
			if (!remove_one(at, path, sizeof(path)))
				return;
		}
	}
}

int ofs_publish_sync_dir(int at, const char *rel)
{
	const char *slash = strrchr(rel, '/');
	char path[4097];
	int fd, ret, saved;

	snprintf(path, sizeof(path), "%.*s",
	    slash == NULL ? 1 : (int)(slash - rel), slash == NULL ? "." : rel);
	fd = openat(at, path, DIR_FLAGS);
	if (fd == -1)
		return -1;
	ret = ofs_sys_fsync(fd);
	saved = errno;
	close(fd);
	errno = saved;
	return ret;
}

/* Gives a new directory the mode of the checkpoint's directories. */
static int seal_new(int at, const char *path, int like,
    struct optimfs_error *err)
{
	int fd = openat(at, path, DIR_FLAGS), ret = -1;

	if (fd == -1)
		return optimfs_fail(err, errno, "OFS821 %.200s/: %m", path);
	if (ofs_copy_attributes(like, fd, err) == 0)
		ret = ofs_sys_fsync(fd) == -1 ||
			ofs_publish_sync_dir(at, path) == -1
		    ? optimfs_fail(err, errno, "OFS802 %.200s/: %m", path)
		    : 0;
	close(fd);
	return ret;
}

int ofs_publish_parents(int at, const char *rel, int like,
    struct optimfs_error *err)
{
	char path[4097];
	const char *slash = rel;

	while ((slash = strchr(slash, '/')) != NULL) {
		snprintf(path, sizeof(path), "%.*s", (int)(slash - rel), rel);
		slash++;
		if (ofs_sys_mkdir(at, path) == 0) {
			if (like != -1 && seal_new(at, path, like, err) == -1)
				return -1;
		} else if (errno != EEXIST) {
			return optimfs_fail(err, errno, "OFS821 %.200s/: %m",
			    path);
		}
	}
	return 0;
}

int ofs_publish_parent(const char *source, int dir, int *parent, char **base,
    struct optimfs_error *err)
{
	char *real = realpath(source, NULL), *slash;
	struct stat a, b;
	int ret = -1;

	if (real == NULL)
		return optimfs_fail(err, errno, "OFS821 %s: %m", source);
	slash = strrchr(real, '/');
	*base = strdup(slash + 1);
	slash[slash == real] = '\0';
	*parent = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*base == NULL || *parent == -1)
		optimfs_fail(err, *base == NULL ? ENOMEM : errno,
		    "OFS821 %s: %m", real);
	else if (**base == '\0' || fstatat(*parent, *base, &a, 0) == -1 ||
	    fstat(dir, &b) == -1 || a.st_ino != b.st_ino ||
	    a.st_dev != b.st_dev)
		optimfs_fail(err, ESTALE,
		    "OFS805 %s is not the directory that was mounted", source);
	else
		ret = 0;
	if (ret == -1) {
		if (*parent != -1)
			close(*parent);
		free(*base);
		*parent = -1;
		*base = NULL;
	}
	free(real);
	return ret;
}
