/* dirs.c - the directories that files of a view lie in */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reshard/reshard.h"

/* More than the depth of any view. */
#define DEPTH_MAX 8

/* Directories come before their contents. */

static bool is_dir(const struct ofs_reshard *r, uint32_t index)
{
	return ofs_view_is_dir(r->snap,
	    (struct ofs_at){ r->view.space, index });
}

static void path_of(const struct ofs_reshard *r, uint32_t index,
    char path[OFS_FILE_NAME])
{
	ofs_view_path(r->snap, (struct ofs_at){ r->view.space, index }, path);
}

int ofs_reshard_dirs_make(struct ofs_reshard *r, struct optimfs_error *err)
{
	char path[OFS_FILE_NAME];

	for (uint32_t i = 1; i < r->nnodes; i++) {
		if (!is_dir(r, i))
			continue;
		path_of(r, i, path);
		if (mkdirat(r->new, path, 0777) == -1 && errno != EEXIST)
			return optimfs_fail(err, errno, "OFS801 %.150s: %m",
			    path);
	}
	return 0;
}

static int sync_one(int fd)
{
	int ret = fd == -1 ? -1 : fsync(fd);

	if (fd != -1)
		close(fd);
	return ret;
}

int ofs_reshard_dirs_sync(struct ofs_reshard *r, struct optimfs_error *err)
{
	char path[OFS_FILE_NAME];

	for (uint32_t i = 1; i < r->nnodes; i++) {
		if (!is_dir(r, i))
			continue;
		path_of(r, i, path);
		if (sync_one(openat(r->new, path,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) == -1)
			return optimfs_fail(err, errno, "OFS801 %.150s: %m",
			    path);
	}
	return fsync(r->new) == -1
	    ? optimfs_fail(err, errno, "OFS801 fsync: %m")
	    : 0;
}

void ofs_reshard_dirs_remove(struct ofs_reshard *r)
{
	char path[OFS_FILE_NAME];

	for (uint32_t i = r->nnodes; i-- > 1;) {
		path_of(r, i, path);
		unlinkat(r->new, path, is_dir(r, i) ? AT_REMOVEDIR : 0);
	}
}

static bool clear(int dir, unsigned depth);

static bool remove_one(int dir, const char *name, unsigned depth)
{
	int sub;
	bool empty;

	if (unlinkat(dir, name, 0) == 0)
		return true;
	if ((errno != EISDIR && errno != EPERM) || depth == DEPTH_MAX)
		return false;
	sub =
	    openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub == -1)
		return false;
	empty = clear(sub, depth + 1);
	close(sub);
	return empty && unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

static bool is_self(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *list(int dir)
{
	int fd = dup(dir);
	DIR *d = fd == -1 ? NULL : fdopendir(fd);

	if (d == NULL && fd != -1)
		close(fd);
	if (d != NULL)
		rewinddir(d);
	return d;
}

static bool clear(int dir, unsigned depth)
{
	DIR *d = list(dir);
	bool empty = d != NULL;
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (!is_self(e->d_name) && !remove_one(dir, e->d_name, depth))
			empty = false;
	if (d != NULL)
		closedir(d);
	return empty;
}

bool ofs_reshard_clear(int dir)
{
	return clear(dir, 0);
}

bool ofs_reshard_is_empty(int dir)
{
	DIR *d = list(dir);
	bool empty = d != NULL;
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		empty = empty && is_self(e->d_name);
	if (d != NULL)
		closedir(d);
	return empty;
}
