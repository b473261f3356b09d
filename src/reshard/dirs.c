/* dirs.c - the directories that files of a view lie in */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "reshard/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_one(int dir, const char *path, mode_t mode,
    struct optimfs_error *err)
{
	if (mkdirat(dir, path, mode) == 0 || errno == EEXIST)
		return 0;
	return optimfs_fail(err, errno, "OFS801 %.150s: %m", path);
}

static int sync_one(int dir, const char *path, mode_t mode,
    struct optimfs_error *err)
{
	int fd =
	    openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int ret = 0;

	(void)mode;
	if (fd == -1 || fsync(fd) == -1)
		ret =
		    optimfs_fail(err, errno, "OFS801 %.150s: fsync: %m", path);
	if (fd != -1)
		close(fd);
	return ret;
}

/* Directories come before their contents. */
static int each(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    int (*call)(int dir, const char *path, mode_t mode,
	struct optimfs_error *err),
    struct optimfs_error *err)
{
	mode_t mode = ofs_snapshot_made_mode(snap, 0777);
	struct ofs_at at = { view.space, 1 };
	char path[OFS_FILE_NAME];
	uint32_t n;

	if (ofs_view_count(snap, view, &n, err) == -1)
		return -1;
	for (; at.index < n; at.index++) {
		if (!ofs_view_is_dir(snap, at))
			continue;
		ofs_view_path(snap, at, path);
		if (call(dir, path, mode, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_view_dirs_make(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct optimfs_error *err)
{
	return each(snap, view, dir, make_one, err);
}

int ofs_view_dirs_sync(struct ofs_snapshot *snap, struct ofs_at view, int dir,
    struct optimfs_error *err)
{
	if (each(snap, view, dir, sync_one, err) == -1)
		return -1;
	return sync_one(dir, ".", 0, err);
}
